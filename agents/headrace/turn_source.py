"""The seam between a turn and the transport that carries it; knows neither HTTP nor WebSockets."""

from __future__ import annotations

import asyncio
from typing import Protocol

from headrace.errors import HeadraceError, IdleTimeout
from headrace.events import Event
from headrace.request import TurnRequest


class TurnSource(Protocol):
    """The receiving end of one running turn."""

    async def next_event(self) -> Event:
        """The next event in order. Raises HeadraceError where the turn failed; not called after `TurnDone`."""
        ...

    async def cancel(self) -> None:
        """Ask for the end: a `TurnDone("cancelled")` follows, unless the turn has ended meanwhile. Idempotent."""
        ...

    async def aclose(self) -> None:
        """Let go of the turn, cancelling it where it still runs. Never raises HeadraceError. Idempotent."""
        ...


class Transport(Protocol):
    async def open_turn(self, request: TurnRequest) -> TurnSource:
        """Start a turn and wait until the server has accepted it. Raises HeadraceError where it did not."""
        ...

    async def aclose(self) -> None:
        """End all turns (with ConnectionLost) and let go of every connection. Idempotent."""
        ...


class EventQueue:
    """What was received and not yet read of one turn; one reader.

    It has no bound: what it can hold is one answer of the model. So a reader that is slow (or not reading at all) never
    holds up the other turns of a connection.
    """

    def __init__(self, idle_timeout_s: float | None) -> None:
        self._idle_timeout_s = idle_timeout_s
        self._items: asyncio.Queue[Event | HeadraceError] = asyncio.Queue()

    def put(self, item: Event | HeadraceError) -> None:
        self._items.put_nowait(item)

    async def get(self) -> Event:
        """Raises the error in its place in the stream, IdleTimeout when nothing comes for `idle_timeout_s`."""
        try:
            async with asyncio.timeout(self._idle_timeout_s):
                item = await self._items.get()
        except TimeoutError:
            raise IdleTimeout(f"the server said nothing about the turn for {self._idle_timeout_s} s") from None
        if isinstance(item, HeadraceError):
            raise item
        return item
