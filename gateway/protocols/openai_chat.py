"""OpenAI Chat Completions (API reference, 2026-11): request to ChatTurn, turn items to chunks or one body.

Order of a stream, per choice: role chunk, reasoning, content and tool-call deltas as the model writes them, an empty
delta with finish_reason; then, when asked for, one chunk with usage and no choices; then [DONE]. A call's id, type and
name come once, in its first chunk, and keys without a value are left out: some clients append what is repeated and
break on null. Reasoning is an extension: `reasoning_content` (DeepSeek's spelling) or, as the server is told,
`reasoning` (OpenRouter's and vLLM's) or both. An error ends the stream without [DONE].
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, assert_never

from gateway.errors import InvalidRequest
from gateway.protocols.fields import Fields
from gateway.protocols.frames import Frame, HttpProtocol, Json, TurnLabels, dumps, openai_error_body
from gateway.protocols.handed_on import openai_fields
from gateway.protocols.legacy_functions import speaks_legacy, with_tools
from gateway.protocols.messages import allowed_tools, decode_messages, decode_tool_choice, decode_tools
from gateway.protocols.omissions import Omissions
from gateway.protocols.output_format import chat_format
from gateway.protocols.sampling import (
    MAX_LOGPROBS,
    decode_choices,
    decode_include_usage,
    decode_max_tokens,
    decode_reasoning_budget,
    decode_sampling,
    decode_stop,
)
from gateway.protocols.unforced import FORCED_CALL, forced_format
from gateway.types import (
    FREE_TEXT,
    ChatTurn,
    NamedTool,
    OutputFormat,
    ReasoningField,
    TokenLogprob,
    ToolChoice,
    Turn,
    TurnDone,
    TurnEvent,
    TurnFailed,
    TurnItem,
    TurnStarted,
    TurnText,
    Usage,
)
from stream_parser import collect
from stream_parser.events import ContentDelta, Event, Finish, ReasoningDelta, ToolCallDelta, ToolCallEnd, ToolCallStart

_REASONING_NAMES: Mapping[ReasoningField, tuple[str, ...]] = {
    "reasoning_content": ("reasoning_content",),
    "reasoning": ("reasoning",),
    "both": ("reasoning_content", "reasoning"),
}
DONE_FRAME = Frame(b"[DONE]")


def decode_chat(body: Json) -> ChatTurn:
    """Raises InvalidRequest. Fields that are not listed in docs/protocols.md are accepted and ignored."""
    fields = Fields(body)
    is_legacy = speaks_legacy(fields)
    if is_legacy:
        fields = with_tools(fields)
    tools = allowed_tools(fields, decode_tools(fields))
    tool_choice = decode_tool_choice(fields, tools)
    omissions = Omissions()
    messages = decode_messages(fields, omissions)
    stop = decode_stop(fields)
    max_tokens = decode_max_tokens(fields, "max_completion_tokens", "max_tokens")
    output, output_field = chat_format(fields)
    _refuse_other_modalities(fields)

    return ChatTurn(
        model=fields.string("model"),
        messages=messages,
        params=decode_sampling(fields, max_tokens=max_tokens, logprobs=_logprobs(fields)),
        tools=tools,
        tool_choice=tool_choice,
        n=decode_choices(fields),
        stop=stop.strings,
        include_stop=stop.include,
        stream=fields.boolean("stream"),
        include_usage=decode_include_usage(fields),
        template_kwargs=_template_kwargs(fields),
        parallel_calls=fields.boolean("parallel_tool_calls", True) and not is_legacy,
        legacy_calls=is_legacy,
        cache_salt=fields.string("cache_salt", max_chars=256) or "",
        warnings=(*_warnings(fields, tool_choice, output, output_field), *omissions.warnings),
        output=output,
        output_field=output_field,
        max_reasoning_tokens=decode_reasoning_budget(fields, fields.string("reasoning_effort", max_chars=64)),
        handed_on=openai_fields(body),
    )


def _refuse_other_modalities(fields: Fields) -> None:
    for kind in fields.array("modalities") or ["text"]:
        if kind != "text":
            path = fields.path("modalities")
            raise InvalidRequest(path, f"{path} may only have 'text': the model writes nothing else.")


def _logprobs(fields: Fields) -> int | None:
    top = fields.integer("top_logprobs", low=0, high=MAX_LOGPROBS)
    if fields.boolean("logprobs"):
        return top or 0
    if top:
        path = fields.path("top_logprobs")
        raise InvalidRequest(path, f"{path} is {top}, which needs logprobs: true.")
    return None


def _template_kwargs(fields: Fields) -> dict[str, Any]:
    given = fields.object("chat_template_kwargs")
    kwargs = dict(given.raw) if given is not None else {}
    effort = fields.string("reasoning_effort", max_chars=64)
    if effort is not None:
        kwargs.setdefault("reasoning_effort", effort)
        if effort == "none":
            kwargs.setdefault("enable_thinking", False)
    return kwargs


def _warnings(
    fields: Fields, tool_choice: ToolChoice, output: OutputFormat, output_field: str
) -> tuple[str, ...]:
    warnings: list[str] = []
    if tool_choice == "required" or isinstance(tool_choice, NamedTool):
        warnings.append(FORCED_CALL)
    if output != FREE_TEXT:
        warnings.append(forced_format(output_field))
    if fields.get("functions"):
        warnings.append("functions is ignored: the request has tools")
    return tuple(warnings)


def usage_object(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def logprobs_object(entries: tuple[TokenLogprob, ...]) -> dict[str, Any]:
    return {"content": [logprob_entry(entry) for entry in entries], "refusal": None}


def logprob_entry(entry: TokenLogprob) -> dict[str, Any]:
    top = [_token_logprob(token, logprob) for token, logprob in entry.top]
    return {**_token_logprob(entry.token, entry.logprob), "top_logprobs": top}


def _token_logprob(token: str, logprob: float) -> dict[str, Any]:
    # A token inside a UTF-8 character has no text of its own; what its bytes were is not known here.
    token_bytes = None if "\ufffd" in token else list(token.encode())
    return {"token": token, "logprob": logprob, "bytes": token_bytes}


def _finish_reason(reason: str | None, is_legacy: bool) -> str | None:
    return "function_call" if is_legacy and reason == "tool_calls" else reason


class ChatEncoder:
    """Chunks of one turn. Everything that stays the same in each chunk is laid down as bytes once."""

    def __init__(self, labels: TurnLabels, turn: Turn, reasoning_field: ReasoningField = "reasoning_content") -> None:
        assert isinstance(turn, ChatTurn)
        self._reasoning_heads = [dumps(name) + b":" for name in _REASONING_NAMES[reasoning_field]]
        head = {"id": labels.turn_id, "object": "chat.completion.chunk", "created": labels.created_s}
        self._head = dumps({**head, "model": labels.model})[:-1]
        self._include_usage = turn.include_usage
        self._tail = b'}],"usage":null}' if turn.include_usage else b"}]}"
        self._num_choices = turn.n
        self._is_legacy = turn.legacy_calls

    def encode(self, item: TurnItem) -> list[Frame]:
        match item:
            case TurnEvent(choice=choice, event=event, logprobs=logprobs):
                return self._encode_event(choice, event, logprobs)
            case TurnStarted():
                start = b'{"role":"assistant","content":""}'
                return [self._chunk(choice, start) for choice in range(self._num_choices)]
            case TurnDone(usage=usage):
                return [self._usage_chunk(usage), DONE_FRAME] if self._include_usage else [DONE_FRAME]
            case TurnFailed(error=error):
                return [Frame(dumps({"error": error.body()}))]
            case TurnText():
                raise AssertionError("chat turns are parsed")
            case _:
                assert_never(item)

    def _encode_event(self, choice: int, event: Event, logprobs: tuple[TokenLogprob, ...]) -> list[Frame]:
        match event:
            case ContentDelta(text=text):
                return [self._chunk(choice, b'{"content":' + dumps(text) + b"}", logprobs)]
            case ReasoningDelta(text=text):
                value = dumps(text)
                fields = b",".join([head + value for head in self._reasoning_heads])
                return [self._chunk(choice, b"{" + fields + b"}", logprobs)]
            case ToolCallStart(index=index, id=call_id, name=name):
                function = {"name": name, "arguments": ""}
                if self._is_legacy:
                    return [self._chunk(choice, dumps({"function_call": function}), logprobs)]
                call = {"index": index, "id": call_id, "type": "function", "function": function}
                return [self._chunk(choice, dumps({"tool_calls": [call]}), logprobs)]
            case ToolCallDelta(index=index, arguments=arguments):
                if self._is_legacy:
                    return [self._chunk(choice, dumps({"function_call": {"arguments": arguments}}), logprobs)]
                call = {"index": index, "function": {"arguments": arguments}}
                return [self._chunk(choice, dumps({"tool_calls": [call]}), logprobs)]
            case ToolCallEnd():
                # Nothing on the wire says "this call is whole". The log-probabilities still need a chunk.
                return [self._chunk(choice, b"{}", logprobs)] if logprobs else []
            case Finish(reason=reason):
                return [self._chunk(choice, b"{}", logprobs, dumps(_finish_reason(reason, self._is_legacy)))]
            case _:
                assert_never(event)

    def _chunk(
        self, choice: int, delta: bytes, logprobs: tuple[TokenLogprob, ...] = (), finish_reason: bytes = b"null"
    ) -> Frame:
        extra = b',"logprobs":' + dumps(logprobs_object(logprobs)) if logprobs else b""
        return Frame(
            b'%b,"choices":[{"index":%d,"delta":%b%b,"finish_reason":%b%b'
            % (self._head, choice, delta, extra, finish_reason, self._tail)
        )

    def _usage_chunk(self, usage: Usage) -> Frame:
        return Frame(self._head + b',"choices":[],"usage":' + dumps(usage_object(usage)) + b"}")


class ChatCollector:
    """The body of a response that is not streamed. Add every item of a turn that did not fail, then take the body."""

    def __init__(self, labels: TurnLabels, turn: Turn, reasoning_field: ReasoningField = "reasoning_content") -> None:
        assert isinstance(turn, ChatTurn)
        self._reasoning_names = _REASONING_NAMES[reasoning_field]
        self._labels = labels
        self._is_legacy = turn.legacy_calls
        self._events: list[list[Event]] = [[] for _ in range(turn.n)]
        self._logprobs: list[list[TokenLogprob]] | None = None
        if turn.params.logprobs is not None:
            self._logprobs = [[] for _ in range(turn.n)]
        self._usage = Usage(0, 0)

    def add(self, item: TurnItem) -> None:
        match item:
            case TurnEvent(choice=choice, event=event, logprobs=logprobs):
                self._events[choice].append(event)
                if self._logprobs is not None:
                    self._logprobs[choice].extend(logprobs)
            case TurnDone(usage=usage):
                self._usage = usage
            case TurnStarted() | TurnText() | TurnFailed():
                pass
            case _:
                assert_never(item)

    def body(self) -> bytes:
        return dumps(
            {
                "id": self._labels.turn_id,
                "object": "chat.completion",
                "created": self._labels.created_s,
                "model": self._labels.model,
                "choices": [self._choice(i) for i in range(len(self._events))],
                "usage": usage_object(self._usage),
            }
        )

    def _choice(self, choice: int) -> dict[str, Any]:
        message = collect(self._events[choice])
        logprobs = None if self._logprobs is None else logprobs_object(tuple(self._logprobs[choice]))
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
        # OpenAI answers content null when a message is nothing but calls.
        fields: dict[str, Any] = {"role": "assistant", "content": message.content or (None if calls else "")}
        fields["refusal"] = None
        if message.reasoning:
            fields |= dict.fromkeys(self._reasoning_names, message.reasoning)
        if calls and self._is_legacy:
            fields["function_call"] = calls[0]["function"]
        elif calls:
            fields["tool_calls"] = calls
        reason = _finish_reason(message.finish_reason, self._is_legacy)
        return {"index": choice, "message": fields, "logprobs": logprobs, "finish_reason": reason}


def _protocol(reasoning_field: ReasoningField) -> HttpProtocol:
    return HttpProtocol(
        name="openai_chat",
        path="/v1/chat/completions",
        id_prefix="chatcmpl-",
        decode=decode_chat,
        encoder=partial(ChatEncoder, reasoning_field=reasoning_field),
        collector=partial(ChatCollector, reasoning_field=reasoning_field),
        error_body=openai_error_body,
        param_names={},
    )


CHAT_BY_REASONING_FIELD = {reasoning_field: _protocol(reasoning_field) for reasoning_field in _REASONING_NAMES}
OPENAI_CHAT = CHAT_BY_REASONING_FIELD["reasoning_content"]
