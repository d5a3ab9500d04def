"""The bounded buffer between the task that generates a turn and the one that writes it.

A reader that keeps up gets every item by itself. For one that does not, deltas that follow each other merge, and past
the bound `wait_for_room` holds the turn up: no other turn is slowed. A reader may also give credit in characters of
delta text, and then gets no more than that. Used from one event loop; one writer, one reader.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import cast

from gateway.errors import GatewayError
from gateway.pending_text import PendingText, merge_key, text_of
from gateway.types import TurnDone, TurnEvent, TurnFailed, TurnItem, TurnText
from stream_parser.events import ContentDelta, Finish, ToolCallEnd, ToolCallStart

# Above what an engine gives at once when it reports several steps together: those are no sign of a slow reader.
_MERGE_AFTER_ITEMS = 64
_ITEM_COST_CHARS = 64


class Outbox:
    """`on_ready` is called (synchronously) when the empty outbox gets an item, and when what waited for credit may go:
    the reader then takes what it can. credit_chars None = as much as there is.

    TurnFailed waits for no credit: what does is dropped, as the turn's text is not whole anyway.
    """

    def __init__(self, max_pending_chars: int, on_ready: Callable[[], object], credit_chars: int | None = None) -> None:
        self._max_pending_chars = max_pending_chars
        self._on_ready = on_ready
        self._credit_chars = credit_chars
        self._items: deque[TurnItem | PendingText] = deque()
        self._num_chars = 0
        self._room = asyncio.Event()
        self._room.set()
        self._wait: asyncio.Timeout | None = None
        self._patience_s = 0.0
        self._is_unread = False
        self._cut: _CutCalls | None = None
        # Nothing has merged, nothing is full, and no credit counts.
        self._is_plain = credit_chars is None
        self.is_closed = False

    @property
    def is_full(self) -> bool:
        return self._num_chars > self._max_pending_chars

    @property
    def is_empty(self) -> bool:
        """After a `take`: whether nothing waits for credit."""
        return not self._items

    def put(self, item: TurnItem) -> None:
        """Never blocks. After the turn's last item (TurnDone, TurnFailed) nothing more is taken."""
        assert not self.is_closed
        items = self._items
        if type(item) is TurnEvent and type(item.event) is ContentDelta and self._is_plain:
            # What comes once a token, for a reader that keeps up.
            items.append(item)
            self._num_chars += _ITEM_COST_CHARS + len(item.event.text)
            if len(items) == 1:
                self._on_ready()
            if len(items) >= _MERGE_AFTER_ITEMS or self._num_chars > self._max_pending_chars:
                self._leave_plain()
            return
        was_empty = not items
        if self._cut is not None:
            kept = self._cut.keep(item)
            if kept is None:
                return
            item = kept
        if isinstance(item, (TurnEvent, TurnText)):
            self._append_or_merge(item)
        else:
            if isinstance(item, TurnFailed) and self._credit_chars is not None:
                self._drop_starved()
            self._append(item, 0)
            self.is_closed = isinstance(item, (TurnDone, TurnFailed))
        self._leave_plain()
        if was_empty or self.is_closed:
            self._on_ready()

    def _leave_plain(self) -> None:
        self._is_plain = False
        if self.is_full:
            self._room.clear()

    def grant(self, num_chars: int) -> None:
        """More credit. Without effect on an outbox that was not made with any."""
        if self._credit_chars is None:
            return
        self._credit_chars += num_chars
        if self._items:
            self._on_ready()

    def cut_short(self) -> None:
        """The reader that gave credit wants the turn's end and nothing before it: what waits is dropped, so is what
        still comes. Calls whose start is out are closed as truncated, with the arguments that are out."""
        if self._credit_chars is None or self._cut is not None:
            return
        ready = self._take_credited()
        waiting, self._items = self._items, deque(ready)
        self._credit_chars = None
        self._cut = _CutCalls()
        for item in waiting:
            kept = self._cut.keep(item)
            if kept is not None:
                self._items.append(kept)
        self._recount()
        if self._items:
            self._on_ready()

    def fail_unread(self, error: GatewayError) -> None:
        """For a turn that has ended while its reader never gave the credit to take its end: `error` takes its place."""
        assert self.is_closed
        self._drop_starved()
        self._append(TurnFailed(error), 0)
        self._on_ready()

    def _drop_starved(self) -> None:
        self._items = deque(self._take_credited())
        self._credit_chars = None
        self._recount()

    def _recount(self) -> None:
        chars = [text_of(item) for item in self._items if isinstance(item, (TurnEvent, TurnText))]
        self._num_chars = sum(map(len, chars)) + _ITEM_COST_CHARS * len(self._items)
        self._let_in()

    def _append(self, item: TurnItem | PendingText, num_chars: int) -> None:
        self._items.append(item)
        self._num_chars += _ITEM_COST_CHARS + num_chars

    def _append_or_merge(self, item: TurnEvent | TurnText) -> None:
        num_chars = len(text_of(item))
        is_starved = self._credit_chars == 0
        if (len(self._items) < _MERGE_AFTER_ITEMS and not is_starved) or merge_key(item) is None:
            self._append(item, num_chars)
            return
        last = self._items[-1] if self._items else None
        if not (isinstance(last, PendingText) and last.takes(item)):
            last = PendingText(item)
            self._append(last, 0)
        last.add(item)
        self._num_chars += num_chars

    def take(self) -> list[TurnItem]:
        """Everything that may go, in order."""
        if self._credit_chars is not None:
            items = self._take_credited()
            self._let_in()
            return items
        if self._is_plain:
            items = cast("list[TurnItem]", list(self._items))
        else:
            items = [item.take_all() if isinstance(item, PendingText) else item for item in self._items]
            self._room.set()
            self._is_plain = self._cut is None
        self._items.clear()
        self._num_chars = 0
        return items

    def _take_credited(self) -> list[TurnItem]:
        taken: list[TurnItem] = []
        while self._items:
            item = self._items[0]
            num_chars = _num_chars(item)
            if num_chars:
                assert self._credit_chars is not None
                if num_chars > self._credit_chars:
                    if self._credit_chars:
                        taken.append(self._take_part())
                    break
                self._credit_chars -= num_chars
            taken.append(item.take_all() if isinstance(item, PendingText) else item)
            self._items.popleft()
            self._num_chars -= _ITEM_COST_CHARS + num_chars
        return taken

    def _take_part(self) -> TurnItem:
        pending = self._items[0]
        if not isinstance(pending, PendingText):
            assert isinstance(pending, (TurnEvent, TurnText))
            whole, pending = pending, PendingText(pending)
            pending.add(whole)
            self._items[0] = pending
        assert self._credit_chars
        part = pending.take(self._credit_chars)
        num_chars = len(text_of(part))
        self._credit_chars -= num_chars
        self._num_chars -= num_chars
        return part

    def _let_in(self) -> None:
        if not self.is_full:
            self._room.set()

    async def wait_for_room(self, timeout_s: float) -> None:
        """Returns when the reader has taken what waited. Raises TimeoutError; the time does not run while the reader
        is away, and begins anew when it comes back."""
        self._patience_s = timeout_s
        try:
            async with asyncio.timeout(None if self._is_unread else timeout_s) as self._wait:
                await self._room.wait()
        finally:
            self._wait = None

    def reader_moved(self) -> None:
        """The reader is still busy with what it took, and gets on with it: the time of `wait_for_room` begins anew."""
        if self._wait is not None and not self._is_unread:
            self._wait.reschedule(asyncio.get_running_loop().time() + self._patience_s)

    def reader_left(self) -> None:
        """Nobody can read for a while: what the writer may do meanwhile is bounded by the buffer, not by time."""
        self._is_unread = True
        if self._wait is not None:
            self._wait.reschedule(None)

    def reader_came(self) -> None:
        self._is_unread = False
        self.reader_moved()


