"""Turns on another OpenAI-compatible server: each becomes one streamed request, whose chunks the normalizer repairs.

No model, no tokenizer and no engine are here: prompts are counted by their length until the upstream counts them, and
sessions go on by their messages. Knows nothing of the protocols that turns came in by.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass

import orjson

from gateway.errors import GatewayError, InvalidRequest, NotAvailable, UpstreamMisconfigured
from gateway.types import ChatTurn, ChunkReading, CompletionTurn, EngineStats, Prepared, TokenCount, Turn
from gateway.upstream_client import UpstreamClient
from gateway.upstream_habits import UpstreamHabits
from gateway.upstream_models import UpstreamModels
from gateway.upstream_request import RequestStyle, chat_request, completion_request
from gateway.upstream_settings import UpstreamSettings
from gateway.upstream_streams import ChatStream, CompletionStream, NoAnswer, UpstreamStream

log = logging.getLogger("headrace.upstream")

_FIRST_PROBE_S = 0.5
_FIRST_PAUSE_S = 0.25
_MAX_PROBE_S = 10.0


@dataclass(frozen=True, slots=True)
class UpstreamPrompt(Prepared):
    path: str
    body: bytes


class UpstreamBackend:
    """Make it in the event loop's thread; connections are made from `start` on. max_turns bounds them.

    probe_s: the first pause between looks for an upstream that is not there; later ones are longer. pause_s: the same
    between tries of one request.
    """

    def __init__(
        self,
        settings: UpstreamSettings,
        max_turns: int,
        *,
        probe_s: float = _FIRST_PROBE_S,
        pause_s: float = _FIRST_PAUSE_S,
    ) -> None:
        self._settings = settings
        self._probe_s = probe_s
        self._habits = UpstreamHabits()
        self._client = UpstreamClient(settings, max_turns, pause_s)
        self._models = UpstreamModels(self._client, time.monotonic)
        self._is_started = False
        self._watcher: asyncio.Task[None] | None = None

    @property
    def is_ready(self) -> bool:
        return self._is_started and not self._client.lost.is_set()

    @property
    def models(self) -> UpstreamModels | None:
        return None if self._settings.model is not None else self._models

    @property
    def forces(self) -> bool:
        return True

    @property
    def max_model_len(self) -> int | None:
        return None

    @property
    def info(self) -> None:
        return None

    @property
    def stats(self) -> EngineStats | None:
        return None

    async def start(self) -> None:
        """Waits for the upstream as long as it takes. Raises UpstreamMisconfigured where waiting will not help."""
        await self._reach()
        model, names = self._settings.model, self._models.names
        if model is not None and names and model not in names:
            log.warning("the upstream does not list %s; it lists %s", model, ", ".join(names))
        self._is_started = True
        self._watcher = asyncio.create_task(self._watch(), name="upstream watch")

    async def _watch(self) -> None:
        """While the upstream cannot be reached, /ready says so, and so clients may not come: somebody has to look."""
        while True:
            await self._client.lost.wait()
            try:
                await self._reach()
            except UpstreamMisconfigured as error:
                log.error("%s", error.message)
                await asyncio.sleep(_MAX_PROBE_S)

    async def _reach(self) -> None:
        pause_s = self._probe_s
        while True:
            try:
                await self._models.refresh()
                return
            except UpstreamMisconfigured:
                raise
            except GatewayError as error:
                log.warning("the upstream %s is not ready: %s", self._settings.url, error.message)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _MAX_PROBE_S)

    async def close(self) -> None:
        self._is_started = False
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.wait([self._watcher])
        await self._client.close()

    async def prepare(self, turn: Turn, turn_id: str) -> tuple[Prepared, ...]:
        if isinstance(turn, CompletionTurn):
            return tuple(self._prepare_prompt(turn, turn_id, i) for i in range(len(turn.prompts)))
        body = self._chat_body(turn)
        return (
            UpstreamPrompt(
                turn_id=turn_id,
                params=turn.params,
                n=turn.n,
                num_prompt_tokens=self._habits.num_tokens(len(body)),
                prompt_text="",
                dialect=None,
                prompt_tail="",
                vocab=None,
                tools=() if turn.tool_choice == "none" else turn.tools,
                path="/chat/completions",
                body=body,
                chunks=ChunkReading(self._settings.content_dialect),
            ),
        )

    def _prepare_prompt(self, turn: CompletionTurn, turn_id: str, index: int) -> Prepared:
        prompt = turn.prompts[index]
        if turn.echo and not isinstance(prompt, str):
            raise InvalidRequest("echo", "echo needs the prompt as a text: the tokenizer is the upstream's.")
        body = orjson.dumps(completion_request(turn, self._model(turn), index))
        return UpstreamPrompt(
            turn_id=turn_id if index == 0 else f"{turn_id}.{index}",
            params=turn.params,
            n=turn.n,
            num_prompt_tokens=self._habits.num_tokens(len(body)) if isinstance(prompt, str) else len(prompt),
            prompt_text=prompt if isinstance(prompt, str) else "",
            dialect=None,
            prompt_tail="",
            vocab=None,
            tools=(),
            path="/completions",
            body=body,
        )

    def _chat_body(self, turn: ChatTurn) -> bytes:
        style = RequestStyle(self._settings.max_tokens_field, self._settings.reasoning, self._habits.reasoning_field)
        return orjson.dumps(chat_request(turn, self._model(turn), style))

    def _model(self, turn: Turn) -> str:
        return self._settings.model or self._models.resolve(turn.model)

    def generate(self, prepared: Prepared) -> UpstreamStream | NoAnswer:
        assert isinstance(prepared, UpstreamPrompt)
        if prepared.params.max_tokens == 0:
            return NoAnswer()
        kind = CompletionStream if prepared.chunks is None else ChatStream
        deadline_s = self._settings.deadline_s
        return kind(self._client, self._habits, prepared.path, prepared.body, prepared.turn_id, prepared.n, deadline_s)

    async def count_tokens(self, turn: Turn) -> TokenCount:
        assert isinstance(turn, ChatTurn)
        return TokenCount(self._habits.num_tokens(len(self._chat_body(turn))), is_estimate=True)

    async def tokenize(self, turn: Turn) -> list[int]:
        raise _no_tokenizer()

    def detokenize(self, token_ids: list[int]) -> str:
        raise _no_tokenizer()


def _no_tokenizer() -> NotAvailable:
    return NotAvailable("This server has no tokenizer: its answers come from an upstream. Ask that one.")
