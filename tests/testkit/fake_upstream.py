"""An OpenAI-compatible server that does what a test says, well or badly, byte for byte, in the test's event loop."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx

from gateway.app import GatewayApp
from gateway.serve import GatewayServer
from gateway.upstream_backend import UpstreamBackend
from gateway.upstream_settings import UpstreamSettings
from tests.testkit.gateway_kit import RunningGateway, gateway_config, running_gateway

DONE = b"data: [DONE]\n\n"
# How an answer ends: by HTTP's rules, by a connection that breaks, or never.
Ending = Literal["well", "cut", "hang"]


@dataclass(frozen=True, slots=True)
class Reply:
    """parts: what is written, one by one; an Event is waited for. No status: the connection is closed instead."""

    parts: Sequence[bytes | asyncio.Event] = ()
    status: int | None = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "text/event-stream"})
    ending: Ending = "well"


@dataclass(frozen=True, slots=True)
class Received:
    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


def frame(chunk: Mapping[str, Any] | str) -> bytes:
    text = chunk if isinstance(chunk, str) else json.dumps(chunk)
    return f"data: {text}\n\n".encode()


def delta(index: int = 0, reason: str | None = None, **fields: Any) -> dict[str, Any]:
    """A chunk with one choice."""
    return {"choices": [{"index": index, "delta": fields, "finish_reason": reason}]}


def usage(prompt: int, completion: int, **details: Any) -> dict[str, Any]:
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return {"choices": [], "usage": {**counts, **details}}


def answer(*chunks: Mapping[str, Any] | str, done: bool = True, ending: Ending = "well") -> Reply:
    parts = [frame(chunk) for chunk in chunks]
    return Reply([*parts, DONE] if done else parts, ending=ending)


def say(*texts: str) -> Reply:
    """A whole answer of this text."""
    return answer(delta(role="assistant"), *(delta(content=text) for text in texts), delta(reason="stop"), usage(9, 2))


def refusal(status: int, body: Any, **headers: str) -> Reply:
    """body: an object, or the bytes of anything else."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply([raw], status, {"content-type": "application/json", **named})


class FakeUpstream:
    """replies: to POSTs, in order; one that is left alone repeats. num_left: clients that went before the end.

    has_begun: the parts of an answer are out, or it waits for `delay`.
    """

    def __init__(self, *replies: Reply, models: Sequence[Mapping[str, Any]] | Reply = ({"id": "up-1"},)) -> None:
        self.replies = deque(replies)
        self.models = models if isinstance(models, Reply) else refusal(200, {"object": "list", "data": list(models)})
        self.requests: list[Received] = []
        self.num_left = 0
        self.num_connections = 0
        self.has_begun = asyncio.Event()
        self.delay: asyncio.Event | None = None  # waited for before the head of each answer to a POST
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def turns(self) -> list[Received]:
        return [request for request in self.requests if request.method == "POST"]

    @property
    def bodies(self) -> list[Any]:
        return [request.body for request in self.turns]

    async def __aenter__(self) -> FakeUpstream:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.vanish()

    async def come_back(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)

    async def vanish(self) -> None:
        """Its process is gone, for all that anybody can tell."""
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.num_connections += 1
        try:
            while await self._serve_one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.requests.append(Received(method, path, headers, json.loads(body) if body else None))
        reply = self.models if method == "GET" else self.replies.popleft() if len(self.replies) > 1 else self.replies[0]
        if reply.status is None:
            return False
        with suppress(ConnectionError):
            leaving = asyncio.create_task(reader.read(1))
            leaving.add_done_callback(lambda task: task.cancelled() or task.exception())
            writing = asyncio.create_task(self._write(writer, reply, is_turn=method == "POST"))
            await asyncio.wait([leaving, writing], return_when=asyncio.FIRST_COMPLETED)
            if not writing.done():
                self.num_left += method == "POST"
                writing.cancel()
                await asyncio.wait([writing])
                return False
            writing.result()
            if reply.ending == "well" and not leaving.done():
                leaving.cancel()
                await asyncio.wait([leaving])
                return True
            leaving.cancel()
        return False

    async def _write(self, writer: asyncio.StreamWriter, reply: Reply, *, is_turn: bool) -> None:
        if is_turn and self.delay is not None:
            self.has_begun.set()
            await self.delay.wait()
        fields = {**reply.headers, "transfer-encoding": "chunked"}
        lines = [f"HTTP/1.1 {reply.status} Whatever", *(f"{name}: {value}" for name, value in fields.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        for part in filter(None, reply.parts):
            if isinstance(part, asyncio.Event):
                await part.wait()
                continue
            writer.write(b"%x\r\n%b\r\n" % (len(part), part))
            await writer.drain()
            await asyncio.sleep(0)
        if is_turn:
            self.has_begun.set()
        if reply.ending == "hang":
            await asyncio.Event().wait()
        if reply.ending == "cut":
            writer.transport.abort()
            return
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def left(self) -> None:
        """Returns when a client has gone before the end of its answer; fails after 5 s."""
        for _ in range(1000):
            if self.num_left:
                return
            await asyncio.sleep(0.005)
        raise AssertionError("the upstream's client is still there after 5 s")


@asynccontextmanager
async def gateway_before(
    upstream: FakeUpstream,
    *,
    keepalive_s: float = 15.0,
    max_live_turns: int = 64,
    names: tuple[str, ...] = (),
    listens: bool = False,
    **settings: Any,
) -> AsyncIterator[RunningGateway]:
    """A gateway in front of it, as `headrace serve --upstream` makes it, that does not pause between tries.

    Without `listens` only `client_of` reaches it, which does for whole answers and costs no socket.
    """
    backend = UpstreamBackend(UpstreamSettings(upstream.url, **settings), max_live_turns, probe_s=0.01, pause_s=0.001)
    await backend.start()
    config = {"keepalive_s": keepalive_s, "max_live_turns": max_live_turns, "served_names": names}
    if listens:
        async with running_gateway(backend, **config) as gateway:
            yield gateway
        return
    app = GatewayApp(backend, gateway_config(**config))
    try:
        yield RunningGateway(app, GatewayServer(app, app.config), 0)
    finally:
        await backend.close()


def client_of(gateway: RunningGateway) -> httpx.AsyncClient:
    """Gets answers when they are whole, also streamed ones."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(gateway.app), base_url="http://gateway")
