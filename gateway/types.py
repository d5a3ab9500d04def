"""The values that travel through the gateway: a decoded turn on the way in, turn items on the way out.

Frozen and free of I/O. Knows nothing of wire formats (gateway.protocols) and engines (gateway.backend), between which
and these values stand gateway.pieces.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from gateway.errors import GatewayError
from gateway.pieces import TokenLogprob
from inference.grammar.policy import (
    FREE_TEXT,
    Choice,
    JsonObject,
    JsonSchema,
    OutputFormat,
    Regex,
    TextGrammar,
)
from inference.types import EngineInfo, EngineStats, SamplingParams
from stream_parser.dialect import Dialect
from stream_parser.events import Event

__all__ = [
    "FREE_TEXT",
    "ChatMessage",
    "ChatTurn",
    "Choice",
    "ChunkReading",
    "CompletionTurn",
    "Continuation",
    "EngineInfo",
    "EngineStats",
    "JsonObject",
    "JsonSchema",
    "NamedTool",
    "OutputFormat",
    "Prepared",
    "ReasoningField",
    "Regex",
    "Role",
    "SamplingParams",
    "ServedModel",
    "TextGrammar",
    "TokenCount",
    "TokenLogprob",
    "ToolChoice",
    "ToolUse",
    "Turn",
    "TurnDone",
    "TurnEvent",
    "TurnFailed",
    "TurnItem",
    "TurnStarted",
    "TurnText",
    "Usage",
]

# Under which names reasoning goes out on Chat Completions, which has none of its own for it.
ReasoningField: TypeAlias = Literal["reasoning_content", "reasoning", "both"]
Role: TypeAlias = Literal["system", "developer", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A call that an assistant message of the past made. `arguments` is the JSON text as the client sent it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message, the same value however the client spelled it: text parts are joined with newlines."""

    role: Role
    content: str
    name: str | None = None
    reasoning: str | None = None
    tool_uses: tuple[ToolUse, ...] = ()
    tool_call_id: str | None = None


@dataclass(frozen=True, slots=True)
class NamedTool:
    """The client asks for a call of this one tool."""

    name: str


ToolChoice: TypeAlias = Literal["auto", "none", "required"] | NamedTool


