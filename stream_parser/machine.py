"""The machine behind the parser: which marker counts where it stands, and who reads a call's body.

Text outside of calls is read by one compiled table of markers a region; a marker that does not count where it stands is
text. A call's body is read by its reader. Knows nothing of token ids, surrogates or finish reasons.
"""

from __future__ import annotations

import re
from typing import assert_never

from stream_parser.argument_bodies import CounterReader
from stream_parser.bodies import BodyReader, Status
from stream_parser.calls import CallWriter, resolve_counted_name
from stream_parser.echo import EchoFilter
from stream_parser.events import Event
from stream_parser.grammar import CompiledCall, Entry, Grammar, Role
from stream_parser.marker_rules import MarkerRules
from stream_parser.readers import make_reader
from stream_parser.regions import Regions

_COUNTED_ID = re.compile(r"functions\..+:\d+")


class Machine:
    """Reads text in order: `run` any number of times, then `end` once. Events go to `out`, which the writer shares."""

    __slots__ = (
        "_body",
        "_calls_allowed",
        "_echo",
        "_final",
        "_grammar",
        "_held",
        "_pos",
        "_rules",
        "_text",
        "_trial",
        "_writer",
        "regions",
    )

    def __init__(self, grammar: Grammar, writer: CallWriter, out: list[Event], calls_allowed: bool) -> None:
        self.regions = Regions(grammar, out, calls_allowed)
        self._rules = MarkerRules(grammar, self.regions, writer.tools)
        self._writer = writer
        self._grammar = grammar
        self._calls_allowed = calls_allowed
        self._body: BodyReader | None = None
        self._echo = EchoFilter() if "echo_after" in grammar.dialect.recovery else None
        self._trial: list[str] | None = None  # what an unconfirmed body has read
        self._held = ""  # unread text that may become a marker
        self._text = ""
        self._pos = 0
        self._final = ""  # "", "stopped" or "cut": no more text follows, and why

    def run(self, text: str) -> None:
        """Read more text, which is not empty. O(len(text)) plus what was held, which is bounded."""
        if self._held:
            text, self._held = self._held + text, ""
        elif self._body is None:
            regions = self.regions
            if regions.flowing and regions.trigger(text) is None and not text[-1].isspace():
                regions.emit(text)
                return
        self._read(text)

    def end(self, natural: bool) -> None:
        """No more text: what was held is decided. `natural`: the model stopped by itself."""
        self._final = "stopped" if natural else "cut"
        while self._held or self._body is not None:
            if self._body is not None:
                self._end_body(self._body, natural)
            else:
                text, self._held = self._held, ""
                self._read(text)
        self.regions.flush()

    def read_prompt(self, tail: str) -> None:
        """Find the region in which the output begins. The prompt's text is not repeated, but a call left open is."""
        turns = [(tail.rfind(turn), len(turn)) for turn in self._grammar.dialect.turns]
        start, length = max(turns, default=(-1, 0))
        text = tail[start + length :] if start >= 0 else tail
        regions = self.regions
        regions.silent = True
        if text:
            self.run(text)

        self._writer.forget_closed()
        regions.resume(in_text=self._body is not None or (start >= 0 and not regions.at_edge))
        regions.mute = len(self._held) + sum(len(piece) for piece in self._trial or ())

    def force(self, marker: str) -> None:
        """Read a marker that its token id makes certain, even inside a string."""
        body = self._body
        if body is not None and body.in_string and body.ends.boundary.fullmatch(marker):
            self._end_body(body, natural=True)
        self._rules.forced = True
        self.run(marker)
        self._rules.forced = False

    def _read(self, text: str) -> None:
        self._text, self._pos = text, 0
        while self._pos < len(self._text):
            waits = self._read_text() if self._body is None else self._read_body(self._body)
            if waits:
                break
        self._held, self._text = self._text[self._pos :], ""

    # -- markers ---------------------------------------------------------------------------------------------------

    def _read_text(self) -> bool:
        """Read up to the next marker and act on it. True: the text from the position on has to wait."""
        if self._echo is not None and self._echo.is_due:
            after = self._echo.skip(self._text, self._pos, bool(self._final))
            if after is None:
                return True
            self._pos = after
        text, start, regions = self._text, self._pos, self.regions
        at = start
        while True:
            found = regions.trigger(text, at)
            if found is None:
                regions.say(text[start:])
                self._pos = len(text)
                return False
            at = found.start()
            if regions.at_edge and at > start and not text[start:at].isspace():
                regions.say(text[start:at])
                start = at
            hit = regions.table.full.match(text, at)
            if hit is not None and self._is_decided(hit):
                entry = self._entry(hit)
                role = self._rules.role(entry, hit)
                misplaced = entry.line_only and not (regions.at_edge or regions.starts_line(text[start:at]))
                if role is not None and not misplaced:
                    regions.say(text[start:at])
                    self._pos = hit.end()
                    self._act(role, entry, hit)
                    return False
            elif regions.table.partial.match(text, at):
                if not self._final:
                    regions.say(text[start:at])
                    self._pos = at
                    return True
                if self._is_cut_markup(text, at):
                    regions.say(text[start:at])
                    regions.mark()
                    self._pos = len(text)
                    return False
            at += 1

    def _is_decided(self, hit: re.Match[str]) -> bool:
        """False while all the text from here on may also be the beginning of a longer marker."""
        if self.regions.table.partial.match(hit.string, hit.start()) is None:
            return True
        return bool(self._final) and not self._is_cut_markup(hit.string, hit.start())

    def _is_cut_markup(self, text: str, at: int) -> bool:
        return self._rules.is_cut_markup(text, at, was_cut=self._final == "cut")

    def _entry(self, hit: re.Match[str]) -> Entry:
        assert hit.lastgroup is not None
        return self.regions.table.entries[int(hit.lastgroup[1:])]

    def _act(self, role: Role, entry: Entry, hit: re.Match[str]) -> None:
        regions = self.regions
        match role:
            case Role.CALL:
                assert entry.call is not None
                if self._echo is not None and entry.opened is not None:
                    opener = entry.opened.match(hit[0])
                    self._echo.begin(hit[0][opener.end() :] if opener else hit[0])
                self._open_call(entry.call, hit)
            case Role.HEADER:
                regions.enter("content")
                self._open_message(hit)
            case Role.REASONING_OPEN:
                regions.enter("reasoning")
            case Role.REASONING_CLOSE:
                self._rules.owes_close = False
                regions.enter("content")
            case Role.MESSAGE_END:
                self._rules.answer_open = False
                regions.enter("content")
                regions.between_messages = True
            case Role.ANSWER_OPEN:
                regions.enter("content")
                self._rules.answer_open = True
            case Role.ANSWER_CLOSE:
                self._rules.answer_open = False
                regions.mark()
            case Role.TURN_END:
                regions.end_turn(hit[0], certain=self._rules.forced or regions.silent)
            case Role.STRAY:
                regions.mark()
            case _:
                assert_never(role)

    # -- calls -----------------------------------------------------------------------------------------------------

    def _open_call(self, compiled: CompiledCall, hit: re.Match[str]) -> None:
        name, wire_id = compiled.call.name or self._rules.captured(hit, "name"), self._rules.captured(hit, "id")
        if not name and wire_id:
            name = resolve_counted_name(wire_id, self._writer.tools.names)
            if not name:
                self._try(CounterReader(compiled, self._writer, wire_id), hit)
                return
            wire_id = wire_id if _COUNTED_ID.fullmatch(wire_id) else ""
        if not name:
            self._try(make_reader(compiled, compiled.body, self._writer), hit)
            return
        self._begin(compiled, name, wire_id)

    def _begin(self, compiled: CompiledCall, name: str, wire_id: str = "") -> None:
        self._settle()
        self._writer.begin(name, wire_id)
        self._body = make_reader(compiled, compiled.body, self._writer)

    def _try(self, body: BodyReader, hit: re.Match[str]) -> None:
        self._body = body
        self._trial = [hit[0]]

    def _settle(self) -> None:
        """It is a call: wherever it stood, the reasoning is over."""
        self._trial = None
        if self.regions.region == "reasoning":
            self._rules.owes_close = True
            self.regions.enter("content")
        self.regions.mark()

    def _open_message(self, hit: re.Match[str]) -> None:
        route, name = self._rules.route(hit)
        if route is None:
            return
        if route.to != "call":
            self.regions.enter(route.to)
        elif self._calls_allowed and self._grammar.message_call is not None:
            self._begin(self._grammar.message_call, name)

    def _read_body(self, body: BodyReader) -> bool:
        start = self._pos
        self._pos = body.feed(self._text, start)
        if self._echo is not None:
            self._echo.add(self._text[start : self._pos])
        if self._trial is not None:
            if body.status is Status.REJECTED:
                self._reject("".join(self._trial) + self._text[start:])
                return False
            if body.confirmed:
                self._settle()
            else:
                self._trial.append(self._text[start : self._pos])
        if body.status is Status.DONE:
            self._close_body(body)
            return False
        return True

    def _close_body(self, body: BodyReader) -> None:
        self._body = None
        if self._echo is not None:
            self._echo.end(body.compiled.call.closes, body.leftover)
        self.regions.mark()
        self._rules.after_call = True
        if body.leftover:
            self._text, self._pos = body.leftover + self._text[self._pos :], 0

    def _reject(self, text: str) -> None:
        """No call: its first character is text, and the rest is read again."""
        self._body = self._trial = None
        self._text, self._pos = text, 1
        self.regions.say(text[0])

    def _end_body(self, body: BodyReader, natural: bool) -> None:
        held, self._held = self._held, ""
        trial = self._trial
        body.end(held, 0, natural)
        if body.status is Status.REJECTED:
            self._body = self._trial = None
            raw = "".join(trial or ()) + held
            if natural or not body.compiled.call.opens:
                self.regions.say(raw[0])
                self._held = raw[1:]
            return
        assert trial is None, "a body that was not confirmed is rejected at its end"
        self._body = None
        self.regions.mark()
        self._held = body.leftover
