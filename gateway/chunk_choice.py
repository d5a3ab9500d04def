"""One answer that comes as an upstream's chunks: repaired by the normalizer, and on as turn items like any other.

The upstream has applied stop strings and limits itself; what it may not have kept is the end after one call. Knows
nothing of HTTP.
"""

from __future__ import annotations

from typing import assert_never

from gateway.choice import Choice
from gateway.errors import GatewayError
from gateway.pieces import ChunkPiece, ChunksEnd
from gateway.types import Prepared, TokenLogprob, TurnEvent
from stream_parser import UpstreamNormalizer
from stream_parser.events import Event, Finish, ToolCallDelta, ToolCallEnd, ToolCallStart

# Nobody here has cancelled a turn whose upstream says that it is.
_FAILED = (Finish("error"), Finish("cancelled"))


class ChunkChoice(Choice):
    """Feed pieces until `is_finished`, or `cancel`. failure: set when the answer ended by no rule of its own; there is
    no Finish then. upstream_index: the upstream's number for this choice."""

    def __init__(self, prepared: Prepared, upstream_index: int, index: int, *, stops_after_call: bool) -> None:
        super().__init__(index)
        assert prepared.chunks is not None
        tools = [dict(tool) for tool in prepared.tools]
        self._normalizer = UpstreamNormalizer(tools, prepared.chunks.content_dialect, choice=upstream_index)
        self._stops_after_call = stops_after_call
        self._has_whole_call = False
        self._has_second_call = False
        self._logprobs: tuple[TokenLogprob, ...] = ()
        self._stop: str | None = None
        self.failure: GatewayError | None = None

    def feed(self, piece: ChunkPiece | ChunksEnd) -> list[TurnEvent]:
        match piece:
            case ChunkPiece(num_tokens=num_tokens):
                self.num_tokens += num_tokens
                self._stop = piece.stop or self._stop
                self._logprobs += piece.logprobs
                events = self._normalizer.feed(piece.chunk)
                self.count(num_tokens, events)
            case ChunksEnd():
                events = self._normalizer.finish(piece.is_done)
                self.is_finished = True
            case _:
                assert_never(piece)
        if self._stops_after_call:
            events = self._until_first_call(events)
        if isinstance(piece, ChunksEnd) and events[-1] in _FAILED:
            self.failure = piece.failure
            events.pop()
        return self._items(events)

    def cancel(self) -> list[TurnEvent]:
        self.is_finished = True
        *events, _ = self._normalizer.finish(done=False)
        return self._items([*events, Finish("cancelled")])

    def _until_first_call(self, events: list[Event]) -> list[Event]:
        """What follows the call is left out, but waited for: behind it the upstream says what the turn has cost. A
        second call is not: it would be paid for in vain."""
        kept: list[Event] = []
        for event in events:
            if isinstance(event, Finish):
                kept.append(Finish("tool_calls") if self._has_whole_call else event)
            elif isinstance(event, (ToolCallStart, ToolCallDelta, ToolCallEnd)) and event.index > 0:
                self._has_second_call = True
            elif not self._has_whole_call:
                kept.append(event)
                self._has_whole_call = isinstance(event, ToolCallEnd) and event.outcome != "truncated"
        if self._has_whole_call and self._has_second_call and not self.is_finished:
            self.is_finished = True
            kept.append(Finish("tool_calls"))
        return kept

    def _items(self, events: list[Event]) -> list[TurnEvent]:
        """Log-probabilities go with the first event that their tokens gave, or wait for one."""
        if not events:
            return []
        items = [TurnEvent(self.index, event) for event in events]
        if self._logprobs:
            items[0] = TurnEvent(self.index, events[0], self._logprobs)
            self._logprobs = ()
        if self._stop is not None and isinstance(events[-1], Finish):
            items[-1] = TurnEvent(self.index, events[-1], items[-1].logprobs, self._stop)
        return items
