"""The client for plain, blocking code: `AsyncClient` on an event loop that runs on a thread of its own.

May be used from several threads at once: a turn belongs to one thread, the client to all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Unpack

from headrace.client import (
    DEFAULT_CONNECT_TIMEOUT_S,
    DEFAULT_IDLE_TIMEOUT_S,
    DEFAULT_RESUME_TIMEOUT_S,
    AsyncClient,
)
from headrace.config import TransportName
from headrace.events import Event
from headrace.loop_thread import LoopThread
from headrace.message import Message
from headrace.request import Messages, Sampling, ToolChoice, ToolLike
from headrace.turn import Turn


class SyncTurn:
    """A running turn: `with client.stream(...) as turn:` then `for event in turn:`. Leaving cancels it; see `Turn`."""

    def __init__(self, turn: Turn, loop: LoopThread) -> None:
        self._turn = turn
        self._loop = loop

    def __enter__(self) -> SyncTurn:
        try:
            self._loop.run(self._turn.__aenter__())
        except BaseException:
            # An interrupt may come when the turn has started already, and `__exit__` is not called for it.
            self._loop.run(self._turn.aclose())
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.run(self._turn.__aexit__(kind, error, traceback))

    def __iter__(self) -> Iterator[Event]:
        return self._loop.iterate(self._turn)

    def cancel(self) -> None:
        """As `Turn.cancel`; may be called from another thread than the one that reads."""
        self._loop.run(self._turn.cancel())

    def final(self) -> Message:
        """As `Turn.final`."""
        return self._loop.run(self._turn.final())


class Client:
    """As `AsyncClient`, blocking. Close it with `close`, or use it in `with`:

    with Client() as client, client.stream("Hello") as turn:
        for event in turn:
            print(event)
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        model: str | None = None,
        transport: TransportName = "websocket",
        connect_timeout_s: float | None = DEFAULT_CONNECT_TIMEOUT_S,
        idle_timeout_s: float | None = DEFAULT_IDLE_TIMEOUT_S,
        resume_timeout_s: float = DEFAULT_RESUME_TIMEOUT_S,
    ) -> None:
        # First, as it checks its arguments: no thread is left behind by a bad one.
        self.async_client = AsyncClient(
            url,
            api_key=api_key,
            model=model,
            transport=transport,
            connect_timeout_s=connect_timeout_s,
            idle_timeout_s=idle_timeout_s,
            resume_timeout_s=resume_timeout_s,
        )
        self.loop = LoopThread()
        self.url = self.async_client.url

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all turns, close every connection, stop the thread. Idempotent."""
        if self.loop.is_open:
            self.loop.run(self.async_client.aclose())
            self.loop.close()

    def stream(
        self,
        messages: Messages,
        *,
        model: str | None = None,
        tools: Sequence[ToolLike] | None = None,
        tool_choice: ToolChoice | None = None,
        lane: str | None = None,
        credit: int | None = None,
        **sampling: Unpack[Sampling],
    ) -> SyncTurn:
        """As `AsyncClient.stream`, to be started with `with`."""
        turn = self.async_client.stream(
            messages, model=model, tools=tools, tool_choice=tool_choice, lane=lane, credit=credit, **sampling
        )
        return SyncTurn(turn, self.loop)

    def complete(
        self,
        messages: Messages,
        *,
        model: str | None = None,
        tools: Sequence[ToolLike] | None = None,
        tool_choice: ToolChoice | None = None,
        lane: str | None = None,
        **sampling: Unpack[Sampling],
    ) -> Message:
        """As `AsyncClient.complete`; Ctrl-C cancels the turn."""
        return self.loop.run(
            self.async_client.complete(
                messages, model=model, tools=tools, tool_choice=tool_choice, lane=lane, **sampling
            )
        )

    def models(self) -> list[str]:
        """As `AsyncClient.models`."""
        return self.loop.run(self.async_client.models())
