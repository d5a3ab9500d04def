"""The machine behind the parser: which region the text is in, which marker counts there, and who reads a call's body.

A region (reasoning, content, …) is read by one compiled table; a call's body by its reader. A marker that does not count
where it stands is text. Blanks next to markers belong to the markup, except where the dialect keeps them. Knows nothing
of token ids, surrogates or finish reasons.
"""

from __future__ import annotations

import re

from stream_parser.bodies import BodyReader, Status
from stream_parser.calls import CallWriter, resolve_counted_name
from stream_parser.dialect import Region, Route
from stream_parser.events import ContentDelta, ReasoningDelta
from stream_parser.grammar import CompiledCall, Entry, Grammar, Role, Table
from stream_parser.json_bodies import CounterReader
from stream_parser.readers import make_reader

_COUNTED = re.compile(r"functions\..+:\d+")


class Machine:
    __slots__ = (
        "_after_call",
        "_answer_open",
        "_between_messages",
        "_blank",
        "_body",
        "_calls_allowed",
        "_content_blank",
        "_content_said",
        "_edge",
        "_ended",
        "_final",
        "_forced",
        "_fresh",
        "_grammar",
        "_held",
        "_keep_edges",
        "_mute",
        "_owes_close",
        "_pos",
        "_prompt",
        "_region",
        "_table",
        "_text",
        "_trial",
        "writer",
    )

    def __init__(self, grammar: Grammar, writer: CallWriter, calls_allowed: bool) -> None:
        self.writer = writer
        self._grammar = grammar
        self._calls_allowed = calls_allowed
        self._keep_edges = grammar.dialect.keep_edges
        self._region: Region = "content"
        self._body: BodyReader | None = None
        self._trial: list[str] | None = None  # what an unconfirmed body has read
        self._held = ""  # unread text that may become a marker
        self._blank = ""  # blanks at the end of the region's text, which a marker may swallow
        self._content_blank = ""  # the same of the content, while in the reasoning
        self._ended = ""  # a spelled end-of-turn marker, text again if more text follows
        self._edge = True  # nothing but blanks since the start or the last marker
        self._fresh = True  # nothing at all but blanks so far
        self._content_said = False
        self._after_call = False  # nothing but blanks and markers since a call ended
        self._answer_open = False
        self._between_messages = False
        self._owes_close = False  # a call ended the reasoning; its closer may still come
        self._prompt = False
        self._forced = False
        self._final = ""  # "", "stopped" or "cut"
        self._mute = 0  # characters of held text that the prompt wrote
        self._text = ""
        self._pos = 0
        self._table = self._choose_table()

    def run(self, text: str) -> None:
        """Read more text. O(len(text)) plus what was held, which is bounded."""
        if self._held:
            text, self._held = self._held + text, ""
        elif self._body is None and not self._edge and not self._blank and not self._ended:
            if not text[-1].isspace() and self._table.trigger.search(text) is None:
                self._emit(text)
                return
        self._text, self._pos = text, 0
        while self._pos < len(self._text):
            waits = self._read_text() if self._body is None else self._read_body(self._body)
            if waits:
                break
        self._held, self._text = self._text[self._pos :], ""

    def end(self, natural: bool) -> None:
        """No more text: what was held is decided. `natural`: the model stopped by itself."""
        self._final = "stopped" if natural else "cut"
        while self._held or self._body is not None:
            if self._body is not None:
                self._end_body(self._body, natural)
            else:
                text, self._held = self._held, ""
                self.run_final(text)
        if self._blank and (self._fresh or not self._edge or self._ended):
            self._emit(self._blank)

    def run_final(self, text: str) -> None:
        self._text, self._pos = text, 0
        while self._pos < len(self._text) and self._body is None:
            self._read_text()
        while self._pos < len(self._text) and self._body is not None:
            body = self._body
            if self._read_body(body):
                break
        self._held, self._text = self._text[self._pos :], ""

    def read_prompt(self, tail: str) -> None:
        """Find the region in which the output begins. The prompt's text is not repeated, but a call left open is."""
        turns = [(tail.rfind(turn), len(turn)) for turn in self._grammar.dialect.turns]
        start, length = max(turns, default=(-1, 0))
        keeps_text = start >= 0
        self._prompt = True
        text = tail[start + length :] if start >= 0 else tail
        if text:
            self.run(text)
        self._prompt = False

        self.writer.forget_closed()
        self._mute = len(self._held) + sum(len(piece) for piece in self._trial or ())
        self._blank = self._content_blank = self._ended = ""
        self._content_said = False
        if self._body is None and not (keeps_text and not self._edge):
            self._edge = True
            self._table = self._choose_table()

    def force(self, marker: str) -> None:
        """Read a marker that its token id makes certain, even inside a string."""
        body = self._body
        if body is not None and body.in_string and body.ends.boundary.fullmatch(marker):
            self._end_body(body, natural=True)
        self._forced = True
        self.run(marker)
        self._forced = False

    # -- regions ---------------------------------------------------------------------------------------------------

    def _choose_table(self) -> Table:
        region = self._region
        allowed = self._calls_allowed and region in self._grammar.dialect.calls_in
        return self._grammar.table(allowed, self._edge and region == "content")

    def _read_text(self) -> bool:
        """Read up to the next marker and act on it. True: the text from the position on has to wait."""
        text, start = self._text, self._pos
        at = start
        while True:
            found = self._table.trigger.search(text, at)
            if found is None:
                self._say(text[start:])
                self._pos = len(text)
                return False
            at = found.start()
            if self._edge and at > start and not text[start:at].isspace():
                self._say(text[start:at])
                start = at
            hit = self._table.full.match(text, at)
            if hit is not None and self._is_decided(hit):
                entry = self._entry(hit)
                role = self._role(entry, hit)
                if role is not None:
                    self._say(text[start:at])
                    self._pos = hit.end()
                    self._act(role, entry, hit)
                    return False
            elif self._table.partial.match(text, at):
                if not self._final:
                    self._say(text[start:at])
                    self._pos = at
                    return True
                if self._is_cut_markup(text, at):
                    self._say(text[start:at])
                    self._mark()
                    self._pos = len(text)
                    return False
            at += 1

    def _is_decided(self, hit: re.Match[str]) -> bool:
        """False while all the text from here on may also be the beginning of a longer marker."""
        if self._table.partial.match(hit.string, hit.start()) is None:
            return True
        return bool(self._final) and not self._is_cut_markup(hit.string, hit.start())

    def _entry(self, hit: re.Match[str]) -> Entry:
        assert hit.lastgroup is not None
        return self._table.entries[int(hit.lastgroup[1:])]

    def _is_cut_markup(self, text: str, at: int) -> bool:
        """Whether the beginning of a marker with which the text ends is markup that was cut off, and not prose."""
        if self._final == "cut" and self._edge and not self._fresh:
            return True
        for entry in self._table.entries:
            if entry.opened is None or not entry.opened.match(text, at):
                continue
            if entry.special:
                return True
            if self._final == "cut":
                return not entry.loose or any(name in text[at:] for name in self.writer.tools.names)
        return False

    def _role(self, entry: Entry, hit: re.Match[str]) -> Role | None:
        """What the marker means here; None if it is text."""
        roles = entry.roles
        if Role.CALL in roles:
            return Role.CALL if self._names_a_call(entry, hit) else None
        if Role.HEADER in roles:
            return Role.HEADER if self._is_header(entry, hit) else None
        sure = entry.special or self._forced or self._prompt
        if Role.MESSAGE_END in roles:
            return Role.MESSAGE_END

        if self._region == "reasoning":
            if Role.REASONING_CLOSE in roles:
                return Role.REASONING_CLOSE
            if Role.REASONING_OPEN in roles and (self._edge or sure) and not entry.first_only:
                return Role.STRAY
            if Role.ANSWER_OPEN in roles and (entry.ends_reasoning or sure):
                return Role.ANSWER_OPEN
        else:
            if Role.REASONING_OPEN in roles and self._may_open(entry, sure):
                return Role.REASONING_OPEN
            if Role.ANSWER_CLOSE in roles and self._answer_open:
                return Role.ANSWER_CLOSE
            if Role.ANSWER_OPEN in roles and (self._edge or sure):
                return Role.ANSWER_OPEN
            if Role.REASONING_CLOSE in roles and (self._edge or sure or self._owes_close):
                return Role.REASONING_CLOSE
        if Role.TURN_END in roles:
            return Role.TURN_END
        if Role.STRAY in roles or Role.ANSWER_CLOSE in roles:
            return Role.STRAY if sure or (self._edge and self._region != "reasoning" and not self._fresh) else None
        return None

    def _may_open(self, entry: Entry, sure: bool) -> bool:
        if entry.first_only:
            return self._fresh
        return self._edge or sure

    def _names_a_call(self, entry: Entry, hit: re.Match[str]) -> bool:
        if not entry.known_name or (entry.loose and self._after_call):
            return True
        name = self._captured(hit, "name")
        return not name or name in self.writer.tools.names

    def _is_header(self, entry: Entry, hit: re.Match[str]) -> bool:
        messages = self._grammar.dialect.messages
        assert messages is not None
        if entry.first_only and not self._edge:
            return False
        if not messages.known_names:
            return True
        route, name = self._route(hit)
        return route is None or route.to != "call" or name in self.writer.tools.names

    @staticmethod
    def _captured(hit: re.Match[str], group: str) -> str:
        assert hit.lastgroup is not None
        return str(hit.groupdict().get(group + hit.lastgroup[1:]) or "")

    def _act(self, role: Role, entry: Entry, hit: re.Match[str]) -> None:
        match role:
            case Role.CALL:
                assert entry.call is not None
                self._mark()
                self._open_call(entry.call, hit)
            case Role.HEADER:
                self._enter("content")
                self._open_message(hit)
            case Role.REASONING_OPEN:
                self._enter("reasoning")
            case Role.REASONING_CLOSE:
                self._owes_close = False
                self._enter("content")
            case Role.MESSAGE_END:
                self._answer_open = False
                self._enter("content")
                self._between_messages = True
            case Role.ANSWER_OPEN:
                self._enter("content")
                self._answer_open = True
            case Role.ANSWER_CLOSE:
                self._answer_open = False
                self._mark()
            case Role.TURN_END:
                blank = self._blank
                self._mark()
                if not (self._forced or self._prompt or self._fresh):
                    self._ended = blank + hit[0]
                    self._blank = ""
            case Role.STRAY:
                self._mark()

    def _mark(self) -> None:
        """A marker was read: what follows is at its edge."""
        if self._region == "reasoning":
            self._blank = ""
        self._ended = ""
        self._mute = 0
        self._between_messages = False
        self._edge = True
        self._fresh = False
        self._table = self._choose_table()

    def _enter(self, region: Region) -> None:
        if region != self._region:
            if self._region == "content":
                self._content_blank, self._blank = self._blank, ""
            elif region == "content":
                self._blank, self._content_blank = self._content_blank, ""
            self._region = region
        self._mark()

    # -- calls -----------------------------------------------------------------------------------------------------

    def _open_call(self, compiled: CompiledCall, hit: re.Match[str]) -> None:
        name, wire_id = compiled.call.name or self._captured(hit, "name"), self._captured(hit, "id")
        if not name and wire_id:
            name = resolve_counted_name(wire_id, self.writer.tools.names)
            if not name:
                self._try(CounterReader(compiled, self.writer, wire_id), hit)
                return
            wire_id = wire_id if _COUNTED.fullmatch(wire_id) else ""
        if not name:
            self._try(make_reader(compiled, compiled.body, self.writer), hit)
            return
        self._begin(compiled, name, wire_id)

    def _begin(self, compiled: CompiledCall, name: str, wire_id: str = "") -> None:
        self._settle()
        self.writer.begin(name, wire_id)
        self._body = make_reader(compiled, compiled.body, self.writer)

    def _try(self, body: BodyReader, hit: re.Match[str]) -> None:
        self._body = body
        self._trial = [hit[0]]

    def _settle(self) -> None:
        """It is a call: wherever it stood, the reasoning is over."""
        self._trial = None
        if self._region == "reasoning":
            self._owes_close = True
            self._enter("content")
        self._mark()

    def _open_message(self, hit: re.Match[str]) -> None:
        route, name = self._route(hit)
        if route is None:
            return
        if route.to != "call":
            self._enter(route.to)
        elif self._calls_allowed and self._grammar.message_call is not None:
            self._begin(self._grammar.message_call, name)

    def _route(self, hit: re.Match[str]) -> tuple[Route | None, str]:
        messages = self._grammar.dialect.messages
        assert messages is not None
        header = self._captured(hit, "header")
        for route in messages.routes:
            found = re.search(route.header, header)
            if found:
                return route, found.groupdict().get("name") or ""
        return None, ""

    def _read_body(self, body: BodyReader) -> bool:
        start = self._pos
        self._pos = body.feed(self._text, start)
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
        self._mark()
        self._after_call = True
        if body.leftover:
            self._text, self._pos = body.leftover + self._text[self._pos :], 0

    def _reject(self, text: str) -> None:
        """No call: its first character is text, and the rest is read again."""
        self._body = self._trial = None
        self._text, self._pos = text, 1
        self._say(text[0])

    def _end_body(self, body: BodyReader, natural: bool) -> None:
        held, self._held = self._held, ""
        trial = self._trial
        body.end(held, 0, natural)
        if body.status is Status.REJECTED:
            self._body = self._trial = None
            raw = "".join(trial or ()) + held
            if natural or not body.compiled.call.opens:
                self._say(raw[0])
                self._held = raw[1:]
            return
        if trial is not None:
            self._settle()
        self._body = None
        self._mark()

    # -- text ------------------------------------------------------------------------------------------------------

    def _say(self, text: str) -> None:
        """Text of the region: out it goes, but for blanks at its end, which may belong to a marker."""
        if not text:
            return
        if self._keep_edges:
            self._say_all(text)
            return
        solid = text.rstrip()
        if not solid:
            self._blank += text
            return

        lead = self._ended + self._blank
        if self._edge:
            bare = solid.lstrip()
            lead += solid[: len(solid) - len(bare)]
            solid = bare
            told = self._content_said and self._region == "content"
            if not (self._fresh or told or self._ended):
                lead = ""
        self._blank = text[len(text.rstrip()) :]
        self._ended = ""
        self._emit(lead + solid)
        self._leave_edge()

    def _say_all(self, text: str) -> None:
        if self._edge and text.isspace() and (self._region == "calls" or self._between_messages):
            return
        self._emit(self._ended + text)
        self._ended = ""
        self._leave_edge()

    def _leave_edge(self) -> None:
        self._after_call = False
        if self._edge:
            self._edge = self._fresh = False
            self._table = self._choose_table()

    def _emit(self, text: str) -> None:
        if self._prompt:
            return
        if self._mute:
            text, self._mute = text[self._mute :], max(0, self._mute - len(text))
            if not text:
                return
        if self._region == "reasoning":
            self.writer.out.append(ReasoningDelta(text))
        elif self._region != "discard":
            self._content_said = True
            self.writer.out.append(ContentDelta(text))
