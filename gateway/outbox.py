"""The bounded buffer between the task that generates a turn and the one that writes it.

A reader that keeps up gets every item by itself. For one that does not, deltas that follow each other merge, and past
the bound `wait_for_room` holds the turn up: no other turn is slowed. Used from one event loop; one writer, one reader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.types import TokenLogprob, TurnDone, TurnEvent, TurnFailed, TurnItem, TurnText
from stream_parser.events import ContentDelta, ReasoningDelta, ToolCallDelta

# Above what an engine gives at once when it reports several steps together: those are no sign of a slow reader.
_MERGE_AFTER_ITEMS = 64
_ITEM_COST_CHARS = 64


class _Merged:
    """Adjacent deltas of one kind, kept as pieces so that merging n of them is O(n)."""

    __slots__ = ("_first", "_key", "_logprobs", "_parts")

    def __init__(self, item: TurnEvent | TurnText) -> None:
        self._first = item
        self._key = _merge_key(item)
        self._parts: list[str] = []
        self._logprobs: list[TokenLogprob] = []

    def takes(self, item: TurnEvent | TurnText) -> bool:
        return _merge_key(item) == self._key

    def add(self, item: TurnEvent | TurnText) -> None:
        self._parts.append(_text_of(item))
        self._logprobs.extend(item.logprobs)

    def item(self) -> TurnItem:
        text, logprobs = "".join(self._parts), tuple(self._logprobs)
        match self._first:
            case TurnText(choice=choice):
                return TurnText(choice, text, None, logprobs)
            case TurnEvent(choice=choice, event=ToolCallDelta(index=index)):
                return TurnEvent(choice, ToolCallDelta(index, text), logprobs)
            case TurnEvent(choice=choice, event=event):
                assert isinstance(event, (ContentDelta, ReasoningDelta))
                return TurnEvent(choice, type(event)(text), logprobs)


def _merge_key(item: TurnEvent | TurnText) -> tuple[object, ...] | None:
    """Items with equal keys may merge; None never does."""
    if isinstance(item, TurnText):
        return (TurnText, item.choice) if item.finish_reason is None else None
    event = item.event
    if isinstance(event, (ContentDelta, ReasoningDelta)):
        return (type(event), item.choice)
    if isinstance(event, ToolCallDelta):
        return (ToolCallDelta, item.choice, event.index)
    return None


def _text_of(item: TurnEvent | TurnText) -> str:
    if isinstance(item, TurnText):
        return item.text
    event = item.event
    if isinstance(event, (ContentDelta, ReasoningDelta)):
        return event.text
    return event.arguments if isinstance(event, ToolCallDelta) else ""


class Outbox:
    """`on_ready` is called (synchronously) when the empty outbox gets an item: the reader then takes everything."""

    def __init__(self, max_pending_chars: int, on_ready: Callable[[], object]) -> None:
        self._max_pending_chars = max_pending_chars
        self._on_ready = on_ready
        self._items: list[TurnItem | _Merged] = []
        self._num_chars = 0
        self._room = asyncio.Event()
        self._room.set()
        self.is_closed = False

    @property
    def is_full(self) -> bool:
        return self._num_chars > self._max_pending_chars

    def put(self, item: TurnItem) -> None:
        """Never blocks. After the turn's last item (TurnDone, TurnFailed) nothing more is taken."""
        assert not self.is_closed
        was_empty = not self._items
        if isinstance(item, (TurnEvent, TurnText)):
            self._num_chars += len(_text_of(item))
            self._append_or_merge(item)
        else:
            self._append(item)
            self.is_closed = isinstance(item, (TurnDone, TurnFailed))
        if self.is_full:
            self._room.clear()
        if was_empty:
            self._on_ready()

    def _append(self, item: TurnItem | _Merged) -> None:
        self._items.append(item)
        self._num_chars += _ITEM_COST_CHARS

    def _append_or_merge(self, item: TurnEvent | TurnText) -> None:
        if len(self._items) < _MERGE_AFTER_ITEMS or _merge_key(item) is None:
            self._append(item)
            return
        last = self._items[-1]
        if not (isinstance(last, _Merged) and last.takes(item)):
            last = _Merged(item)
            self._append(last)
        last.add(item)

    def take(self) -> list[TurnItem]:
        """Everything that waits, in order."""
        items = [item.item() if isinstance(item, _Merged) else item for item in self._items]
        self._items = []
        self._num_chars = 0
        self._room.set()
        return items

    async def wait_for_room(self, timeout_s: float) -> None:
        """Returns when the reader has taken what waited. Raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            await self._room.wait()
