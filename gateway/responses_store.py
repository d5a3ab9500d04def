"""Responses that clients may come back to: bounded in number, bytes and age, and scoped to the key that made them.

In memory only. Conversations share their items: a response holds its own and points to its parent's. Bytes are counted
once however many responses hold them. The oldest go first; one that still runs is not dropped. Knows nothing of HTTP.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Protocol

from gateway.errors import InvalidRequest, NotFound
from gateway.protocols.fields import shown
from gateway.protocols.frames import dumps
from gateway.protocols.responses_items import Item


class Context:
    """The items of a conversation up to and with one response. Immutable but for the count of its holders.

    num_bytes: of its own items, as JSON; num_chain_bytes: of the whole conversation.
    """

    __slots__ = ("items", "num_bytes", "num_chain_bytes", "num_holders", "parent")

    def __init__(self, parent: Context | None, items: Sequence[Item]) -> None:
        self.parent = parent
        self.items = tuple(items)
        self.num_bytes = len(dumps(self.items))
        self.num_chain_bytes: int = self.num_bytes + (parent.num_chain_bytes if parent is not None else 0)
        self.num_holders = 0

    def chain(self) -> list[Item]:
        """All items, oldest first."""
        contexts: list[Context] = []
        context: Context | None = self
        while context is not None:
            contexts.append(context)
            context = context.parent
        return [item for context in reversed(contexts) for item in context.items]

    def items_by_id(self) -> dict[str, Item]:
        """Of several with one id, the latest response's first one. O(items of the conversation): make it once."""
        found: dict[str, Item] = {}
        context: Context | None = self
        while context is not None:
            for item in context.items:
                item_id = item.get("id")
                if isinstance(item_id, str):
                    found.setdefault(item_id, item)
            context = context.parent
        return found


class Source(Protocol):
    """Where a stored response's state is: a finished one's bytes, or a background response that may still run."""

    @property
    def status(self) -> str: ...

    @property
    def num_bytes(self) -> int: ...

    def body(self) -> bytes: ...


class Finished:
    """A response that will not change any more."""

    __slots__ = ("_body", "status")

    def __init__(self, status: str, body: bytes) -> None:
        self.status = status
        self._body = body

    @property
    def num_bytes(self) -> int:
        return len(self._body)

    def body(self) -> bytes:
        return self._body


class StoredResponse:
    """input_items: as `input_items` lists them, each with an id. context None: it cannot be a parent yet, or ever."""

    __slots__ = ("context", "id", "input_items", "num_bytes", "owner", "source", "stored_s")

    def __init__(self, response_id: str, owner: str, input_items: Sequence[Item], source: Source) -> None:
        self.id = response_id
        self.owner = owner
        self.input_items = tuple(input_items)
        self.source = source
        self.context: Context | None = None
        self.stored_s = 0.0
        self.num_bytes = 0

    @property
    def is_running(self) -> bool:
        return self.source.status in ("queued", "in_progress")


class ResponseStore:
    """clock: monotonic seconds. All methods are O(items of the responses that they add or drop)."""

    def __init__(self, max_entries: int, max_bytes: int, max_age_s: float, clock: Callable[[], float]) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._max_age_s = max_age_s
        self._clock = clock
        self._entries: OrderedDict[str, StoredResponse] = OrderedDict()
        self._items: dict[tuple[str, str], tuple[StoredResponse, Item]] = {}
        self.num_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, entry: StoredResponse, context: Context | None) -> None:
        entry.stored_s = self._clock()
        self._entries[entry.id] = entry
        self._count(entry, context)

    def settle(self, entry: StoredResponse, context: Context | None) -> None:
        """A response has ended, if it is still here: what follows on it, and its size, are known now."""
        if self._entries.get(entry.id) is entry:
            self._forget_bytes(entry)
            self._count(entry, context)

    def _count(self, entry: StoredResponse, context: Context | None) -> None:
        entry.context = context
        entry.num_bytes = entry.source.num_bytes + len(dumps(entry.input_items))
        self.num_bytes += entry.num_bytes
        self._hold(context)
        for item in (*entry.input_items, *(context.items if context is not None else ())):
            self._items[entry.owner, str(item.get("id"))] = (entry, item)
        self._shrink()

    def grow(self, entry: StoredResponse, num_bytes: int) -> None:
        """A background response has written more events (a negative number: dropped some)."""
        if self._entries.get(entry.id) is entry:
            entry.num_bytes += num_bytes
            self.num_bytes += num_bytes
            self._shrink()

    def get(self, owner: str, response_id: str) -> StoredResponse:
        """Raises NotFound."""
        self._drop_old()
        entry = self._entries.get(response_id)
        if entry is None or entry.owner != owner:
            message = f"Response with id {shown(response_id)} not found. Responses are kept when they have store: true,"
            raise NotFound(message + " and not for ever.", param="response_id", code="response_not_found")
        return entry

    def parent(self, owner: str, response_id: str) -> Context:
        """Raises InvalidRequest, with the code at which clients send everything again."""
        try:
            entry = self.get(owner, response_id)
        except NotFound:
            raise parent_not_found(response_id) from None
        if entry.context is None:
            status = entry.source.status
            raise parent_not_found(response_id, f" It is {status}, and a conversation cannot go on from there.")
        return entry.context

    def find_item(self, owner: str, item_id: str) -> Item | None:
        self._drop_old()
        found = self._items.get((owner, item_id))
        return None if found is None else found[1]

    def delete(self, entry: StoredResponse) -> None:
        del self._entries[entry.id]
        self._forget_bytes(entry)
        items = (*entry.input_items, *(entry.context.items if entry.context is not None else ()))
        for item in items:
            key = (entry.owner, str(item.get("id")))
            found = self._items.get(key)
            if found is not None and found[0] is entry:
                del self._items[key]

    def _forget_bytes(self, entry: StoredResponse) -> None:
        self.num_bytes -= entry.num_bytes
        self._release(entry.context)

    def _hold(self, context: Context | None) -> None:
        while context is not None:
            context.num_holders += 1
            if context.num_holders > 1:
                return
            self.num_bytes += context.num_bytes
            context = context.parent

    def _release(self, context: Context | None) -> None:
        while context is not None:
            context.num_holders -= 1
            if context.num_holders > 0:
                return
            self.num_bytes -= context.num_bytes
            context = context.parent

    def _drop_old(self) -> None:
        limit_s = self._clock() - self._max_age_s
        expired: list[StoredResponse] = []
        for entry in self._entries.values():
            if entry.stored_s > limit_s:
                break
            if not entry.is_running:
                expired.append(entry)
        for entry in expired:
            self.delete(entry)

    def _shrink(self) -> None:
        self._drop_old()
        while len(self._entries) > self._max_entries or self.num_bytes > self._max_bytes:
            oldest = next((entry for entry in self._entries.values() if not entry.is_running), None)
            if oldest is None:
                return
            self.delete(oldest)


def parent_not_found(response_id: str, why: str = "") -> InvalidRequest:
    message = f"Previous response with id {shown(response_id)} not found.{why}"
    return InvalidRequest("previous_response_id", message, code="previous_response_not_found")
