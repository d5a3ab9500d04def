"""One call as an upstream sends it: its name in pieces or copies, its arguments in fragments, snapshots or both.

The rules for arguments: text that begins with all text so far replaces it; a whole object equal to the one already
there is a copy; `{}` in front of another opening brace was a placeholder; all else is appended.
"""

from __future__ import annotations

import re

from stream_parser import repair
from stream_parser.events import Outcome
from stream_parser.json_scanner import JsonScanner
from stream_parser.json_value import JsonError, Value, parse
from stream_parser.schema import ToolIndex, ToolSchema, check

# Arguments so far that may turn out to be a placeholder for the real ones.
_PLACEHOLDER = re.compile(r"\s*(?:null|\{\s*\}?)?\s*")
_EMPTY_OBJECT = re.compile(r"\s*(?:null|\{\s*\})\s*")


class UpstreamCall:
    """Collects what comes. Once it is started, `take` gives the argument text that is certain.

    `twin`: an earlier call with the same id, of which this one may be a copy.
    """

    def __init__(self, tools: ToolIndex, call_id: str, twin: UpstreamCall | None) -> None:
        self.id = call_id
        self.name = ""
        self.twin = twin
        self.event_index = -1  # not started
        self.is_cumulative = False
        self.is_ended = False
        self._tools = tools
        self._tool: ToolSchema | None = None
        self._pieces: list[str] = []
        self._num_chars = 0
        self._has_text = False
        self._waits = True  # arguments so far may be a placeholder
        self._scanner = JsonScanner(expect="any")
        self._value: Value = None  # decoded once the arguments are whole
        self._written: list[str] = []
        self._reasons: list[str] = []

    @property
    def is_started(self) -> bool:
        return self.event_index >= 0

    @property
    def is_whole(self) -> bool:
        """The arguments are a closed value, or `{}` and at the end."""
        return self._scanner.done or (self._waits and _EMPTY_OBJECT.fullmatch(self.text) is not None)

    @property
    def is_settled(self) -> bool:
        """The arguments are whole, and no placeholder."""
        return self._scanner.done and not self._waits

    @property
    def requires_arguments(self) -> bool:
        tool = self._tools.get(self.name)
        return tool is not None and bool(tool.required)

    @property
    def has_arguments(self) -> bool:
        """Something but white space has come."""
        return self._has_text

    @property
    def text(self) -> str:
        """All argument text so far. O(its length) after an addition, else O(1)."""
        if len(self._pieces) > 1:
            self._pieces[:] = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    @property
    def value(self) -> Value:
        """The arguments decoded. Raises JsonError where they are no JSON (yet)."""
        if self._value is None:
            self._value = parse(self.text or "{}")
        return self._value

    def is_copy_of(self, other: UpstreamCall) -> bool:
        if self.name != other.name:
            return False
        try:
            return self.text == other.text or self.value == other.value
        except JsonError:
            return False

    def add_name(self, name: str) -> None:
        """A piece of the name, a copy of it, or the name so far."""
        name = name.strip()
        if self.is_started or not name or (name == self.name and self.name + name not in self._tools.names):
            return
        if name.startswith(self.name) and name != self.name and self.name + name not in self._tools.names:
            self.name = name
        elif self.name not in self._tools.names or self.name + name in self._tools.names:
            self.name += name
        bare = self.name.removeprefix("functions.")
        if self.name not in self._tools.names and bare in self._tools.names:
            self.name = bare

    def name_is_certain(self) -> bool:
        """Declared, and not the beginning of another declared one."""
        names = self._tools.names
        return self.name in names and not any(other != self.name and other.startswith(self.name) for other in names)

    def name_it(self, name: str) -> None:
        """The upstream never said the name."""
        self.name = name
        self._note(repair.NAME_FROM_ARGUMENTS)

    def would_resend(self, text: str) -> bool:
        """Is `text`, behind whole arguments, those arguments once more?"""
        return self._is_copy(text) or self._is_snapshot(text)

    def add_arguments(self, text: str, is_object: bool) -> None:
        if not text or self.is_ended:
            return
        if is_object:
            self._note(repair.OBJECT_ARGUMENTS)
        if self._is_copy(text):
            self._note(repair.RESENT_ARGUMENTS)
            return
        if self._is_snapshot(text):
            self._note(repair.RESENT_ARGUMENTS)
            self.is_cumulative = True
            text = text[self._num_chars :]
        elif self._waits and self.has_arguments and text.lstrip().startswith("{") and _is_placeholder(self.text):
            self._pieces.clear()
            self._num_chars = 0
        self._append(text)

    def start(self, event_index: int) -> None:
        """The name is whole: what came so far is read again with the tool's schema at hand."""
        self.event_index = event_index
        self._tool = self._tools.get(self.name)
        self._scanner = JsonScanner(types=self._tool.types if self._tool else None)
        self._feed("" if self._waits else self.text)

    def take(self) -> str:
        """The certain argument text of a started call since the last time."""
        text = self._scanner.take()
        if text:
            self._written.append(text)
        return text

    def finish(self) -> tuple[str, str, Outcome, str]:
        """No more comes, and the call is whole: the rest of its text, all of it, the outcome, the reasons."""
        if not self._scanner.done:
            self._feed(self.text if self._waits else "")
            self._scanner.end(complete=True)
        rest = self.take()
        written = "".join(self._written)
        arguments, outcome, reason = check(self._tool, written, written)
        self.is_ended = True
        reasons = [*self._reasons, *self._visible_reasons(), *([reason] if reason else [])]
        if outcome == "ok" and reasons:
            outcome = "repaired"
        return rest, arguments, outcome, ",".join(reasons)

    def cut(self) -> tuple[str, str, Outcome, str]:
        """The stream ended inside the call: what there is, as it is."""
        if self._waits:
            self._feed(self.text)
        self._scanner.end(complete=False)
        rest = self.take()
        self.is_ended = True
        return rest, "".join(self._written), "truncated", repair.CUT

    def _append(self, text: str) -> None:
        self._value = None
        self._pieces.append(text)
        self._num_chars += len(text)
        self._has_text = self._has_text or not text.isspace()
        if not self._waits:
            self._feed(text)
        elif not _PLACEHOLDER.fullmatch(self.text):
            self._waits = False
            self._feed(self.text)

    def _feed(self, text: str) -> None:
        if text and not self._scanner.done:
            self._scanner.feed(text)

    def _is_copy(self, text: str) -> bool:
        """The whole object once more."""
        if not self.is_whole or not text.lstrip().startswith("{") or not text.rstrip().endswith("}"):
            return False
        try:
            return parse(text) == self.value
        except JsonError:
            return False

    def _is_snapshot(self, text: str) -> bool:
        so_far = self.text if len(text) >= self._num_chars else ""
        return so_far.lstrip().startswith("{") and text.startswith(so_far)

    def _visible_reasons(self) -> list[str]:
        """An empty argument text is how a call without arguments looks; it needs no repair."""
        return [reason for reason in self._scanner.reasons if self.has_arguments or reason != repair.EMPTY_ARGUMENTS]

    def _note(self, reason: str) -> None:
        if reason not in self._reasons:
            self._reasons.append(reason)


def _is_placeholder(text: str) -> bool:
    return _EMPTY_OBJECT.fullmatch(text) is not None
