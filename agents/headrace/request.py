"""What a turn asks for, checked for shape and made ready for either transport; knows nothing of sockets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypedDict, runtime_checkable

from headrace.message import Message

ChatMessage: TypeAlias = "Mapping[str, object] | Message"
Messages: TypeAlias = "str | Sequence[ChatMessage]"


@runtime_checkable
class OffersSchema(Protocol):
    """Anything that describes itself as a tool of the chat format: a `Tool` does."""

    def to_openai(self) -> dict[str, object]: ...


ToolLike: TypeAlias = "OffersSchema | Mapping[str, object]"
ToolChoice: TypeAlias = "str | Mapping[str, object]"


class Sampling(TypedDict, total=False):
    """The optional fields of a turn, spelled as on the wire. `extra` adds fields that are not listed here."""

    temperature: float
    top_p: float
    top_k: int
    min_p: float
    max_tokens: int
    min_tokens: int
    stop: str | Sequence[str]
    stop_token_ids: Sequence[int]
    seed: int
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    logit_bias: Mapping[str, float]
    ignore_eos: bool
    parallel_tool_calls: bool
    response_format: Mapping[str, object]
    reasoning_effort: str
    chat_template_kwargs: Mapping[str, object]
    extra: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """`fields` are the JSON fields that both transports send alike. `model` None: the server's first one.

    `lane`: turns of one lane on one socket run in order; over SSE every turn is a lane of its own.
    `credit`: characters of text that may wait unread on the socket; over SSE nothing limits them.
    """

    model: str | None
    lane: str | None
    fields: Mapping[str, object]
    credit: int | None = None


def turn_request(
    messages: Messages,
    *,
    model: str | None,
    tools: Sequence[ToolLike] | None,
    tool_choice: ToolChoice | None,
    lane: str | None,
    sampling: Mapping[str, Any],
    credit: int | None = None,
) -> TurnRequest:
    """Raises TypeError for a sampling field that does not exist (values are for the server to judge), ValueError for a
    credit with which no text could ever come."""
    if credit is not None and credit < 1:
        raise ValueError(f"credit must be at least 1, got {credit}")
    options = dict(sampling)
    extra = options.pop("extra", None) or {}
    if unknown := sorted(options.keys() - Sampling.__annotations__.keys()):
        raise TypeError(f"unknown field(s) {', '.join(unknown)}; pass fields of your own as extra={{...}}")

    fields: dict[str, object] = {"messages": chat_messages(messages), **options, **extra}
    if tools:
        fields["tools"] = [tool.to_openai() if isinstance(tool, OffersSchema) else dict(tool) for tool in tools]
    if tool_choice is not None:
        fields["tool_choice"] = tool_choice
    return TurnRequest(model, lane, fields, credit)


def chat_messages(messages: Messages) -> list[dict[str, object]]:
    """A prompt becomes one user message; a `Message` becomes its entry of the chat format."""
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    if isinstance(messages, Mapping | Message):
        raise TypeError("messages must be a string or a list of messages, not a single message")
    return [entry.to_chat() if isinstance(entry, Message) else dict(entry) for entry in messages]
