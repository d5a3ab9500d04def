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
from gateway.peer import WriteWatch, part_from
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
    """The reading side of one outbox, with one lazy timer instead of one a token: it ends a silence of `silence_s`.

    patience_s: how long a client may take nothing of what is written to it.
    """

    def __init__(self, max_pending_chars: int, silence_s: float, patience_s: float) -> None:
        self._ready = asyncio.Event()
        self.outbox = Outbox(max_pending_chars, self._ready.set)
        self.patience_s = patience_s
        self._silence_s = silence_s
        self._loop = asyncio.get_running_loop()
        self._is_waiting = True
        self._since_s = self._loop.time()
        self._timer = self._loop.call_later(silence_s, self._on_timer)

    async def next(self) -> list[TurnItem]:
        """What has come, or an empty list after `silence_s` without anything."""
        if not self._ready.is_set():
            self._is_waiting, self._since_s = True, self._loop.time()
            await self._ready.wait()
        self._is_waiting = False
        self._ready.clear()
        return self.outbox.take()

    def close(self) -> None:
        self._timer.cancel()

    def _on_timer(self) -> None:
        now_s = self._loop.time()
        due_s = self._since_s + self._silence_s if self._is_waiting else now_s + self._silence_s
        if now_s >= due_s:
            self._ready.set()
            due_s = now_s + self._silence_s
        self._timer = self._loop.call_at(due_s, self._on_timer)


async def stream_turn(
    exchange: Exchange,
    live: LiveTurn,
    reader: OutboxReader,
    encoder: Encoder,
    keepalive: Callable[[], bytes],
    headers: Mapping[str, str],
) -> None:
    """Raises the GatewayError of a turn that was refused; later failures go into the stream."""

    def give_up() -> None:
        log.warning("turn %s: its client has stopped reading", live.labels.turn_id)
        live.stop(slow_reader(reader.patience_s))

    watch = WriteWatch(exchange.peer, reader.patience_s, reader.outbox.reader_moved, give_up)
    try:
        async with _ends_with_client(exchange, live, reader):
            items = await _first_items(reader)
            await exchange.start(200, {**SSE_HEADERS, **headers})
            await _write_items(exchange, items, reader, encoder, keepalive, watch)
    except asyncio.CancelledError:
        # Returning without the end of the body makes the server close the connection.
        if not watch.is_cut:
            raise
    finally:
        watch.close()
    if watch.is_stuck:
        await part_from(exchange.peer, reader.patience_s)


async def _write_items(
    exchange: Exchange,
    items: list[TurnItem],
    reader: OutboxReader,
    encoder: Encoder,
    keepalive: Callable[[], bytes],
    watch: WriteWatch,
) -> None:
    while True:
        frames = [sse(frame) for item in items for frame in encoder.encode(item)]
        with watch:
            if frames:
                await exchange.write(b"".join(frames))
            elif not items:
                await exchange.write(keepalive())
            if items and isinstance(items[-1], (TurnDone, TurnFailed)):
                await exchange.end()
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
        live.stop(InternalError("The response ended before its turn."))
        watcher.cancel()
        await live.join()
        await asyncio.wait([watcher])


async def _stop_at_disconnect(exchange: Exchange, live: LiveTurn) -> None:
    await exchange.wait_for_disconnect()
    live.stop()
