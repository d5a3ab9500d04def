"""A server for tests of the SDK: speaks the native WebSocket and chat completions over SSE, and says what it is told.

What it answers is a list of steps; no parser, no model. It runs on a thread of its own, so that blocking clients can be
tested as well, and can be made to misbehave: refuse, hang, drop the connection, send nonsense.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

USAGE = {
    "prompt_tokens": 7,
    "completion_tokens": 3,
    "total_tokens": 10,
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens_details": {"reasoning_tokens": 1},
}


@dataclass(frozen=True)
class Say:
    """One event, by its frame type on the socket."""

    kind: str
    fields: dict[str, Any]


@dataclass(frozen=True)
class Wait:
    """Go on when the test says so."""

    gate: threading.Event


@dataclass(frozen=True)
class Drop:
    """Cut the TCP connection, without a word."""


@dataclass(frozen=True)
class CloseSocket:
    code: int


@dataclass(frozen=True)
class Raw:
    """Send this text as it is: a frame on the socket, a `data` line over SSE."""

    text: str


@dataclass(frozen=True)
class Refuse:
    """An error: before anything else a refusal, later a failure amid the turn."""

    status: int
    code: str | None = None
    message: str = "refused"
    retry_after_s: float | None = None

    @property
    def error(self) -> dict[str, Any]:
        return {"status": self.status, "type": "test_error", "code": self.code, "message": self.message, "param": None}


Step: TypeAlias = Say | Wait | Drop | CloseSocket | Raw | Refuse
Respond: TypeAlias = Callable[[dict[str, Any]], list[Step]]


def content(*pieces: str) -> list[Step]:
    return [Say("content.delta", {"text": piece}) for piece in pieces]


def reasoning(*pieces: str) -> list[Step]:
    return [Say("reasoning.delta", {"text": piece}) for piece in pieces]


def call(index: int, name: str, arguments: str, outcome: str = "ok", reason: str | None = None) -> list[Step]:
    half = len(arguments) // 2
    return [
        Say("tool_call.start", {"index": index, "id": f"call_{index}", "name": name}),
        *(
            Say("tool_call.delta", {"index": index, "arguments": piece})
            for piece in (arguments[:half], arguments[half:])
            if piece
        ),
        Say("tool_call.end", {"index": index, "arguments": arguments, "outcome": outcome, "reason": reason}),
    ]


def done(finish_reason: str = "stop") -> list[Step]:
    return [Say("turn.done", {"finish_reason": finish_reason, "usage": USAGE})]


def echo(request: dict[str, Any]) -> list[Step]:
    return [*content("echo: ", request["messages"][-1]["content"]), *done()]


@dataclass
class FakeServer:
    respond: Respond = echo
    api_key: str | None = None
    models: list[str] = field(default_factory=lambda: ["first-model", "second-model"])
    requests: list[dict[str, Any]] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    num_sockets: int = 0
    num_turns_running: int = 0

    def __enter__(self) -> FakeServer:
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        config = uvicorn.Config(
            Starlette(
                routes=[
                    Route("/v1/models", self._list_models),
                    Route("/v1/chat/completions", self._chat, methods=["POST"]),
                    WebSocketRoute("/v1/stream", self._stream),
                ]
            ),
            log_level="critical",
            lifespan="off",
            ws="websockets-sansio",
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive(), "the fake server did not start"
            threading.Event().wait(0.005)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(10)
        assert not self._thread.is_alive(), "the fake server did not stop"

    def reset(self) -> None:
        self.drop_connections()
        self.respond, self.api_key, self.num_sockets = echo, None, 0
        self.requests, self.cancelled = [], []
        self.models = ["first-model", "second-model"]

    def drop_connections(self) -> None:
        """Abort every TCP connection, and return when that is done."""
        dropped = threading.Event()

        def drop() -> None:
            self._abort()
            dropped.set()

        self._loop.call_soon_threadsafe(drop)
        assert dropped.wait(5)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait (5 s at most) for what happens on the server's thread."""
        pause = threading.Event()
        for _ in range(1000):
            if condition():
                return
            pause.wait(0.005)
        raise AssertionError("it did not happen within 5 s")

    def _run(self) -> None:
        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            await self._server.serve(sockets=[self._socket])

        asyncio.run(serve())

    def _abort(self) -> None:
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()

    async def _pause(self, gate: threading.Event) -> None:
        # The gate belongs to the test's thread: an asyncio.Event would not do.
        while not gate.is_set():
            await asyncio.sleep(0.002)

    def _refuses_key(self, authorization: str | None) -> bool:
        return self.api_key is not None and authorization != f"Bearer {self.api_key}"

    # HTTP

    async def _list_models(self, request: Request) -> Response:
        if self._refuses_key(request.headers.get("authorization")):
            return _error_answer(Refuse(401, "invalid_api_key", "wrong key"))
        return JSONResponse({"object": "list", "data": [{"id": name, "object": "model"} for name in self.models]})

    async def _chat(self, request: Request) -> Response:
        if self._refuses_key(request.headers.get("authorization")):
            return _error_answer(Refuse(401, "invalid_api_key", "wrong key"))
        body = await request.json()
        self.requests.append(body)
        steps = self.respond(body)
        if steps and isinstance(steps[0], Refuse):
            return _error_answer(steps[0])
        return StreamingResponse(self._chunks(body, steps), media_type="text/event-stream")

    async def _chunks(self, body: dict[str, Any], steps: list[Step]) -> AsyncIterator[str]:
        self.num_turns_running += 1
        try:
            yield _chunk(body, {"role": "assistant", "content": ""})
            for step in steps:
                match step:
                    case Say(kind="turn.done", fields=fields):
                        yield _chunk(body, {}, fields["finish_reason"])
                        yield _data({"choices": [], "usage": fields["usage"]}) + "data: [DONE]\n\n"
                    case Say(kind=kind, fields=fields):
                        if delta := _delta(kind, fields):
                            yield _chunk(body, delta)
                    case Wait(gate=gate):
                        await self._pause(gate)
                    case Drop():
                        self._abort()
                    case Raw(text=text):
                        yield f"data: {text}\n\n"
                    case Refuse():
                        yield _data({"error": step.error})
                        return
        except BaseException:
            self.cancelled.append("sse")
            raise
        finally:
            self.num_turns_running -= 1

    # WebSocket

    async def _stream(self, websocket: WebSocket) -> None:
        if self._refuses_key(websocket.headers.get("authorization")):
            await websocket.send_denial_response(_error_answer(Refuse(401, "invalid_api_key", "wrong key")))
            return
        await websocket.accept()
        self.num_sockets += 1
        await websocket.send_json(
            {"type": "hello", "protocol": "headrace.v1", "models": self.models, "server": "fake/0", "limits": {}}
        )
        turns: dict[str, asyncio.Task[None]] = {}
        try:
            while True:
                frame = json.loads(await websocket.receive_text())
                if frame["type"] == "turn.create":
                    self.requests.append(frame)
                    turns[frame["turn"]] = asyncio.create_task(self._turn(websocket, frame))
                elif frame["type"] == "turn.cancel":
                    turns[frame["turn"]].cancel()
        except WebSocketDisconnect:
            pass
        finally:
            for task in turns.values():
                task.cancel()
            await asyncio.gather(*turns.values(), return_exceptions=True)

    async def _turn(self, websocket: WebSocket, request: dict[str, Any]) -> None:
        seq = 0
        turn = request["turn"]

        async def send(kind: str, fields: dict[str, Any]) -> None:
            nonlocal seq
            frame = {"type": kind, "turn": turn, "seq": seq, **fields}
            seq += 1
            await websocket.send_text(json.dumps(frame))

        self.num_turns_running += 1
        try:
            steps = self.respond(request)
            if not (steps and isinstance(steps[0], Refuse | Raw | Drop | CloseSocket)):
                await send("turn.created", {"id": f"turn_{turn}", "model": request["model"], "created": 1_700_000_000})
            for step in steps:
                match step:
                    case Say(kind=kind, fields=fields):
                        await send(kind, fields)
                    case Wait(gate=gate):
                        await self._pause(gate)
                    case Drop():
                        self._abort()
                    case CloseSocket(code=code):
                        await websocket.close(code)
                    case Raw(text=text):
                        await websocket.send_text(text)
                    case Refuse():
                        retry = {} if step.retry_after_s is None else {"retry_after_s": step.retry_after_s}
                        await send("turn.error", {"error": {**step.error, **retry}})
        except asyncio.CancelledError:
            self.cancelled.append(turn)
            await send("turn.done", {"finish_reason": "cancelled", "usage": USAGE})
        finally:
            self.num_turns_running -= 1


def _delta(kind: str, fields: dict[str, Any]) -> dict[str, Any]:
    match kind:
        case "content.delta":
            return {"content": fields["text"]}
        case "reasoning.delta":
            return {"reasoning_content": fields["text"]}
        case "tool_call.start":
            function = {"name": fields["name"], "arguments": ""}
            first = {"index": fields["index"], "id": fields["id"], "type": "function", "function": function}
            return {"tool_calls": [first]}
        case "tool_call.delta":
            return {"tool_calls": [{"index": fields["index"], "function": {"arguments": fields["arguments"]}}]}
        case _:
            return {}


def _chunk(body: dict[str, Any], delta: dict[str, Any], finish_reason: str | None = None) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": body["model"]}
    return _data({**chunk, "choices": [choice]})


def _data(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"


def _error_answer(refusal: Refuse) -> JSONResponse:
    headers = {} if refusal.retry_after_s is None else {"retry-after": str(refusal.retry_after_s)}
    return JSONResponse({"error": refusal.error}, status_code=refusal.status, headers=headers)
