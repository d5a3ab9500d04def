"""Turns on a real model: chat template and tokenizer on the way in, incremental detokenising on the way out.

The engine itself is another process (inference.engine_client); this module knows nothing of torch, HTTP or parsers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from gateway.errors import InvalidRequest, from_inference
from gateway.model_pieces import ModelPieces, ModelPrompt, Tokens
from gateway.past_reasoning import PastReasoning
from gateway.protocols.fields import named
from gateway.schema_checks import partly_enforced
from gateway.system_messages import SystemMessages
from gateway.template_input import PARAM, is_long, template_messages, usable_arguments
from gateway.threads import in_thread_if
from gateway.turn_grammar import TurnGrammars
from gateway.types import (
    ChatMessage,
    ChatTurn,
    CompletionTurn,
    Continuation,
    EngineInfo,
    EngineStats,
    Prepared,
    SamplingParams,
    TokenCount,
    ToolUse,
    Turn,
)
from inference.errors import ContextLengthExceeded, InferenceError
from inference.grammar.source import GrammarSource
from inference.tokenizer import Tokenizer
from inference.types import TurnRequest
from stream_parser.dialect import Dialect

log = logging.getLogger("headrace.model_backend")

# Rendering and tokenising this much text takes about a millisecond; more of it moves to a thread.
_INLINE_CHARS = 4_000
_PROMPT_TAIL_CHARS = 4_096
_MAX_NAMED = 8
# Stands where an answer was. Letters only: no template and no tokenizer changes them.
_MARK = "HeadraceAnswerGoesHere"
_MARK_ARGUMENTS = f'{{"mark": "{_MARK}"}}'


class Engine(Protocol):
    """What this module needs of inference.engine_client.EngineClient."""

    state: Any
    info: EngineInfo | None
    stats: EngineStats

    async def start(self) -> EngineInfo: ...

    def submit(self, request: TurnRequest) -> Tokens: ...

    async def close(self) -> None: ...


class ModelBackend:
    """dialect: how the model writes calls and reasoning; its parser reads special tokens by id. max_chars_per_token: of
    the tokenizer; with it, texts that cannot fit into the context are refused without being tokenised."""

    def __init__(
        self, tokenizer: Tokenizer, engine: Engine, dialect: str | Dialect, max_chars_per_token: int | None = None,
        grammars: TurnGrammars | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._systems = SystemMessages(PastReasoning(tokenizer.render_chat).render)
        self._engine = engine
        self._max_chars_per_token = max_chars_per_token
        self._dialect = dialect
        self._grammars = grammars
        self._special_ids = frozenset(tokenizer.special_tokens.values())

    @property
    def is_ready(self) -> bool:
        return bool(self._engine.state == "ready")

    @property
    def models(self) -> None:
        return None

    @property
    def forces(self) -> bool:
        return self._grammars is not None

    @property
    def max_model_len(self) -> int | None:
        return None if self._engine.info is None else self._engine.info.max_model_len

    @property
    def info(self) -> EngineInfo | None:
        return self._engine.info

    @property
    def stats(self) -> EngineStats | None:
        return self._engine.stats

    async def start(self) -> None:
        info = await self._engine.start()
        if self._grammars is not None and not await asyncio.to_thread(self._grammars.warm, info):
            self._grammars = None

    async def close(self) -> None:
        await self._engine.close()

    async def prepare(self, turn: Turn, turn_id: str) -> tuple[Prepared, ...]:
        """Raises InvalidRequest when the template refuses the messages. Long prompts are tokenised in a thread."""
        if isinstance(turn, CompletionTurn):
            grammar = await self._grammar(turn, "")
            return tuple([await self._prepare_prompt(turn, turn_id, i, grammar) for i in range(len(turn.prompts))])
        tools = () if turn.tool_choice == "none" else turn.tools
        text, token_ids = await in_thread_if(is_long(turn, tools, _INLINE_CHARS), self._render, turn, tools, True)
        prompt_tail = text[-_PROMPT_TAIL_CHARS:]
        grammar = await self._grammar(turn, prompt_tail)
        params = _engine_params(turn.params)
        return (
            ModelPrompt(
                turn_id=turn_id,
                params=turn.params,
                n=turn.n,
                num_prompt_tokens=len(token_ids),
                prompt_text=text,
                dialect=self._dialect,
                prompt_tail=prompt_tail,
                vocab=self._tokenizer.vocab,
                tools=tools,
                request=TurnRequest(turn_id, tuple(token_ids), params, turn.n, turn.cache_salt, grammar),
                hidden_ids=frozenset(),
                prompt_ids=tuple(token_ids),
                partly_enforced=partly_enforced(turn, grammar),
                calls_only=grammar is not None and turn.tool_choice not in ("auto", "none"),
            ),
        )

    async def _grammar(self, turn: Turn, prompt_tail: str) -> GrammarSource | None:
        info = self._engine.info
        if self._grammars is None or info is None or not self._grammars.is_needed(turn):
            return None
        return await asyncio.to_thread(self._grammars.of, turn, info, prompt_tail)

    async def _prepare_prompt(
        self, turn: CompletionTurn, turn_id: str, index: int, grammar: GrammarSource | None
    ) -> Prepared:
        prompt = turn.prompts[index]
        if isinstance(prompt, str):
            text = prompt
            self._check_fits(len(prompt))
            is_long = len(prompt) > _INLINE_CHARS
            encoded = await in_thread_if(is_long, self._encode, prompt, turn.add_special_tokens)
            token_ids = tuple(encoded)
        else:
            token_ids = prompt
            is_long = len(prompt) > _INLINE_CHARS
            text = await in_thread_if(is_long, self._tokenizer.decode, prompt) if turn.echo else ""
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
            request=TurnRequest(part_id, token_ids, turn.params, turn.n, turn.cache_salt, grammar),
            hidden_ids=self._special_ids if turn.skip_special_tokens else frozenset(),
            partly_enforced=partly_enforced(turn, grammar),
        )

    def _render(
        self, turn: ChatTurn, tools: Sequence[Mapping[str, Any]], must_fit: bool = False
    ) -> tuple[str, list[int]]:
        """must_fit: raises InvalidRequest for what is certainly too long for the model."""
        past = turn.continues
        if past is not None and past.token_ids:
            rest = self._render_rest(turn, tools, past)
            if rest is not None:
                return rest, [*past.token_ids, *self._tokenizer.encode(rest)]
            log.warning("this model's template does not show where an answer ends: a session is rendered anew")
        text = self._render_text(turn, tools)
        if must_fit:
            self._check_fits(len(text))
        return text, self._tokenizer.encode(text)

    def _check_fits(self, num_chars: int) -> None:
        info = self._engine.info
        if info is None or self._max_chars_per_token is None:
            return
        num_tokens = num_chars // self._max_chars_per_token
        if num_tokens >= info.max_model_len:
            error = ContextLengthExceeded(num_tokens, info.max_model_len, info.context_bound, is_at_least=True)
            raise from_inference(error)

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
        arguments = usable_arguments(turn.template_kwargs)
        try:
            return self._systems.render(messages, tools or None, arguments) + turn.prefill
        except InferenceError as error:
            raise self._blamed(error, messages, tools, arguments) from error
        except RecursionError as error:
            raise InvalidRequest("messages", "Something in these messages is nested too deeply to render.") from error
        except (ArithmeticError, LookupError, TypeError) as error:
            # A template argument of a kind that the template does not expect.
            raise InvalidRequest(PARAM, f"The chat template cannot take these: {error}.") from error

    def _blamed(
        self, error: InferenceError, messages: Sequence[Mapping[str, Any]], tools: Any, arguments: Mapping[str, Any]
    ) -> Exception:
        """The arguments are at fault where the template takes the same messages without them."""
        if arguments:
            try:
                self._systems.render(messages, tools or None, {})
            except (InferenceError, ArithmeticError, LookupError, TypeError):
                pass
            else:
                names = ", ".join(map(named, list(arguments)[:_MAX_NAMED]))
                return InvalidRequest(PARAM, f"{error}. It takes them without {names}.")
        return from_inference(error)

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
            _, token_ids = await in_thread_if(is_long(turn, turn.tools, _INLINE_CHARS), self._render, turn, turn.tools)
            return token_ids
        prompt = turn.prompts[0]
        assert isinstance(prompt, str)
        return await in_thread_if(len(prompt) > _INLINE_CHARS, self._encode, prompt, turn.add_special_tokens)

    def detokenize(self, token_ids: list[int]) -> str:
        size = None if self._engine.info is None else self._engine.info.vocab_size
        if size is not None and token_ids and max(token_ids) >= size:
            raise InvalidRequest("tokens", f"Token id {max(token_ids)} is not in the vocabulary of {size} tokens.")
        return self._tokenizer.decode(token_ids)


def _engine_params(params: SamplingParams) -> SamplingParams:
    """The engine reads a prompt only to write at least one token after it."""
    return replace(params, max_tokens=1, min_tokens=0) if params.max_tokens == 0 else params
