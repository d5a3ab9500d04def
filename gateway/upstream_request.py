"""Turns as the one request that every OpenAI-compatible server takes: Chat Completions or Completions, streamed.

Messages go out in the form that the strictest of them accept: system messages amid a conversation become the user's
words (many chat templates refuse them), arguments of past calls are JSON objects. Pure; knows nothing of HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, assert_never

from gateway.system_messages import lowered
from gateway.types import ChatMessage, ChatTurn, CompletionTurn, NamedTool, ToolUse

# How reasoning that Messages and Responses ask for is put to the upstream. A client of Chat Completions asks itself.
ReasoningStyle: TypeAlias = Literal["effort", "template", "none"]
MaxTokensField: TypeAlias = Literal["max_tokens", "max_completion_tokens"]


@dataclass(frozen=True, slots=True)
class RequestStyle:
    """What servers differ in. max_tokens_field: for turns whose own protocol has another name for it.

    past_reasoning_field: what the upstream calls reasoning, None while it has sent none: then it gets none back.
    """

    max_tokens_field: MaxTokensField = "max_tokens"
    reasoning: ReasoningStyle = "effort"
    past_reasoning_field: str | None = None


def chat_request(turn: ChatTurn, model: str, style: RequestStyle) -> dict[str, Any]:
    handed_on = dict(turn.handed_on)
    body: dict[str, Any] = {"model": model, "messages": _messages(turn, style.past_reasoning_field)}
    if turn.tools:
        body["tools"] = list(turn.tools)
        body |= _tool_choice(turn)
    if turn.stop:
        body["stop"] = list(turn.stop)
    if turn.params.max_tokens is not None and not ({"max_tokens", "max_completion_tokens"} & handed_on.keys()):
        body[style.max_tokens_field] = turn.params.max_tokens
    if turn.params.logprobs is not None:
        body["logprobs"] = True
        body |= {"top_logprobs": turn.params.logprobs} if turn.params.logprobs else {}
    if turn.prefill:
        # vLLM's and SGLang's names; llama.cpp goes on from such a message by itself.
        body |= {"continue_final_message": True, "add_generation_prompt": False}
    return {**body, **_reasoning(turn, style), **handed_on, **_streaming(turn.n)}


def completion_request(turn: CompletionTurn, model: str, prompt_index: int) -> dict[str, Any]:
    """One prompt of the turn. `echo` is the gateway's part."""
    prompt = turn.prompts[prompt_index]
    handed_on = dict(turn.handed_on)
    handed_on.pop("max_completion_tokens", None)
    body: dict[str, Any] = {"model": model, "prompt": prompt if isinstance(prompt, str) else list(prompt)}
    body["max_tokens"] = turn.params.max_tokens
    if turn.stop:
        body["stop"] = list(turn.stop)
    if turn.params.logprobs is not None:
        body["logprobs"] = turn.params.logprobs
    return {**handed_on, **body, **_streaming(turn.n)}


def _streaming(n: int) -> dict[str, Any]:
    choices = {"n": n} if n > 1 else {}
    return {**choices, "stream": True, "stream_options": {"include_usage": True}}


def _tool_choice(turn: ChatTurn) -> dict[str, Any]:
    parallel = {} if turn.parallel_calls else {"parallel_tool_calls": False}
    match turn.tool_choice:
        case "auto":
            return parallel
        case "none" | "required":
            return {**parallel, "tool_choice": turn.tool_choice}
        case NamedTool(name=name):
            return {**parallel, "tool_choice": {"type": "function", "function": {"name": name}}}
        case _:
            assert_never(turn.tool_choice)


def _reasoning(turn: ChatTurn, style: RequestStyle) -> dict[str, Any]:
    kwargs = turn.template_kwargs
    match style.reasoning:
        case "none":
            return {}
        case "template":
            return {"chat_template_kwargs": dict(kwargs)} if kwargs else {}
        case "effort":
            effort = kwargs.get("reasoning_effort")
            is_off = kwargs.get("enable_thinking") is False
            return {"reasoning_effort": effort} if isinstance(effort, str) and not is_off else {}
        case _:
            assert_never(style.reasoning)


def _messages(turn: ChatTurn, reasoning_field: str | None) -> list[dict[str, Any]]:
    messages = _one_head([_message(message, reasoning_field) for message in turn.messages])
    if any(message["role"] == "system" for message in messages[1:]):
        messages = lowered(messages, keeps_first=True)
    for message in messages:
        if message.get("tool_calls") and not message["content"]:
            # As OpenAI's own answers are; some servers refuse an empty text.
            message["content"] = None
    if turn.prefill:
        messages.append({"role": "assistant", "content": turn.prefill})
    return messages


def _one_head(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The system messages that a conversation begins with, as one."""
    num_heads = next((i for i, message in enumerate(messages) if message["role"] != "system"), len(messages))
    if num_heads < 2:
        return list(messages)
    head = "\n\n".join(message["content"] for message in messages[:num_heads])
    return [{"role": "system", "content": head}, *messages[num_heads:]]


def _message(message: ChatMessage, reasoning_field: str | None) -> dict[str, Any]:
    # Few servers know the developer role, which is OpenAI's newer name for the system's.
    role = "system" if message.role == "developer" else message.role
    fields: dict[str, Any] = {"role": role, "content": message.content}
    if message.name is not None:
        fields["name"] = message.name
    if message.tool_call_id is not None:
        fields["tool_call_id"] = message.tool_call_id
    if message.tool_uses:
        fields["tool_calls"] = [_tool_call(use) for use in message.tool_uses]
    if message.reasoning and reasoning_field is not None:
        fields[reasoning_field] = message.reasoning
    return fields


def _tool_call(use: ToolUse) -> dict[str, Any]:
    function = {"name": use.name, "arguments": _arguments(use.arguments)}
    return {"id": use.id, "type": "function", "function": function}


def _arguments(text: str) -> str:
    """Servers decode them for their chat templates and refuse the whole conversation where that fails, for ever after:
    what a model once garbled goes back as an object that says so."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    return text if isinstance(value, Mapping) else json.dumps({"INVALID_JSON": text}, ensure_ascii=False)
