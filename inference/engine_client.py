"""The gateway's side of the engine process: starts it, restarts it, hands turns in and tokens out.

Asyncio; all methods belong to one event loop. Knows nothing of text or wire formats, and imports no torch.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pickle
from typing import Literal

from inference import channel
from inference.config import EngineConfig
from inference.engine_launch import EngineProcess
from inference.errors import ContextLengthExceeded, EngineUnavailable, InvalidTurn, ModelLoadError, QueueFull
from inference.types import EngineInfo, EngineStats, TokenChunk, TurnRequest

logger = logging.getLogger("headrace.engine")

State = Literal["starting", "ready", "restarting", "closed"]

_BACKOFF_FIRST_S, _BACKOFF_MOST_S = 0.5, 30.0
_CLOSE_WAIT_S = 1.0
_RETRY_AFTER_S = 1.0


class TokenStream:
    """The tokens of one turn, in order, over all its choices. Iterate to the end or cancel; both are final.

    Raises EngineUnavailable when the engine dies. Unread chunks wait without bound, but no more than max_tokens.
    """

    def __init__(self, client: EngineClient, request: TurnRequest) -> None:
        self._client = client
        self._turn_id = request.turn_id
        self._open = set(range(request.n))  # choices whose end has not been read
        self._chunks: asyncio.Queue[TokenChunk | EngineUnavailable] = asyncio.Queue()

    def __aiter__(self) -> TokenStream:
        return self

    async def __anext__(self) -> TokenChunk:
        while self._open:
            chunk = await self._chunks.get()
            if isinstance(chunk, EngineUnavailable):
                self._open.clear()
                raise chunk
            if chunk.choice in self._open:
                if chunk.finish_reason is not None:
                    self._open.discard(chunk.choice)
                return chunk
        raise StopAsyncIteration

    def cancel(self) -> None:
        """Free what the turn holds in the engine; idempotent, and harmless after the end."""
        self._open.clear()
        self._client._cancel(self._turn_id)

    def cancel_choice(self, choice: int) -> None:
        """Free what one choice holds, while the others go on; no more of it is read. As harmless as `cancel`."""
        self._open.discard(choice)
        self._client._cancel_choice(self._turn_id, choice)

    def _put(self, chunk: TokenChunk | EngineUnavailable) -> None:
        self._chunks.put_nowait(chunk)


class EngineClient:
    """One engine process. `info` is None until it is first ready; `stats` is as of its last step.

    started: a process to serve from, which is this client's from then on; None: it starts one itself.

    >>> client = EngineClient(config); await client.start()
    >>> async for chunk in client.submit(request): ...
    >>> await client.close()
    """

    def __init__(self, config: EngineConfig, started: EngineProcess | None = None) -> None:
        self._config = config
        self._streams: dict[str, tuple[TokenStream, set[int]]] = {}  # turn id -> its stream and its unfinished choices
        self._started = started
        self._process: EngineProcess | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self.state: State = "starting"
        self.info: EngineInfo | None = None
        self.stats = EngineStats()
        self.num_restarts = 0

    async def start(self) -> EngineInfo:
        """Start the process and wait until the model is loaded. Raises ModelLoadError."""
        reader = await self._launch()
        info = await self._wait_ready(reader)
        self._supervisor = asyncio.create_task(self._supervise(reader), name="headrace-engine-supervisor")
        return info

    def submit(self, request: TurnRequest) -> TokenStream:
        """Queue a turn. Raises InvalidTurn, ContextLengthExceeded, QueueFull or EngineUnavailable at once."""
        if self.state != "ready" or self.info is None or self._writer is None:
            raise EngineUnavailable(f"The engine is {self.state}; try again shortly.")
        check(request, self.info, self._config.max_rows)
        if request.turn_id in self._streams:
            raise InvalidTurn("turn_id", f"A turn {request.turn_id!r} is already running.")
        num_live = sum(len(choices) for _, choices in self._streams.values())
        if num_live >= self._config.max_rows + self._config.max_waiting:
            raise QueueFull(num_live - self._config.max_rows, self._config.max_waiting, _RETRY_AFTER_S)
        stream = TokenStream(self, request)
        self._streams[request.turn_id] = (stream, set(range(request.n)))
        self._send(channel.Submit(request))
        return stream

    async def close(self) -> None:
        """End the process and every stream. Takes at most a second or so; idempotent."""
        self.state = "closed"
        if self._supervisor is not None:
            self._supervisor.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._supervisor
        self._fail_streams("The server is shutting down.")
        await self._end_process()

    def _cancel(self, turn_id: str) -> None:
        if self._streams.pop(turn_id, None) is not None and self.state == "ready":
            self._send(channel.Cancel(turn_id))

    def _cancel_choice(self, turn_id: str, choice: int) -> None:
        if self._end_choice(turn_id, choice) and self.state == "ready":
            self._send(channel.Cancel(turn_id, choice))

    def _end_choice(self, turn_id: str, choice: int) -> bool:
        """Whether it had not ended before. The last one ends the turn."""
        _, choices = self._streams.get(turn_id, (None, set()))
        if choice not in choices:
            return False
        choices.discard(choice)
        if not choices:
            del self._streams[turn_id]
        return True

    def _send(self, command: channel.Command) -> None:
        assert self._writer is not None
        self._writer.write(channel.encode(command))

    # The process

    async def _launch(self) -> asyncio.StreamReader:
        self._process, self._started = self._started or EngineProcess(self._config.device), None
        reader, self._writer = await asyncio.open_connection(sock=self._process.connection)
        self._writer.write(channel.encode(self._config))
        return reader

    async def _wait_ready(self, reader: asyncio.StreamReader) -> EngineInfo:
        try:
            report = await _read(reader)
        except EOFError:
            await self._end_process()
            raise ModelLoadError("The engine process ended while it loaded the model; its log says why.") from None
        match report:
            case channel.Ready(info):
                assert self._process is not None
                self._process.loaded()
                self.info = info
                self.stats = EngineStats(num_blocks=info.num_blocks)
                self.state = "ready"
                return info
            case channel.Failed(message):
                await self._end_process()
                raise ModelLoadError(message)
            case _:
                raise AssertionError(f"{report!r} before Ready")

    async def _supervise(self, reader: asyncio.StreamReader) -> None:
        """Deliver reports; when the process dies, fail its turns and start another, later and later."""
        backoff_s = _BACKOFF_FIRST_S
        while True:
            served = await self._deliver(reader)
            backoff_s = _BACKOFF_FIRST_S if served else min(2 * backoff_s, _BACKOFF_MOST_S)
            self.state = "restarting"
            self.stats = EngineStats(num_blocks=self.stats.num_blocks)
            self._fail_streams("The engine stopped while this turn ran. It is being restarted; please try again.")
            await self._end_process()
            reader = await self._restart(backoff_s)

    async def _deliver(self, reader: asyncio.StreamReader) -> bool:
        """Route chunks until the process is gone; returns whether it had completed a step."""
        served = False
        with contextlib.suppress(EOFError):
            while True:
                report = await _read(reader)
                assert isinstance(report, channel.StepDone)
                served = True
                self.stats = report.stats
                for chunk in report.chunks:
                    self._route(chunk)
        return served

    def _route(self, chunk: TokenChunk) -> None:
        stream, _ = self._streams.get(chunk.turn_id, (None, None))
        if stream is None:
            return  # cancelled while the step ran
        if chunk.finish_reason is not None:
            self._end_choice(chunk.turn_id, chunk.choice)
        stream._put(chunk)

    async def _restart(self, backoff_s: float) -> asyncio.StreamReader:
        while True:
            logger.warning("the engine process is gone; starting another in %.1f s", backoff_s)
            await asyncio.sleep(backoff_s)
            self.num_restarts += 1
            try:
                reader = await self._launch()
                await self._wait_ready(reader)
                return reader
            except (ModelLoadError, OSError) as error:
                logger.error("the engine did not start: %s", error)
                backoff_s = min(2 * backoff_s, _BACKOFF_MOST_S)

    def _fail_streams(self, message: str) -> None:
        streams, self._streams = self._streams, {}
        for stream, _ in streams.values():
            stream._put(EngineUnavailable(message))

    async def _end_process(self) -> None:
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()
            self._writer = None
        process, self._process = self._process, None
        if process is not None:
            await asyncio.to_thread(process.end, _CLOSE_WAIT_S)


def check(request: TurnRequest, info: EngineInfo, max_rows: int) -> None:
    """Raise InvalidTurn unless the engine can run the request; names the field, the value and what would do.

    An answer that would outgrow the context is not an error: it ends with finish_reason "length" there.
    """
    prompt, params = request.prompt_token_ids, request.params
    if not prompt:
        raise InvalidTurn("prompt", "The prompt has no tokens. Give at least one.")
    if len(prompt) >= info.max_model_len:
        raise ContextLengthExceeded(len(prompt), info.max_model_len, info.context_bound)
    for field, token_ids in (
        ("prompt", prompt),
        ("logit_bias", tuple(token_id for token_id, _ in params.logit_bias)),
        ("stop_token_ids", params.stop_token_ids),
    ):
        if token_ids and not (min(token_ids) >= 0 and max(token_ids) < info.vocab_size):
            bad = next(token_id for token_id in token_ids if not 0 <= token_id < info.vocab_size)
            raise InvalidTurn(field, f"Token id {bad} is not in the vocabulary: ids are 0 to {info.vocab_size - 1}.")
    if params.max_tokens is not None and params.max_tokens < 1:
        raise InvalidTurn("max_tokens", f"max_tokens must be at least 1, got {params.max_tokens}.")
    if not 1 <= request.n <= max_rows:
        raise InvalidTurn("n", f"n must be from 1 to {max_rows}, got {request.n}.")


async def _read(reader: asyncio.StreamReader) -> channel.Report:
    try:
        (length,) = channel.HEADER.unpack(await reader.readexactly(channel.HEADER.size))
        report: channel.Report = pickle.loads(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise EOFError from error
    return report
