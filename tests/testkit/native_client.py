"""A bare client of the native protocol for tests: checks each frame against the schema, keeps what came by turn."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import ormsgpack
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from gateway.protocols.native_codec import MSGPACK
from tests.testkit.gateway_kit import RunningGateway
from tests.testkit.native_schema import check_client_frame, check_server_frame


class NativeClient:
    """Frames of a turn have to come with seq 0, 1, 2 …: `frames` holds all, `hello` the first."""

    def __init__(
        self, socket: ClientConnection, next_seq: Mapping[str, int] | None = None, *, checks_schema: bool = True
    ) -> None:
        self.socket = socket
        self._checks_schema = checks_schema
        self.frames: list[dict[str, Any]] = []
        self.hello: dict[str, Any] = {}
        self._next_seq = dict(next_seq or {})

    @property
    def last_seq(self) -> dict[str, int]:
        """Of the turns that have not ended."""
        return {turn: seq - 1 for turn, seq in self._next_seq.items()}

    async def send(self, frame: Any) -> None:
        if isinstance(frame, dict):
            is_binary = self.socket.subprotocol == MSGPACK.subprotocol
            frame = ormsgpack.packb(frame) if is_binary else json.dumps(frame)
        await self.socket.send(frame)

    async def create(self, turn: str, text: str = "Hi", **fields: Any) -> None:
        frame = {"type": "turn.create", "turn": turn, "messages": [{"role": "user", "content": text}], **fields}
        if self._checks_schema:
            check_client_frame(frame)
        self._next_seq[turn] = 0
        await self.send(frame)

    async def recv(self) -> dict[str, Any]:
        async with asyncio.timeout(20):
            data = await self.socket.recv()
        frame: dict[str, Any] = json.loads(data) if isinstance(data, str) else ormsgpack.unpackb(data)
        if self._checks_schema:
            check_server_frame(frame)
        if "seq" in frame:
            turn = frame["turn"]
            assert frame["seq"] == self._next_seq.get(turn, 0), frame
            self._next_seq[turn] = frame["seq"] + 1
            if frame["type"] in ("turn.done", "turn.error"):
                del self._next_seq[turn]
        self.frames.append(frame)
        return frame

    async def until(self, kind: str, turn: str | None = None) -> dict[str, Any]:
        """Reads on to the next frame of this kind (and turn) and gives it back."""
        while True:
            frame = await self.recv()
            if frame["type"] == kind and (turn is None or frame["turn"] == turn):
                return frame

    async def ended(self, *turns: str) -> None:
        """Reads on until each of these turns has had its last frame."""
        waiting = {turn for turn in turns if turn in self._next_seq}
        while waiting:
            frame = await self.recv()
            if frame["type"] in ("turn.done", "turn.error"):
                waiting.discard(frame["turn"])

    async def frames_until_closed(self) -> AsyncIterator[dict[str, Any]]:
        """What still comes, up to the connection's end."""
        while True:
            try:
                yield await self.recv()
            except ConnectionClosed:
                return

    async def nothing_comes(self) -> None:
        """The answer to a ping is the next frame, so nothing else was ready before it."""
        await self.send({"type": "ping", "nonce": "quiet"})
        assert await self.recv() == {"type": "pong", "nonce": "quiet"}

    def of(self, turn: str) -> list[dict[str, Any]]:
        return [frame for frame in self.frames if frame.get("turn") == turn]

    def kinds(self, turn: str) -> list[str]:
        return [frame["type"] for frame in self.of(turn)]

    def text(self, turn: str) -> str:
        return "".join(frame["text"] for frame in self.of(turn) if frame["type"] == "content.delta")

    def arguments(self, turn: str) -> str:
        return "".join(frame["arguments"] for frame in self.of(turn) if frame["type"] == "tool_call.delta")

    def lose(self) -> None:
        """The connection ends without a Close frame, as when a network goes away."""
        self.socket.transport.abort()


@asynccontextmanager
async def native_client(
    gateway: RunningGateway,
    *,
    next_seq: Mapping[str, int] | None = None,
    subprotocols: tuple[str, ...] = (),
    headers: Mapping[str, str] | None = None,
    checks_schema: bool = True,
    **options: Any,
) -> AsyncIterator[NativeClient]:
    names = [Subprotocol(name) for name in subprotocols] or None
    async with connect(gateway.ws_url, subprotocols=names, additional_headers=headers, **options) as socket:
        client = NativeClient(socket, next_seq, checks_schema=checks_schema)
        client.hello = await client.recv()
        assert client.hello["type"] == "hello"
        yield client


@asynccontextmanager
async def resumed(gateway: RunningGateway, lost: NativeClient, **options: Any) -> AsyncIterator[NativeClient]:
    """A new connection that takes up the turns of the lost one. What came before is in its `frames` as well."""
    next_seq = {turn: seq + 1 for turn, seq in lost.last_seq.items()}
    async with native_client(gateway, next_seq=next_seq, **options) as client:
        client.frames = [*lost.frames, *client.frames]
        frame = {"type": "resume", "stream": lost.hello["stream"], "last_seq": lost.last_seq}
        check_client_frame(frame)
        await client.send(frame)
        yield client
