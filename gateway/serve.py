"""Runs the gateway: the listening socket, uvicorn, the engine's start, and an end within two seconds of a signal."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from functools import partial
from typing import cast

import uvicorn

from gateway.app import GatewayApp
from gateway.backend import Backend
from gateway.config import GatewayConfig
from gateway.errors import ShuttingDown
from gateway.frame_socket import UvicornSocket
from gateway.http_connection import MAX_HEAD_BYTES
from gateway.peer import http_connection

log = logging.getLogger("headrace.serve")

# After the drain: for streams to write their last frames, and for clients that do not read them.
_FLUSH_S = 0.3
# For those writers that tell nobody when they are done: many times what one write takes.
_LAST_WRITES_S = 0.05
# Agents pause between requests on one connection; uvicorn's default of 5 s closes it just when they come back.
_KEEP_ALIVE_S = 75


async def serve(
    backend: Backend,
    config: GatewayConfig,
    listener: socket.socket,
    on_ready: Callable[[str], None],
) -> None:
    """Serves until a signal, and ends everything it started. Raises what starting the backend raises.

    /health answers from the beginning, /ready once the backend is there; `on_ready` then gets the base URL.
    """
    app = GatewayApp(backend, config)
    server = GatewayServer(app, config)
    starting = asyncio.create_task(backend.start(), name="backend start")
    starting.add_done_callback(lambda task: _after_start(task, server, lambda: on_ready(_base_url(listener))))
    try:
        await server.serve(sockets=[listener])
    finally:
        starting.cancel()
        await asyncio.wait([starting])
        await backend.close()
    if not starting.cancelled():
        starting.result()


def _after_start(task: asyncio.Task[None], server: GatewayServer, on_ready: Callable[[], None]) -> None:
    if task.cancelled():
        return
    if task.exception() is not None:
        server.should_exit = True
    elif not server.should_exit:
        on_ready()


def _base_url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class GatewayServer(uvicorn.Server):
    """uvicorn's server, which closes WebSockets first thing: here turns are drained before."""

    def __init__(self, app: GatewayApp, config: GatewayConfig) -> None:
        uvicorn_config = uvicorn.Config(
            app,
            # uvicorn asks for a class, and only ever calls it.
            http=cast("type[asyncio.Protocol]", partial(http_connection, config.read_timeout_s)),
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
            ws=UvicornSocket,
            ws_ping_interval=config.ping_interval_s,
            ws_ping_timeout=config.ping_timeout_s,
            # Frames above max_body_bytes get an error of their own; only far larger ones cost the connection.
            ws_max_size=2 * config.max_body_bytes,
            # Deltas are too small to gain from it, and each would cost a flush of the compressor.
            ws_per_message_deflate=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
        )
        super().__init__(uvicorn_config)
        self._app = app
        self._drain_s = config.drain_s

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        error = ShuttingDown("The server is shutting down before this turn could end. Try again.", retry_after_s=1.0)
        self._app.streams.go_away(self._drain_s)
        await self._app.runner.drain(self._drain_s, error)
        # uvicorn closes sockets first thing, and what follows a Close frame is lost: let the last frames out before.
        await self._app.streams.flush(_FLUSH_S)
        if self.server_state.connections:
            await asyncio.sleep(_LAST_WRITES_S)
        self._app.streams.close_all()
        # Frames that end the streams are on their way through the connections' writers.
        closing = asyncio.create_task(super().shutdown(sockets))
        await asyncio.wait([closing], timeout=_FLUSH_S)
        if not closing.done():
            log.warning("closed %d connections that did not end by themselves", len(self.server_state.connections))
            self.force_exit = True
            for task in tuple(self.server_state.tasks):
                task.cancel()
        await asyncio.wait([closing], timeout=_FLUSH_S)
        closing.cancel()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, but a signal that ended the server well is not raised again afterwards."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
