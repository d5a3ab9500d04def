"""/tokenize and /detokenize, as vLLM spells them (OpenAI-compatible server, 2026-11)."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.errors import InvalidRequest
from gateway.protocols.fields import Fields, missing
from gateway.protocols.frames import Json
from gateway.protocols.messages import decode_messages, decode_tools
from gateway.protocols.omissions import Omissions
from gateway.protocols.sampling import MAX_TOKEN_ID
from gateway.types import ChatTurn, CompletionTurn, SamplingParams, Turn

_MAX_TOKENS = 2**24


@dataclass(frozen=True, slots=True)
class DetokenizeRequest:
    model: str | None
    tokens: tuple[int, ...]


def decode_tokenize(body: Json) -> Turn:
    """A text (`prompt`), or messages and tools as a chat would send them. Raises InvalidRequest."""
    fields = Fields(body)
    model = fields.string("model")
    if fields.get("messages") is not None:
        return ChatTurn(model, decode_messages(fields, Omissions()), SamplingParams(), tools=decode_tools(fields))
    prompt = fields.string("prompt")
    if prompt is None:
        raise InvalidRequest("prompt", "Give prompt (a string) or messages.", code="missing_required_parameter")
    add_special_tokens = fields.boolean("add_special_tokens", True)
    return CompletionTurn(model, (prompt,), SamplingParams(), add_special_tokens=add_special_tokens)


def decode_detokenize(body: Json) -> DetokenizeRequest:
    """Raises InvalidRequest."""
    fields = Fields(body)
    if fields.array("tokens") is None:
        raise missing("tokens", "an array of token ids")
    tokens = fields.integers("tokens", low=0, high=MAX_TOKEN_ID, max_items=_MAX_TOKENS)
    return DetokenizeRequest(fields.string("model"), tokens)