@dataclass(frozen=True, slots=True)
class Continuation:
    """How far a session's tokens reach: they stand for its first `num_messages` messages, the last of which is the
    model's answer. is_closed: the last token is the one with which the model ended it. Empty at its beginning."""

    token_ids: tuple[int, ...] = ()
    num_messages: int = 0
    is_closed: bool = False


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """A request to continue a conversation, whichever protocol it came in by.

    model: None = the first served one. tools: as OpenAI's Chat Completions spells them, in the client's order;
    schema_field: where in each of the client's own its schema stands. template_kwargs go to the chat template as they
    are. warnings: what the client asked for and will not get.
    prefill: how the answer begins; the model continues it, and it is not repeated in the answer. legacy_calls: the
    client reads calls as Chat Completions had them before tools. parallel_calls False:
    the turn ends with its first call. continues: set for a turn of a session. handed_on: what the client gave beyond
    messages and tools, as Chat Completions spells it, for engines behind an upstream: in `params` a default looks like
    a wish. It is no part of what the turn is here, so turns that differ in it only are equal.
    """

    model: str | None
    messages: tuple[ChatMessage, ...]
    params: SamplingParams
    tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: ToolChoice = "auto"
    n: int = 1
    stop: tuple[str, ...] = ()
    include_stop: bool = False
    stream: bool = False
    include_usage: bool = False
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    prefill: str = ""
    parallel_calls: bool = True
    legacy_calls: bool = False
    cache_salt: str = ""
    warnings: tuple[str, ...] = ()
    continues: Continuation | None = None
    output: OutputFormat = FREE_TEXT
    output_field: str = "response_format"
    schema_field: str = "function.parameters"
    max_reasoning_tokens: int | None = None
    handed_on: Mapping[str, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class CompletionTurn:
    """A request to continue raw prompts, each a text or token ids. Choice i of prompt p has index p * n + i.

    add_special_tokens: begin texts as the tokenizer does (BOS). skip_special_tokens: leave them out of the answer.
    handed_on: as a ChatTurn's.
    """

    model: str | None
    prompts: tuple[str | tuple[int, ...], ...]
    params: SamplingParams
    n: int = 1
    stop: tuple[str, ...] = ()
    include_stop: bool = False
    stream: bool = False
    include_usage: bool = False
    echo: bool = False
    add_special_tokens: bool = True
    skip_special_tokens: bool = True
    cache_salt: str = ""
    warnings: tuple[str, ...] = ()
    output: OutputFormat = FREE_TEXT
    output_field: str = "structured_outputs"
    handed_on: Mapping[str, Any] = field(default_factory=dict, compare=False)


Turn: TypeAlias = ChatTurn | CompletionTurn


@dataclass(frozen=True, slots=True)
class ChunkReading:
    """How a prompt's answer is read that comes as an upstream's chunks (ChunkPiece) instead of as text.

    content_dialect: calls and reasoning that the upstream left in the content, as the model wrote them, are recovered.
    """

    content_dialect: str | None = None


@dataclass(frozen=True, slots=True)
class PartlyEnforced:
    """Schemas with keywords that decoding lets pass: of the answer, and by name of the tools' arguments."""

    answer: Any = True
    tools: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Prepared:
    """One prompt, ready for the engine. Backends add what they need in a subclass.

    chunks: set where its pieces are an upstream's chunks. dialect None: the text is not parsed. prompt_tail: the end of
    the rendered prompt, from which the parser learns in which region the model starts. vocab: token ids of its markers,
    where pieces have ids. prompt_text: the prompt as text, for `echo`. prompt_ids: its tokens, for sessions.
    partly_enforced: what is to be checked once it is whole. calls_only: it is held to calls, so that what looks like
    text in the end is a marker that was cut.
    """

    turn_id: str
    params: SamplingParams
    n: int
    num_prompt_tokens: int
    prompt_text: str
    dialect: str | Dialect | None
    prompt_tail: str
    vocab: Mapping[str, int] | None
    tools: tuple[Mapping[str, Any], ...]
    prompt_ids: tuple[int, ...] = field(default=(), kw_only=True)
    chunks: ChunkReading | None = field(default=None, kw_only=True)
    partly_enforced: PartlyEnforced | None = field(default=None, kw_only=True)
    calls_only: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class ServedModel:
    """max_model_len: prompt and answer together, in tokens; None = no limit or not known."""

    name: str
    max_model_len: int | None = None


@dataclass(frozen=True, slots=True)
class TokenCount:
    """Of a prompt. is_estimate: made from its length, where nobody here has the model's tokenizer."""

    num_tokens: int
    is_estimate: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of a turn. completion_tokens sums all choices; cached ⊆ prompt, reasoning ⊆ completion."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """The engine has taken the turn: headers may go out. How much of the prompt is cached is not known yet."""

    num_prompt_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TurnEvent:
    """A parser event of one choice, with the log-probabilities of the tokens that it completes.

    stop: on the Finish of a choice that a stop string ended, that string.
    """

    choice: int
    event: Event
    logprobs: tuple[TokenLogprob, ...] = ()
    stop: str | None = None


@dataclass(frozen=True, slots=True)
class TurnText:
    """Unparsed text of one choice, one an engine step, empty while nothing is certain; finish_reason on its last."""

    choice: int
    text: str
    finish_reason: Literal["stop", "length", "cancelled"] | None = None
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class TurnDone:
    """The last item of a turn that ended by itself or was cancelled; every choice has had its Finish.

    warnings: what of it is off a schema that decoding enforces in part.
    """

    usage: Usage
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TurnFailed:
    """The last item of a turn that could not end by its own rules."""

    error: GatewayError


TurnItem: TypeAlias = TurnStarted | TurnEvent | TurnText | TurnDone | TurnFailed
