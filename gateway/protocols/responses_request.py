"""OpenAI Responses (API reference, 2026-11): the request, decoded in two steps.

`decode_request` checks everything that the body alone can tell. Its input may refer to items and responses of before;
once these are found, `build_turn` gives the turn. What is accepted and not honoured is named in the warnings, which the
response repeats in its metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gateway.errors import InvalidRequest, NotFound
from gateway.protocols.fields import Fields, missing, shown, wrong_type
from gateway.protocols.frames import Json
from gateway.protocols.handed_on import responses_fields
from gateway.protocols.output_format import responses_format
from gateway.protocols.responses_items import Item, item_type, transcribe
from gateway.protocols.responses_tools import ToolTable, allowed_functions, decode_tool_choice, decode_tools
from gateway.protocols.sampling import MAX_LOGPROBS, decode_max_tokens, decode_reasoning_budget, decode_sampling
from gateway.protocols.unforced import forced_format
from gateway.types import FREE_TEXT, ChatTurn, SamplingParams

PATH = "/v1/responses"
ID_PREFIX = "resp_"
WARNINGS_KEY = "headrace_warnings"
_MAX_METADATA = 16
_MAX_METADATA_KEY_CHARS = 64
_MAX_METADATA_CHARS = 512
_ENCRYPTED = "reasoning.encrypted_content"
_LOGPROBS = "message.output_text.logprobs"
# Echoed in the response as they came; nothing here depends on them.
_ECHOED = ("user", "safety_identifier", "prompt_cache_key", "max_tool_calls", "prompt_cache_retention")
_NOT_KEPT = {
    "conversation": "conversations are not kept here: send the items, or previous_response_id",
    "prompt": "prompt templates are not kept here: send instructions and input",
}


@dataclass(frozen=True, slots=True)
class ResponsesRequest:
    """input: as the client sent it, a string spelled as one user message. body: for what the response echoes.

    summarises: reasoning goes out as a summary instead of as raw text. seals: with encrypted_content as well.
    compacts: the client asks for a compaction of its input instead of an answer. is_prewarm: it wants no answer, only
    that the next request finds its input ready.
    """

    body: Json
    model: str | None
    input: tuple[Item, ...]
    instructions: str | None
    previous_response_id: str | None
    params: SamplingParams
    template_kwargs: Mapping[str, Any]
    stream: bool
    store: bool
    background: bool
    summarises: bool
    seals: bool
    compacts: bool
    is_prewarm: bool
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ResponsesTurn:
    """A request with everything that it refers to. items: its own input, references resolved."""

    request: ResponsesRequest
    items: tuple[Item, ...]
    chat: ChatTurn
    tools: ToolTable


def decode_request(body: Json) -> ResponsesRequest:
    """Raises InvalidRequest. Fields that are not listed in docs/protocols.md are accepted and ignored."""
    fields = Fields(body)
    _refuse_what_is_not_kept(fields)
    include = _include(fields)
    reasoning = fields.object("reasoning") or Fields({}, "reasoning")
    items = _input(fields)
    _check_metadata(fields)
    params = decode_sampling(
        fields, max_tokens=decode_max_tokens(fields, "max_output_tokens"), logprobs=_logprobs(fields, include)
    )
    is_prewarm = _is_prewarm(fields)
    store, background = fields.boolean("store", True), fields.boolean("background")
    if background and not store:
        raise InvalidRequest("background", "background needs store: true, or nobody could fetch the response.")

    return ResponsesRequest(
        body=body,
        model=fields.string("model"),
        input=items,
        instructions=fields.string("instructions"),
        previous_response_id=fields.string("previous_response_id", max_chars=256),
        params=replace(params, max_tokens=0, min_tokens=0) if is_prewarm else params,
        template_kwargs=_template_kwargs(fields, reasoning),
        stream=fields.boolean("stream"),
        store=store,
        background=background,
        summarises=(reasoning.string("summary") or reasoning.string("generate_summary")) is not None,
        seals=_ENCRYPTED in include,
        compacts=any(item_type(item) == "compaction_trigger" for item in items),
        is_prewarm=is_prewarm,
        warnings=_warnings(fields),
    )


def _is_prewarm(fields: Fields) -> bool:
    options = fields.object("prompt_cache_options")
    return not fields.boolean("generate", True) or (options is not None and options.boolean("prewarm"))


def _refuse_what_is_not_kept(fields: Fields) -> None:
    for name, why in _NOT_KEPT.items():
        if fields.get(name) is not None:
            raise InvalidRequest(name, f"{name} is not supported: {why}.", code="unsupported_parameter")


def _input(fields: Fields) -> tuple[Item, ...]:
    value = fields.get("input")
    if value is None:
        return ()
    if isinstance(value, str):
        return ({"type": "message", "role": "user", "content": value},)
    if not isinstance(value, list):
        raise wrong_type("input", "a string or an array of items", value)
    return tuple(Fields.of(item, f"input[{i}]").raw for i, item in enumerate(value))


def _include(fields: Fields) -> frozenset[str]:
    names = fields.array("include") or []
    for i, name in enumerate(names):
        if not isinstance(name, str):
            raise wrong_type(f"include[{i}]", "a string", name)
    return frozenset(names)


def _logprobs(fields: Fields, include: frozenset[str]) -> int | None:
    top = fields.integer("top_logprobs", low=0, high=MAX_LOGPROBS)
    return (top or 0) if _LOGPROBS in include or top else None


def _template_kwargs(fields: Fields, reasoning: Fields) -> dict[str, Any]:
    given = fields.object("chat_template_kwargs")
    kwargs = dict(given.raw) if given is not None else {}
    effort = reasoning.string("effort", max_chars=64)
    if effort is not None:
        kwargs.setdefault("reasoning_effort", effort)
        if effort == "none":
            kwargs.setdefault("enable_thinking", False)
    return kwargs


def _check_metadata(fields: Fields) -> None:
    metadata = fields.object("metadata")
    if metadata is None:
        return
    if len(metadata.raw) > _MAX_METADATA:
        number = len(metadata.raw)
        raise InvalidRequest("metadata", f"metadata may have {_MAX_METADATA} entries at most, got {number}.")
    for key in metadata.raw:
        if len(key) > _MAX_METADATA_KEY_CHARS:
            limit = _MAX_METADATA_KEY_CHARS
            raise InvalidRequest("metadata", f"metadata's keys may have {limit} characters at most, got {shown(key)}.")
        metadata.string(key, max_chars=_MAX_METADATA_CHARS)


def _warnings(fields: Fields) -> tuple[str, ...]:
    warnings: list[str] = []
    output, field = responses_format(fields)
    if output != FREE_TEXT:
        warnings.append(forced_format(field, "not enforced"))
    if fields.choice("truncation", ("auto", "disabled")) == "auto":
        warnings.append("truncation auto is ignored: input that is too long is refused")
    if fields.get("context_management") is not None:
        warnings.append("context_management is ignored: compact with /v1/responses/compact")
    return tuple(warnings)


_REASONING_TEXTS = ("content", "summary", "encrypted_content")
FindItem = Callable[[str], Item | None]


def resolve_items(items: Sequence[Item], find_item: FindItem) -> tuple[Item, ...]:
    """References replaced by what they name, and reasoning that lost its text on the way by what it was. Some clients
    keep a reasoning item's id only; with its text the prompt is the one that the model has seen. Raises NotFound."""
    return tuple(_resolved(item, i, find_item) for i, item in enumerate(items))