def _num_chars(item: TurnItem | PendingText) -> int:
    if isinstance(item, PendingText):
        return item.num_chars
    return len(text_of(item)) if isinstance(item, (TurnEvent, TurnText)) else 0


class _CutCalls:
    """What of a turn's end still goes out when its text is dropped: nothing that refers to what was dropped."""

    def __init__(self) -> None:
        self._dropped_calls: set[int] = set()
        self._num_dropped_chars: dict[int, int] = {}

    def keep(self, item: TurnItem | PendingText) -> TurnItem | None:
        if isinstance(item, PendingText):
            self._count(item.call_index, item.num_chars)
            return None
        if not isinstance(item, TurnEvent):
            return item
        match item.event:
            case ToolCallStart(index=index):
                self._dropped_calls.add(index)
                return None
            case ToolCallEnd(index=index) if index in self._dropped_calls:
                return None
            case ToolCallEnd(index=index, arguments=arguments) if index in self._num_dropped_chars:
                kept = arguments[: len(arguments) - self._num_dropped_chars[index]]
                return TurnEvent(item.choice, ToolCallEnd(index, kept, "truncated", "cancelled"))
            case ToolCallEnd():
                return item
            case Finish():
                return TurnEvent(item.choice, Finish("cancelled"))
            case _:
                pending = PendingText(item)
                self._count(pending.call_index, len(text_of(item)))
                return None

    def _count(self, call_index: int | None, num_chars: int) -> None:
        if call_index is not None and num_chars:
            self._num_dropped_chars[call_index] = self._num_dropped_chars.get(call_index, 0) + num_chars
