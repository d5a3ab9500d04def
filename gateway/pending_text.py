"""Deltas of one kind that wait for their reader, kept as pieces: merging n of them is O(n), and so is taking them out
in parts. Knows nothing of who waits for what."""

from __future__ import annotations

from collections import deque

from gateway.types import TokenLogprob, TurnEvent, TurnText
from stream_parser.events import ContentDelta, ReasoningDelta, ToolCallDelta

MergeKey = tuple[object, ...]


def merge_key(item: TurnEvent | TurnText) -> MergeKey | None:
    """Items with equal keys may merge; None never does."""
    if isinstance(item, TurnText):
        return (TurnText, item.choice) if item.finish_reason is None else None
    event = item.event
    if isinstance(event, (ContentDelta, ReasoningDelta)):
        return (type(event), item.choice)
    if isinstance(event, ToolCallDelta):
        return (ToolCallDelta, item.choice, event.index)
    return None


def text_of(item: TurnEvent | TurnText) -> str:
    if isinstance(item, TurnText):
        return item.text
    event = item.event
    if isinstance(event, (ContentDelta, ReasoningDelta)):
        return event.text
    return event.arguments if isinstance(event, ToolCallDelta) else ""


class PendingText:
    """`first` names the kind; its own text is not part of it until added."""

    __slots__ = ("_first", "_key", "_logprobs", "_num_taken", "_pieces", "num_chars")

    def __init__(self, first: TurnEvent | TurnText) -> None:
        self._first = first
        self._key = merge_key(first)
        self._pieces: deque[str] = deque()
        self._num_taken = 0  # characters of the first piece that are out already
        self._logprobs: list[TokenLogprob] = []
        self.num_chars = 0

    @property
    def call_index(self) -> int | None:
        """Which call these arguments belong to; None for other text."""
        match self._first:
            case TurnEvent(event=ToolCallDelta(index=index)):
                return index
        return None

    def takes(self, item: TurnEvent | TurnText) -> bool:
        return merge_key(item) == self._key

    def add(self, item: TurnEvent | TurnText) -> None:
        text = text_of(item)
        self._pieces.append(text)
        self.num_chars += len(text)
        self._logprobs.extend(item.logprobs)

    def take_all(self) -> TurnEvent | TurnText:
        return self._item(self._cut(self.num_chars))

    def take(self, num_chars: int) -> TurnEvent | TurnText:
        """The first `num_chars` characters, of more."""
        assert 0 < num_chars < self.num_chars
        return self._item(self._cut(num_chars))

    def _cut(self, num_chars: int) -> str:
        self.num_chars -= num_chars
        parts: list[str] = []
        while num_chars:
            piece = self._pieces[0]
            num_left = len(piece) - self._num_taken
            if num_left > num_chars:
                parts.append(piece[self._num_taken : self._num_taken + num_chars])
                self._num_taken += num_chars
                break
            parts.append(piece[self._num_taken :])
            num_chars -= num_left
            self._pieces.popleft()
            self._num_taken = 0
        return "".join(parts)

    def _item(self, text: str) -> TurnEvent | TurnText:
        logprobs = tuple(self._logprobs)
        self._logprobs.clear()
        match self._first:
            case TurnText(choice=choice):
                return TurnText(choice, text, None, logprobs)
            case TurnEvent(choice=choice, event=ToolCallDelta(index=index)):
                return TurnEvent(choice, ToolCallDelta(index, text), logprobs)
            case TurnEvent(choice=choice, event=event):
                assert isinstance(event, (ContentDelta, ReasoningDelta))
                return TurnEvent(choice, type(event)(text), logprobs)