def _resolved(item: Item, position: int, find_item: FindItem) -> Item:
    kind = item_type(item)
    if kind == "reasoning" and not any(item.get(name) for name in _REASONING_TEXTS):
        return find_item(str(item.get("id"))) or item
    if kind != "item_reference":
        return item
    fields = Fields(item, f"input[{position}]")
    item_id = fields.required_string("id")
    found = find_item(item_id)
    if found is None:
        message = f"Item with id {shown(item_id)} not found. Items are kept when their response has store: true, and "
        message += "not for ever: send the item itself."
        raise NotFound(message, param=fields.path("id"), code="item_not_found")
    return found


def build_turn(request: ResponsesRequest, history: Sequence[Item], items: tuple[Item, ...]) -> ResponsesTurn:
    """`history`: the items before this request's, oldest first. Raises InvalidRequest."""
    fields = Fields(request.body)
    transcript = transcribe(history, items, request.instructions)
    if not transcript.messages and not request.compacts:
        raise missing("input", "a string or an array of items")
    tools = decode_tools([(fields.array("tools") or [], "tools"), *transcript.tool_groups])
    tool_choice, choice_warnings = decode_tool_choice(fields, tools)
    output, output_field = responses_format(fields)
    reasoning = fields.object("reasoning") or Fields({}, "reasoning")

    chat = ChatTurn(
        model=request.model,
        messages=transcript.messages,
        params=request.params,
        tools=allowed_functions(fields, tools),
        tool_choice=tool_choice,
        stream=request.stream,
        template_kwargs=request.template_kwargs,
        parallel_calls=fields.boolean("parallel_tool_calls", True),
        cache_salt=fields.string("cache_salt", max_chars=256) or "",
        warnings=(*request.warnings, *choice_warnings, *tools.warnings, *transcript.warnings),
        output=output,
        output_field=output_field,
        schema_field="parameters",
        max_reasoning_tokens=decode_reasoning_budget(fields, reasoning.string("effort", max_chars=64)),
        handed_on=responses_fields(request.body),
    )
    return ResponsesTurn(request, items, chat, tools)


def echoed_fields(turn: ResponsesTurn, model: str) -> dict[str, Any]:
    """The fields of the response that repeat the request."""
    request, body = turn.request, turn.request.body
    reasoning, text = body.get("reasoning") or {}, body.get("text") or {}
    metadata = {key: value for key, value in (body.get("metadata") or {}).items() if value is not None}
    if turn.chat.warnings and len(metadata) < _MAX_METADATA:
        # The client's own come first; the header has the warnings as well.
        metadata.setdefault(WARNINGS_KEY, "; ".join(turn.chat.warnings)[:_MAX_METADATA_CHARS])
    return {
        "model": model,
        "background": request.background,
        "instructions": request.instructions,
        "max_output_tokens": body.get("max_output_tokens"),
        "metadata": metadata,
        "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
        "previous_response_id": request.previous_response_id,
        "reasoning": {"effort": None, "summary": None, **reasoning},
        "service_tier": "default",
        "store": request.store,
        "temperature": request.params.temperature,
        "text": {"format": {"type": "text"}, **{key: value for key, value in text.items() if value is not None}},
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": body.get("tools") or [],
        "top_logprobs": body.get("top_logprobs") or 0,
        "top_p": 1.0 if body.get("top_p") is None else body["top_p"],
        "truncation": body.get("truncation") or "disabled",
        **{name: body[name] for name in _ECHOED if body.get(name) is not None},
    }
