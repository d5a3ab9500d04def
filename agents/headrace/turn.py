"""One turn as its caller holds it; knows nothing of the transport beneath."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType

from headrace.errors import HeadraceError
from headrace.events import Event, TurnDone
from headrace.message import Message, MessageBuilder
from headrace.turn_source import TurnSource


class Turn:
    """A running turn: `async with client.stream(...) as turn:` then `async for event in turn:`.

    Entering sends the turn and returns when the server has accepted it. Leaving, in whatever way, cancels it unless it
    has ended. The iteration ends after `TurnDone`; any other end raises HeadraceError, at each further attempt again.
    One task reads a turn; `cancel` may be called from another.
    """

    def __init__(self, open_source: Callable[[], Awaitable[TurnSource]]) -> None:
        self._open_source = open_source
        self._source: TurnSource | None = None
        self._message = MessageBuilder()
        self._is_done = False
        self._error: HeadraceError | None = None

    async def __aenter__(self) -> Turn:
        if self._source is not None:
            raise RuntimeError("this turn was started before: call stream() again for another")
        self._source = await self._open_source()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        source = self._running()
        if self._is_done:
            raise StopAsyncIteration
        if self._error is not None:
            raise self._error
        try:
            event = await source.next_event()
        except HeadraceError as error:
            self._error = error
            raise
        self._message.add(event)
        self._is_done = isinstance(event, TurnDone)
        return event

    async def cancel(self) -> None:
        """Ask the server to end the turn. What it has sent can be read on, up to a `TurnDone("cancelled")`."""
        await self._running().cancel()

    async def final(self) -> Message:
        """Read what is left and return the whole message, also of what was read before. Cancel-safe, idempotent."""
        async for _ in self:
            pass
        return self._message.message()

    async def aclose(self) -> None:
        """Let go of the turn, as leaving it does. Idempotent, and harmless on a turn that was never entered."""
        self._error = self._error or HeadraceError("the turn was left before its end", code="turn_left")
        if self._source is not None:
            await self._source.aclose()

    def _running(self) -> TurnSource:
        if self._source is None:
            raise RuntimeError("the turn is not started: write `async with client.stream(...) as turn:`")
        return self._source
