"""Turns on a real model: chat template and tokenizer on the way in, incremental detokenising on the way out.

The engine itself is another process (inference.engine_client); this module knows nothing of torch, HTTP or parsers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ParamSpec, Protocol, TypeVar

from gateway.errors import EngineDown, InternalError, InvalidRequest, from_inference
from gateway.past_reasoning import PastReasoning
from gateway.system_messages import SystemMessages
from gateway.types import (
    ChatMessage,
    ChatTurn,
    CompletionTurn,
    Continuation,
    EngineInfo,
    EngineStats,
    Prepared,
    SamplingParams,
    TextPiece,
    TokenCount,
    TokenLogprob,
    ToolUse,
    Turn,
)
from inference.errors import InferenceError
from inference.tokenizer import IncrementalDetokenizer, Tokenizer
from inference.types import TokenChunk, TokenLogprobs, TurnRequest
from stream_parser.dialect import Dialect

log = logging.getLogger("headrace.model_backend")

# Rendering and tokenising this much text takes about a millisecond; more of it moves to a thread.
_INLINE_CHARS = 4_000
_PROMPT_TAIL_CHARS = 4_096
# Stands where an answer was. Letters only: no template and no tokenizer changes them.
_MARK = "HeadraceAnswerGoesHere"
_MARK_ARGUMENTS = f'{{"mark": "{_MARK}"}}'
_P = ParamSpec("_P")
_R = TypeVar("_R")


class Tokens(Protocol):
    """What `Engine.submit` returns; see inference.engine_client.TokenStream."""

    async def __anext__(self) -> TokenChunk: ...

    def cancel(self) -> None: ...

    def cancel_choice(self, choice: int) -> None: ...


class Engine(Protocol):
    """What this module needs of inference.engine_client.EngineClient."""

    state: Any
    info: EngineInfo | None
    stats: EngineStats

    async def start(self) -> EngineInfo: ...

    def submit(self, request: TurnRequest) -> Tokens: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ModelPrompt(Prepared):
    """hidden_ids: tokens whose text is left out (special tokens, where the text is not parsed)."""

    request: TurnRequest
    hidden_ids: frozenset[int]


class ModelBackend:
    """dialect: how the model writes calls and reasoning; its parser reads special tokens by id."""

    def __init__(self, tokenizer: Tokenizer, engine: Engine, dialect: str | Dialect) -> None:
        self._tokenizer = tokenizer
        self._systems = SystemMessages(PastReasoning(tokenizer.render_chat).render)
        self._engine = engine
        self._dialect = dialect
        self._special_ids = frozenset(tokenizer.special_tokens.values())

    @property
    def is_ready(self) -> bool:
        return bool(self._engine.state == "ready")

    @property
    def models(self) -> None:
        return None

    @property
    def max_model_len(self) -> int | None:
        return None if self._engine.info is None else self._engine.info.max_model_len

    @property
    def stats(self) -> EngineStats | None:
        return self._engine.stats

    async def start(self) -> None:
        await self._engine.start()

    async def close(self) -> None:
        await self._engine.close()

    async def prepare(self, turn: Turn, turn_id: str) -> tuple[Prepared, ...]:
        """Raises InvalidRequest when the template refuses the messages. Long prompts are tokenised in a thread."""
        if isinstance(turn, CompletionTurn):
            return tuple([await self._prepare_prompt(turn, turn_id, i) for i in range(len(turn.prompts))])
        tools = () if turn.tool_choice == "none" else turn.tools
        text, token_ids = await _maybe_in_thread(_num_chars(turn), self._render, turn, tools)
        return (
            ModelPrompt(
                turn_id=turn_id,
                params=turn.params,
                n=turn.n,
                num_prompt_tokens=len(token_ids),
                prompt_text=text,
                dialect=self._dialect,
                prompt_tail=text[-_PROMPT_TAIL_CHARS:],
                vocab=self._tokenizer.vocab,
                tools=tools,
                request=TurnRequest(turn_id, tuple(token_ids), _engine_params(turn.params), turn.n, turn.cache_salt),
                hidden_ids=frozenset(),
                prompt_ids=tuple(token_ids),
            ),
        )

    async def _prepare_prompt(self, turn: CompletionTurn, turn_id: str, index: int) -> Prepared:
        prompt = turn.prompts[index]
        if isinstance(prompt, str):
            text = prompt
            encoded = await _maybe_in_thread(len(prompt), self._encode, prompt, turn.add_special_tokens)
            token_ids = tuple(encoded)
        else:
            token_ids = prompt
            text = self._tokenizer.decode(prompt) if turn.echo else ""
        part_id = turn_id if index == 0 else f"{turn_id}.{index}"
        return ModelPrompt(
            turn_id=part_id,
            params=turn.params,
            n=turn.n,
            num_prompt_tokens=len(token_ids),
            prompt_text=text,
            dialect=None,
            prompt_tail="",
            vocab=None,
            tools=(),
            request=TurnRequest(part_id, token_ids, turn.params, turn.n, turn.cache_salt),
            hidden_ids=self._special_ids if turn.skip_special_tokens else frozenset(),
        )

    def _render(self, turn: ChatTurn, tools: Sequence[Mapping[str, Any]]) -> tuple[str, list[int]]:
        past = turn.continues
        if past is not None and past.token_ids:
            rest = self._render_rest(turn, tools, past)
            if rest is not None:
                return rest, [*past.token_ids, *self._tokenizer.encode(rest)]
            log.warning("this model's template does not show where an answer ends: a session is rendered anew")
        text = self._render_text(turn, tools)
        return text, self._tokenizer.encode(text)

    def _render_rest(self, turn: ChatTurn, tools: Sequence[Mapping[str, Any]], past: Continuation) -> str | None:
        """What the template puts after the session's last answer; None where that cannot be told.

        The template sees a mark in the answer's place. Where the model closed its answer itself, the rest begins
        behind the token that it did so with, so calls (which some templates insist on) may stand between.
        """
        answer = turn.messages[past.num_messages - 1]
        calls = tuple(ToolUse(use.id, use.name, _MARK_ARGUMENTS) for use in answer.tool_uses) if past.is_closed else ()
        marked = ChatMessage("assistant", _MARK, answer.name, None, calls)
        messages = (*turn.messages[: past.num_messages - 1], marked, *turn.messages[past.num_messages :])
        try:
            _, mark, rest = self._render_text(replace(turn, messages=messages), tools).rpartition(_MARK)
        except InvalidRequest:
            return None
        if not past.is_closed:
            return rest if mark else None
        _, end, rest = rest.partition(self._tokenizer.decode(past.token_ids[-1:]))
        return rest if mark and end else None

    def _render_text(self, turn: ChatTurn, tools: Sequence[Mapping[str, Any]]) -> str:
        """Templates are programs that run on the client's input, so what breaks in one is the client's doing."""
        messages = template_messages(turn.messages)
        try:
            return self._systems.render(messages, tools or None, turn.template_kwargs) + turn.prefill
        except InferenceError as error:
            raise from_inference(error) from error
        except RecursionError as error:
            raise InvalidRequest("messages", "Something in these messages is nested too deeply to render.") from error
        except (ArithmeticError, LookupError, TypeError) as error:
            # A template argument that clashes with one of ours, or of a kind that the template does not expect.
            raise InvalidRequest("chat_template_kwargs", f"The chat template cannot take these: {error}.") from error

    def _encode(self, text: str, add_special_tokens: bool) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=add_special_tokens)

    def generate(self, prepared: Prepared) -> ModelPieces:
        assert isinstance(prepared, ModelPrompt)
        try:
            tokens = self._engine.submit(prepared.request)
        except InferenceError as error:
            raise from_inference(error) from error
        return ModelPieces(prepared, tokens, self._tokenizer)

    async def count_tokens(self, turn: Turn) -> TokenCount:
        return TokenCount(len(await self.tokenize(turn)))

    async def tokenize(self, turn: Turn) -> list[int]:
        if isinstance(turn, ChatTurn):
            _, token_ids = await _maybe_in_thread(_num_chars(turn), self._render, turn, turn.tools)
            return token_ids
        prompt = turn.prompts[0]
        assert isinstance(prompt, str)
        return await _maybe_in_thread(len(prompt), self._encode, prompt, turn.add_special_tokens)

    def detokenize(self, token_ids: list[int]) -> str:
        size = None if self._engine.info is None else self._engine.info.vocab_size
        if size is not None and token_ids and max(token_ids) >= size:
            raise InvalidRequest("tokens", f"Token id {max(token_ids)} is not in the vocabulary of {size} tokens.")
        return self._tokenizer.decode(token_ids)


class ModelPieces:
    """The engine's chunks of one prompt as text."""

    def __init__(self, prompt: ModelPrompt, tokens: Tokens, tokenizer: Tokenizer) -> None:
        self._tokens = tokens
        self._tokenizer = tokenizer
        self._hidden_ids = prompt.hidden_ids
        self._detokenizers = [tokenizer.detokenizer() for _ in range(prompt.n)]

    async def taken(self, timeout_s: float) -> None:
        """The engine has said so to `submit`."""

    def __aiter__(self) -> ModelPieces:
        return self

    async def __anext__(self) -> TextPiece:
        try:
            chunk = await self._tokens.__anext__()
        except InferenceError as error:
            raise from_inference(error) from error
        return self._piece(chunk)

    def end_choice(self, choice: int) -> None:
        self._tokens.cancel_choice(choice)

    def close(self) -> None:
        self._tokens.cancel()

    def _piece(self, chunk: TokenChunk) -> TextPiece:
        reason = chunk.finish_reason
        if reason == "error":
            raise EngineDown(chunk.error or "The engine failed this turn.", retry_after_s=1.0)
        if reason == "cancelled":
            raise InternalError("The engine cancelled this turn.")
        token_ids, entries = chunk.token_ids, chunk.logprobs
        if chunk.stop_token_id is not None and token_ids and token_ids[-1] == chunk.stop_token_id:
            token_ids, entries = token_ids[:-1], entries[: len(token_ids) - 1]
        if self._hidden_ids:
            token_ids = tuple([token_id for token_id in token_ids if token_id not in self._hidden_ids])

        detokenizer = self._detokenizers[chunk.choice]
        logprobs: tuple[TokenLogprob, ...] = ()
        if entries:
            text, logprobs = self._with_logprobs(detokenizer, token_ids, entries)
        else:
            text = detokenizer.feed(token_ids)
        if reason is not None:
            text += detokenizer.flush()
        return TextPiece(
            choice=chunk.choice,
            text=text,
            token_ids=token_ids,
            num_tokens=len(chunk.token_ids),
            output_ids=chunk.token_ids,
            logprobs=logprobs,
            finish_reason=reason,
            num_cached_tokens=chunk.num_cached_tokens,
        )

    def _with_logprobs(
        self, detokenizer: IncrementalDetokenizer, visible_ids: Sequence[int], entries: Sequence[TokenLogprobs]
    ) -> tuple[str, tuple[TokenLogprob, ...]]:
        """Token by token, to learn how much text each gave. Tokens without visible text keep their entry."""
        waiting = list(visible_ids)
        texts: list[str] = []
        found: list[TokenLogprob] = []
        for entry in entries:
            text = ""
            if waiting and waiting[0] == entry.token_id:
                text = detokenizer.feed([waiting.pop(0)])
            texts.append(text)
            top = tuple((self._tokenizer.decode([token_id]), logprob) for token_id, logprob in entry.top)
            found.append(TokenLogprob(self._tokenizer.decode([entry.token_id]), entry.logprob, top, len(text)))
        return "".join(texts), tuple(found)


