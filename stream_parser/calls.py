"""The bookkeeping of tool calls: indexes, ids, and the Start, Delta and End events of one call after another.

Knows nothing of dialects or markup; whoever reads a body tells it names and JSON text. Events are appended to `out`,
a list that its owner empties after every piece of input. A call's text is kept until its end, which repeats it.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Collection
from dataclasses import replace

from stream_parser import schema
from stream_parser.dialect import IdShape
from stream_parser.events import Event, Outcome, ToolCallDelta, ToolCallEnd, ToolCallStart

IdSource = Callable[[], str]

_ALNUM = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_COUNT = re.compile(r"[:_-]?\d+\Z")
_COUNTED_ID = re.compile(r"^(?:functions[._])?(?P<name>.*?)(?:[:_-]?(?P<count>\d+))?$", re.DOTALL)


def random_id(shape: IdShape) -> str:
    if shape == "alnum9":
        return "".join(secrets.choice(_ALNUM) for _ in range(9))
    return "call_" + secrets.token_hex(12)


class CallWriter:
    """Writes one call at a time: `begin`, any number of `write`s, `end`.

    `id_source` mints ids for calls that have none on the wire; ids are unique within the message.
    """

    __slots__ = ("_id_source", "_ids", "_out", "_pieces", "_reasons", "_shape", "index", "tool", "tools")

    def __init__(
        self,
        tools: schema.ToolIndex,
        out: list[Event],
        shape: IdShape = "call",
        id_source: IdSource | None = None,
    ) -> None:
        self.tools = tools
        self.tool: schema.ToolSchema | None = None
        self.index = -1
        self._out = out
        self._pieces: list[str] | None = None
        self._reasons: list[str] = []
        self._ids: set[str] = set()
        self._shape: IdShape = shape
        self._id_source = id_source

    @property
    def is_open(self) -> bool:
        return self._pieces is not None

    def begin(self, name: str, wire_id: str = "") -> None:
        assert self._pieces is None, "the call before is still open"
        self.index += 1
        self.tool = self.tools.get(name)
        self._pieces = []
        self._reasons = []
        self._out.append(ToolCallStart(self.index, self._unique_id(name, wire_id), name))

    def write(self, arguments: str) -> None:
        """Append JSON text to the open call. O(len(arguments))."""
        assert self._pieces is not None, "no call is open"
        if arguments:
            self._pieces.append(arguments)
            self._out.append(ToolCallDelta(self.index, arguments))

    def note(self, *reasons: str) -> None:
        """Record why what was written differs from what the model wrote."""
        self._reasons += (reason for reason in reasons if reason not in self._reasons)

    def end(self) -> None:
        """The call is whole: validate it, write what is missing, and close it."""
        assert self._pieces is not None, "no call is open"
        if not self._pieces:
            self.write("{}")
        streamed = "".join(self._pieces)
        arguments, outcome, reason = schema.check(self.tool, streamed, streamed)
        self.write(arguments[len(streamed) :])
        reasons = [*self._reasons, reason] if reason else self._reasons
        if outcome == "ok" and reasons:
            outcome = "repaired"
        self._close(arguments, outcome, ",".join(reasons))

    def cut(self, reason: str) -> None:
        """Input ended inside the call: close it as it stands."""
        assert self._pieces is not None, "no call is open"
        self._close("".join(self._pieces), "truncated", reason)

    def forget_closed(self) -> None:
        """Start counting anew, as after a prompt whose calls are history; a call that is open stays, as the first."""
        kept: list[Event] = []
        if self._pieces is not None:
            start = max(i for i, event in enumerate(self._out) if isinstance(event, ToolCallStart))
            kept = [replace(e, index=0) for e in self._out[start:] if isinstance(e, ToolCallStart | ToolCallDelta)]
        self._out[:] = kept
        self.index = 0 if kept else -1

    def _close(self, arguments: str, outcome: Outcome, reason: str) -> None:
        self._out.append(ToolCallEnd(self.index, arguments, outcome, reason))
        self._pieces = None
        self.tool = None

    def _unique_id(self, name: str, wire_id: str) -> str:
        call_id = wire_id
        if not call_id and self._shape in ("functions_counter", "name_counter"):
            prefix = "functions." if self._shape == "functions_counter" else ""
            number = self.index if prefix else self.index + 1
            call_id = f"{prefix}{name}:{number}"
        if not call_id or call_id in self._ids:
            call_id = self._mint(call_id)
        self._ids.add(call_id)
        return call_id

    def _mint(self, taken: str) -> str:
        number = 2
        while True:
            if taken:
                call_id, number = f"{taken}-{number}", number + 1
            else:
                call_id = self._id_source() if self._id_source else random_id(self._shape)
            if call_id not in self._ids:
                return call_id
            if not taken:
                taken = call_id  # an id source that repeats itself must not hang us


def resolve_counted_name(wire: str, names: Collection[str]) -> str:
    """The tool's name in an id such as `functions.read_file:3` or `functions_read_file_3`; "" for a bare counter.

    Declared names decide where the separators are ambiguous.
    """
    for candidate in (wire, _COUNT.sub("", wire), wire.removeprefix("functions.")):
        if candidate in names:
            return candidate
    match = _COUNTED_ID.match(wire)
    assert match is not None
    name = match["name"]
    body = re.sub(r"^functions[._]", "", wire)
    for candidate in (name, name.rstrip("_:-"), body):
        if candidate in names:
            return candidate
    head, colon, count = body.rpartition(":")
    return head if colon and count.isdigit() else "" if body.isdigit() else body
