"""Turns over the native WebSocket: one connection, opened when the first turn needs it and again when it is gone."""

from __future__ import annotations

import asyncio

from headrace.config import ClientConfig
from headrace.errors import ConnectionLost
from headrace.native_connection import NativeConnection, open_connection
from headrace.native_turn import NativeTurn
from headrace.request import TurnRequest


class WebSocketTransport:
    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._connection: NativeConnection | None = None
        self._connecting = asyncio.Lock()
        # Those that the server lets run out, with turns that still run.
        self._retired: list[NativeConnection] = []

    async def open_turn(self, request: TurnRequest) -> NativeTurn:
        connection, is_fresh = await self._connected()
        try:
            return await connection.create(request)
        except ConnectionLost:
            # A connection that idled may be dead without our knowing. No frame of the turn came, so nothing of it is
            # seen twice when it is sent again; a fresh connection that dies is another matter.
            if is_fresh or connection.is_open:
                raise
        connection, _ = await self._connected()
        return await connection.create(request)

    async def aclose(self) -> None:
        async with self._connecting:
            for connection in (*self._retired, *([self._connection] if self._connection is not None else [])):
                await connection.aclose()

    async def _connected(self) -> tuple[NativeConnection, bool]:
        """The connection, and whether it was opened just now."""
        async with self._connecting:
            if self._connection is not None and self._connection.takes_turns:
                return self._connection, False
            self._retired = [connection for connection in self._retired if connection.is_open]
            if self._connection is not None and self._connection.is_open:
                self._retired.append(self._connection)
                self._connection = None
            self._connection = await open_connection(self._config)
            return self._connection, True