def template_messages(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """Messages as chat templates expect them (Transformers' chat templating guide, 2026-11)."""
    tool_names = {use.id: use.name for message in messages for use in message.tool_uses}
    return [_template_message(message, tool_names) for message in messages]


def _template_message(message: ChatMessage, tool_names: Mapping[str, str]) -> dict[str, Any]:
    # Templates know no developer role; it is OpenAI's newer name for the system's.
    role = "system" if message.role == "developer" else message.role
    fields: dict[str, Any] = {"role": role, "content": message.content}
    if message.reasoning is not None:
        fields["reasoning_content"] = message.reasoning
    if message.tool_uses:
        fields["tool_calls"] = [
            {"id": use.id, "type": "function", "function": {"name": use.name, "arguments": use.arguments}}
            for use in message.tool_uses
        ]
    if message.tool_call_id is not None:
        fields["tool_call_id"] = message.tool_call_id
    name = message.name or tool_names.get(message.tool_call_id or "")
    if name is not None:
        fields["name"] = name
    return fields


def _engine_params(params: SamplingParams) -> SamplingParams:
    """The engine reads a prompt only to write at least one token after it."""
    return replace(params, max_tokens=1, min_tokens=0) if params.max_tokens == 0 else params


def _num_chars(turn: ChatTurn) -> int:
    return sum(len(message.content) for message in turn.messages) + 500 * len(turn.tools)


async def _maybe_in_thread(num_chars: int, function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    if num_chars <= _INLINE_CHARS:
        return function(*args, **kwargs)
    return await asyncio.to_thread(function, *args, **kwargs)
