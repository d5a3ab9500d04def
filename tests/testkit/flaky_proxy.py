"""A TCP proxy on a free port that can lose its connections, as a network does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FlakyProxy:
    """`port` is where to connect. `is_down`: new connections are cut at once."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._transports: set[asyncio.Transport] = set()
        self.port = 0
        self.num_connections = 0
        self.is_down = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def drop(self) -> None:
        """Cut every connection, both ways, without a word."""
        for transport in tuple(self._transports):
            transport.abort()

    async def serve(self, near: asyncio.StreamReader, near_writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        if self.is_down:
            near_writer.transport.abort()
            return
        far, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        pair = {near_writer.transport, far_writer.transport}
        self._transports |= pair
        try:
            await asyncio.gather(_copy(near, far_writer), _copy(far, near_writer))
        except OSError:
            pass
        finally:
            self._transports -= pair
            for transport in pair:
                transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


@asynccontextmanager
async def flaky_proxy(target_port: int) -> AsyncIterator[FlakyProxy]:
    proxy = FlakyProxy(target_port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        proxy.drop()
        await server.wait_closed()
