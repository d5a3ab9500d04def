"""The Server-Sent Events of POST /v1/chat/completions, read as events; knows nothing of HTTP clients.

Framing: WHATWG HTML, section 9.2 "Server-sent events" (only `data` matters here). Chunks: OpenAI's chat completion
chunk. Two things the chunks do not say are worked out here: a call ends where the next call, text or the finish
begins, and its outcome is judged by whether its text is a JSON object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from headrace.errors import ProtocolError, api_error
from headrace.events import (
    ContentDelta,
    Event,
    FinishReason,
    Outcome,
    ReasoningDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    TurnDone,
    TurnStarted,
    Usage,
)
from headrace.wire_fields import finish_reason, usage

PATH = "/v1/chat/completions"
DONE = "[DONE]"

_LINE_END = re.compile(rb"\r\n|\n|\r")


class SSEData:
    """Splits an event stream's bytes to the `data` of its events. Each `feed` is O(len(piece)), amortised."""

    def __init__(self) -> None:
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._after_cr = False

    def feed(self, piece: bytes) -> Iterator[str]:
        """The data of the events that `piece` completed."""
        # Lines end at CR, LF or CRLF and nowhere else: a U+2028 within a JSON string is no line's end.
        if self._after_cr and piece.startswith(b"\n"):
            piece = piece[1:]
        if not piece:
            return
        self._after_cr = piece.endswith(b"\r")
        first, *others = _LINE_END.split(piece)
        self._line.append(first)
        for start_of_next in others:
            yield from self._end_line(b"".join(self._line))
            self._line = [start_of_next]

    def _end_line(self, line: bytes) -> Iterator[str]:
        if line:
            name, _, value = line.partition(b":")
            if name == b"data":
                self._data.append(value.removeprefix(b" "))
        elif self._data:
            data, self._data = self._data, []
            yield b"\n".join(data).decode("utf-8", "replace")


class ChatChunkDecoder:
    """One turn's chunks to events. `TurnDone` comes from `finish`, for usage follows the finish reason."""

    def __init__(self) -> None:
        self._started = False
        self._open_call: _OpenCall | None = None
        self._num_calls = 0
        self._finish_reason: FinishReason | None = None
        self._usage: Usage | None = None

    @property
    def has_finish_reason(self) -> bool:
        return self._finish_reason is not None

    def feed(self, data: str) -> Iterator[Event]:
        """Events of one chunk. Raises APIError for an error chunk, ProtocolError for what is no chunk."""
        try:
            chunk = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"a chunk is no JSON: {error}") from error
        if not isinstance(chunk, dict):
            raise ProtocolError("a chunk is no JSON object")
        if chunk.get("error") is not None:
            raise api_error(chunk["error"])

        if not self._started:
            self._started = True
            created = chunk.get("created")
            created_s = created if isinstance(created, int) else 0
            yield TurnStarted(str(chunk.get("id", "")), str(chunk.get("model", "")), created_s)
        self._usage = usage(chunk.get("usage")) or self._usage
        for choice in _objects(chunk.get("choices")):
            if choice.get("index", 0) == 0:
                yield from self._choice(choice)

    def finish(self, reason: FinishReason | None = None) -> Iterator[Event]:
        """The last events, for the finish reason that was read or for the given one."""
        reason = reason or self._finish_reason
        assert reason is not None
        yield from self._end_call(cut=reason in ("length", "cancelled"))
        yield TurnDone(reason, self._usage)

    def _choice(self, choice: Mapping[str, object]) -> Iterator[Event]:
        delta = choice.get("delta")
        if isinstance(delta, Mapping):
            if reasoning := delta.get("reasoning_content") or delta.get("reasoning"):
                yield from self._end_call(cut=False)
                yield ReasoningDelta(str(reasoning))
            if content := delta.get("content"):
                yield from self._end_call(cut=False)
                yield ContentDelta(str(content))
            for piece in _objects(delta.get("tool_calls")):
                yield from self._tool_call(piece)
        if choice.get("finish_reason") is not None:
            self._finish_reason = finish_reason(choice["finish_reason"])
            yield from self._end_call(cut=self._finish_reason in ("length", "cancelled"))

    def _tool_call(self, piece: Mapping[str, object]) -> Iterator[Event]:
        function = piece.get("function")
        function = function if isinstance(function, Mapping) else {}
        position = piece.get("index")
        if self._open_call is None or self._open_call.position != position:
            call_id, name = piece.get("id"), function.get("name")
            if not isinstance(call_id, str) or not isinstance(name, str):
                raise ProtocolError(f"tool call {position!r} goes on after its end, or begins without id and name")
            yield from self._end_call(cut=False)
            self._open_call = _OpenCall(position, self._num_calls)
            yield ToolCallStart(self._num_calls, call_id, name)
            self._num_calls += 1
        if arguments := function.get("arguments"):
            self._open_call.pieces.append(str(arguments))
            yield ToolCallDelta(self._open_call.index, str(arguments))

    def _end_call(self, *, cut: bool) -> Iterator[Event]:
        if self._open_call is None:
            return
        arguments, index = "".join(self._open_call.pieces), self._open_call.index
        self._open_call = None
        outcome, reason = _judge(arguments, cut=cut)
        yield ToolCallEnd(index, arguments, outcome, reason)


class _OpenCall:
    def __init__(self, position: object, index: int) -> None:
        self.position = position
        self.index = index
        self.pieces: list[str] = []


def _judge(arguments: str, *, cut: bool) -> tuple[Outcome, str | None]:
    try:
        if isinstance(json.loads(arguments), dict):
            return "ok", None
        problem = "the arguments are no JSON object"
    except (ValueError, RecursionError) as error:
        problem = f"the arguments are no JSON: {error}"
    return ("truncated", "the turn was cut within the call") if cut else ("invalid", problem)


def _objects(value: object) -> Iterator[Mapping[str, object]]:
    if isinstance(value, Sequence):
        yield from (item for item in value if isinstance(item, Mapping))
