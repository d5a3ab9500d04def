"""Turns over HTTP: as server-sent events, or gathered into one body.

Headers go out once the engine has taken the turn, so refusals are real HTTP errors. A client that goes away stops its
turn, streamed or not, in whatever state it is. Starlette's StreamingResponse is not used: under ASGI 2.4 it does not
listen for a disconnect, and it drops its iterator without closing it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from gateway.errors import InternalError
from gateway.exchange import Exchange
from gateway.outbox import Outbox
from gateway.protocols.frames import Collector, Encoder, sse
from gateway.turn import LiveTurn, slow_reader
from gateway.types import TurnDone, TurnFailed, TurnItem

log = logging.getLogger("headrace.sse")

SSE_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    # nginx buffers event streams otherwise.
    "x-accel-buffering": "no",
}


class OutboxReader:
    """The reading side of one outbox, with one lazy timer instead of one a token.

    The timer ends a silence of `silence_s`, and cancels the reading task (with `is_stuck` set) when it has been
    writing what it took for `stuck_s`: its client has stopped reading without closing. Make it in the reading task.
    """

    def __init__(self, max_pending_chars: int, silence_s: float, stuck_s: float) -> None:
        self._ready = asyncio.Event()
        self.outbox = Outbox(max_pending_chars, self._ready.set)
        self.is_stuck = False
        self._silence_s = silence_s
        self.stuck_s = stuck_s
        self._task = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        self._is_waiting = True
        self._since_s = self._loop.time()
        self._timer = self._loop.call_later(min(silence_s, stuck_s), self._on_timer)

    async def next(self) -> list[TurnItem]:
        """What has come, or an empty list after `silence_s` without anything."""
        if not self._ready.is_set():
            self._is_waiting, self._since_s = True, self._loop.time()
            await self._ready.wait()
        self._ready.clear()
        self._is_waiting, self._since_s = False, self._loop.time()
        return self.outbox.take()

    def close(self) -> None:
        self._timer.cancel()

    def _on_timer(self) -> None:
        now_s = self._loop.time()
        limit_s = self._silence_s if self._is_waiting else self.stuck_s
        due_s = self._since_s + limit_s
        if now_s >= due_s:
            if not self._is_waiting:
                self.is_stuck = True
                assert self._task is not None
                self._task.cancel()
                return
            self._ready.set()
            due_s = now_s + self._silence_s
        # The reader may begin to write at any time before `due_s`, and get stuck.
        self._timer = self._loop.call_at(min(due_s, now_s + self.stuck_s), self._on_timer)


async def stream_turn(
    exchange: Exchange,
    live: LiveTurn,
    reader: OutboxReader,
    encoder: Encoder,
    keepalive: Callable[[], bytes],
    headers: Mapping[str, str],
) -> None:
    """Raises the GatewayError of a turn that was refused; later failures go into the stream."""
    try:
        async with _ends_with_client(exchange, live, reader):
            items = await _first_items(reader)
            await exchange.start(200, {**SSE_HEADERS, **headers})
            await _write_items(exchange, items, reader, encoder, keepalive)
            await exchange.end()
    except asyncio.CancelledError:
        if not reader.is_stuck:
            raise
        # Returning without the end of the body makes the server close the connection.
        log.warning("turn %s: its client stopped reading; connection closed", live.labels.turn_id)


async def _write_items(
    exchange: Exchange, items: list[TurnItem], reader: OutboxReader, encoder: Encoder, keepalive: Callable[[], bytes]
) -> None:
    while True:
        frames = [sse(frame) for item in items for frame in encoder.encode(item)]
        if frames:
            await exchange.write(b"".join(frames))
        elif not items:
            await exchange.write(keepalive())
        if items and isinstance(items[-1], (TurnDone, TurnFailed)):
            return
        items = await reader.next()


async def collect_turn(
    exchange: Exchange, live: LiveTurn, reader: OutboxReader, collector: Collector, headers: Mapping[str, str]
) -> None:
    """Raises the GatewayError of a turn that failed at any point."""
    async with _ends_with_client(exchange, live, reader):
        while True:
            for item in await reader.next():
                if isinstance(item, TurnFailed):
                    raise item.error
                collector.add(item)
                if isinstance(item, TurnDone):
                    await exchange.respond(200, collector.body(), headers)
                    return


async def _first_items(reader: OutboxReader) -> list[TurnItem]:
    items: list[TurnItem] = []
    while not items:
        items = await reader.next()
    if isinstance(items[0], TurnFailed):
        raise items[0].error
    return items


@asynccontextmanager
async def _ends_with_client(exchange: Exchange, live: LiveTurn, reader: OutboxReader) -> AsyncIterator[None]:
    """Inside, the turn lives as long as its client does; after, nothing of it is left."""
    watcher = asyncio.create_task(_stop_at_disconnect(exchange, live), name=f"watch {live.labels.turn_id}")
    try:
        yield
    finally:
        reader.close()
        if reader.is_stuck:
            live.stop(slow_reader(reader.stuck_s))
        else:
            live.stop(InternalError("The response ended before its turn."))
        watcher.cancel()
        await live.join()
        await asyncio.wait([watcher])


async def _stop_at_disconnect(exchange: Exchange, live: LiveTurn) -> None:
    await exchange.wait_for_disconnect()
    live.stop()
