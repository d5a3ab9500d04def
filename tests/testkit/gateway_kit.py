"""Fakes and drivers for tests of the gateway: an engine without a model, a byte tokenizer, a server on a free port."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from gateway.app import GatewayApp
from gateway.backend import Backend
from gateway.config import GatewayConfig
from gateway.listener import listen
from gateway.model_backend import ModelBackend
from gateway.scripted import ScriptedBackend, ScriptLine
from gateway.serve import GatewayServer
from gateway.types import Prepared, SamplingParams
from inference.errors import EngineUnavailable
from inference.types import EngineInfo, EngineStats, TokenChunk, TurnRequest

MODEL = "test-model"
SPECIAL_TOKENS = {"<|im_start|>": 256, "<|im_end|>": 257, "<think>": 258, "</think>": 259}
_SPECIAL_NAMES = {number: name for name, number in SPECIAL_TOKENS.items()}

Reply = Callable[[TurnRequest], Iterable[TokenChunk]]


class ByteTokenizer:
    """Ids are UTF-8 bytes, and a few special tokens above them. The template is ChatML."""

    chat_template: str | None = "chatml"
    special_tokens: Mapping[str, int] = SPECIAL_TOKENS
    vocab: Mapping[str, int] = SPECIAL_TOKENS

    def __init__(self) -> None:
        self.rendered: list[tuple[Sequence[Mapping[str, Any]], Any, dict[str, Any]]] = []

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        return list(text.encode())

    def decode(self, token_ids: Sequence[int]) -> str:
        detokenizer = self.detokenizer()
        return detokenizer.feed(token_ids) + detokenizer.flush()

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        add_generation_prompt: bool = True,
        **template_variables: Any,
    ) -> str:
        self.rendered.append((messages, tools, template_variables))
        lines = [f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n" for message in messages]
        return "".join(lines) + "<|im_start|>assistant\n"

    def detokenizer(self) -> ByteDetokenizer:
        return ByteDetokenizer()


class ByteDetokenizer:
    def __init__(self) -> None:
        self._bytes = b""

    def feed(self, token_ids: Sequence[int]) -> str:
        text = ""
        for token_id in token_ids:
            if token_id in _SPECIAL_NAMES:
                text += self.flush() + _SPECIAL_NAMES[token_id]
                continue
            self._bytes += bytes([token_id])
            try:
                text += self._bytes.decode()
            except UnicodeDecodeError:
                continue
            self._bytes = b""
        return text

    def flush(self) -> str:
        text, self._bytes = self._bytes.decode(errors="replace"), b""
        return text


class FakeClock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class FakeTokens:
    """The tokens of one turn; see inference.engine_client.TokenStream."""

    def __init__(self, engine: FakeEngine, request: TurnRequest) -> None:
        self.request = request
        self.is_cancelled = False
        self.chunks: asyncio.Queue[TokenChunk | Exception] = asyncio.Queue()
        self.cancelled_choices: list[int] = []
        self._engine = engine
        self._open = set(range(request.n))

    def __aiter__(self) -> FakeTokens:
        return self

    async def __anext__(self) -> TokenChunk:
        while self._open:
            chunk = await self.chunks.get()
            if isinstance(chunk, Exception):
                raise chunk
            if chunk.choice in self._open:
                if chunk.finish_reason is not None:
                    self._end(chunk.choice)
                return chunk
        raise StopAsyncIteration

    def _end(self, choice: int) -> None:
        self._open.discard(choice)
        if not self._open:
            self._engine.end(self.request.turn_id)

    def cancel(self) -> None:
        if self._engine.end(self.request.turn_id):
            self.is_cancelled = True

    def cancel_choice(self, choice: int) -> None:
        self.cancelled_choices.append(choice)
        self._end(choice)

    def push(self, chunk: TokenChunk | Exception) -> None:
        self.chunks.put_nowait(chunk)


class FakeEngine:
    """The interface of inference.engine_client.EngineClient. `reply` gives a turn's chunks; without one the test
    pushes them into `live[turn_id]`. `refusal` is raised by the next submits."""

    def __init__(self, reply: Reply | None = None) -> None:
        self.state = "ready"
        self.info: EngineInfo | None = engine_info()
        self.live: dict[str, FakeTokens] = {}
        self.requests: list[TurnRequest] = []
        self.num_cancelled = 0
        self.refusal: Exception | None = None
        self._reply = reply

    @property
    def stats(self) -> EngineStats:
        return EngineStats(num_running=len(self.live), num_blocks=100, num_blocks_in_use=len(self.live))

    async def start(self) -> EngineInfo:
        assert self.info is not None
        return self.info

    async def close(self) -> None:
        self.state = "closed"

    def submit(self, request: TurnRequest) -> FakeTokens:
        if self.refusal is not None:
            raise self.refusal
        if self.state != "ready":
            raise EngineUnavailable(f"The engine is {self.state}.")
        self.requests.append(request)
        tokens = FakeTokens(self, request)
        self.live[request.turn_id] = tokens
        for chunk in self._reply(request) if self._reply else ():
            tokens.push(chunk)
        return tokens

    def end(self, turn_id: str) -> bool:
        return self.live.pop(turn_id, None) is not None

    def die(self) -> None:
        self.state = "restarting"
        for tokens in tuple(self.live.values()):
            tokens.push(EngineUnavailable("The engine stopped while this turn ran."))


def engine_info(max_model_len: int = 1000) -> EngineInfo:
    return EngineInfo(
        model_name=MODEL,
        architecture="TestForCausalLM",
        device="cpu",
        dtype="fp32",
        attention_backend="none",
        max_model_len=max_model_len,
        vocab_size=260,
        eos_token_ids=(257,),
        block_size=16,
        num_blocks=100,
        kv_bytes=1 << 20,
        num_parameters=1,
    )


def token_chunks(request: TurnRequest, text: str, *, choice: int = 0, stop_token_id: int = 257) -> list[TokenChunk]:
    """A reply of one byte a step that ends with a stop token."""
    ids = list(text.encode())
    chunks = [TokenChunk(request.turn_id, choice, (token_id,)) for token_id in ids]
    return [*chunks, TokenChunk(request.turn_id, choice, (stop_token_id,), (), "stop", stop_token_id)]


def prepared(
    *,
    dialect: str | None = "hermes",
    params: SamplingParams | None = None,
    n: int = 1,
    tools: Sequence[Mapping[str, Any]] = (),
    vocab: Mapping[str, int] | None = None,
) -> Prepared:
    return Prepared("turn_1", params or SamplingParams(), n, 7, "", dialect, "", vocab, tuple(tools))


def model_backend(engine: FakeEngine, tokenizer: ByteTokenizer | None = None) -> ModelBackend:
    return ModelBackend(tokenizer or ByteTokenizer(), engine, "hermes")


def scripted(*lines: ScriptLine | str) -> ScriptedBackend:
    return ScriptedBackend(tuple(line if isinstance(line, ScriptLine) else ScriptLine(line) for line in lines))


def gateway_config(**changes: Any) -> GatewayConfig:
    defaults: dict[str, Any] = {"served_names": (MODEL,), "port": 0, "drain_s": 0.05}
    return GatewayConfig(**{**defaults, **changes})


@dataclass(frozen=True, slots=True)
class RunningGateway:
    app: GatewayApp
    server: GatewayServer
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def ws_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/stream"

    async def settled(self) -> None:
        """Returns when no turn is left and no stream is open; fails after a while."""
        for _ in range(2000):
            if not (self.app.admission.num_live or +Counter(self.app.metrics.num_open_streams) or _turn_tasks()):
                return
            await asyncio.sleep(0.005)
        raise AssertionError(f"{self.app.admission.num_live} turns live, tasks: {_turn_tasks()}")


def _turn_tasks() -> list[str]:
    """Names of tasks that belong to turns or to their connections."""
    names = [task.get_name() for task in asyncio.all_tasks()]
    return [name for name in names if name.startswith(("turn ", "watch ", "websocket writer"))]


class _PromptServer(GatewayServer):
    """uvicorn looks ten times a second whether it is to end, and tests end hundreds of servers."""

    async def main_loop(self) -> None:
        counter = 0
        while not await self.on_tick(counter):
            counter = 1  # at 0 the Date header is made anew
            await asyncio.sleep(0.005)


@asynccontextmanager
async def running_gateway(
    backend: Backend, send_buffer_bytes: int | None = None, **config_changes: Any
) -> AsyncIterator[RunningGateway]:
    """A real server on a free port, in this event loop. send_buffer_bytes: the kernel's, of each connection."""
    config = gateway_config(**config_changes)
    app = GatewayApp(backend, config)
    server = _PromptServer(app, config)
    listener = listen("127.0.0.1", 0)
    if send_buffer_bytes is not None:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:
        assert not serving.done()
        await asyncio.sleep(0.002)
    try:
        yield RunningGateway(app, server, listener.getsockname()[1])
    finally:
        server.should_exit = True
        await serving
        await backend.close()


def time_factor() -> float:
    """How much longer things may take here: HEADRACE_TEST_TIME_FACTOR, or what the machine's load says."""
    given = os.environ.get("HEADRACE_TEST_TIME_FACTOR")
    return float(given) if given else max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def chat_body(text: str = "Hi", **fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], **fields}


def weather_tool(name: str = "weather") -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    return {"type": "function", "function": {"name": name, "description": "The weather", "parameters": parameters}}


def sse_events(text: str) -> Iterator[Any]:
    """The data of each event, as JSON where it is JSON; comments are left out."""
    for block in text.split("\n\n"):
        for line in block.split("\n"):
            if line.startswith("data: "):
                data = line.removeprefix("data: ")
                yield data if data == "[DONE]" else json.loads(data)


def content_of(chunks: Iterable[Any]) -> str:
    """The visible text of a chat stream's first choice."""
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk != "[DONE]" and chunk["choices"]]
    return "".join(delta.get("content") or "" for delta in deltas)
