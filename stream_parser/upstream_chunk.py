"""Reads one OpenAI-style chunk, whatever its provider made of the format, into one plain value.

It looks under all known names for each thing and believes no field to be there or of its type. Chunks are decoded JSON.
Knows nothing of earlier chunks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stream_parser.events import FinishReason

_REASONING_FIELDS = (
    "reasoning_content", "reasoning", "reasoning_text", "thinking", "thinking_content", "thought", "thoughts",
    "reasoning_summary", "reasoning_details", "thinking_blocks",
)  # fmt: skip
_TEXT_FIELDS = ("text", "content", "thinking", "reasoning", "summary", "value", "refusal")
_REASONING_PARTS = ("thinking", "reasoning", "thought")
_FINISH_FIELDS = ("finish_reason", "finishReason", "done_reason", "stop_reason")
# By their lower-case letters; any other reason is a stop.
_FINISH_REASONS: dict[str, FinishReason] = {
    "length": "length", "maxtokens": "length", "maxoutputtokens": "length", "maxlength": "length",
    "modellength": "length", "modelcontextwindowexceeded": "length", "maxcompletiontokens": "length",
    "toolcalls": "tool_calls", "toolcall": "tool_calls", "tooluse": "tool_calls", "functioncall": "tool_calls",
    "cancelled": "cancelled", "canceled": "cancelled", "cancel": "cancelled", "abort": "cancelled",
    "aborted": "cancelled",
    "error": "error", "contentfilter": "error", "safety": "error", "recitation": "error", "refusal": "error",
    "malformedfunctioncall": "error", "networkerror": "error",
}  # fmt: skip
_MAX_PART_DEPTH = 8


@dataclass(frozen=True, slots=True)
class Fragment:
    """A piece of a call. `arguments` is text to append; `is_object`: it came as an object, so it is whole."""

    index: int | None
    id: str
    name: str
    arguments: str
    is_object: bool = False

    @property
    def begins_arguments(self) -> bool:
        return self.arguments.lstrip().startswith("{")


@dataclass(frozen=True, slots=True)
class Chunk:
    """`is_message`: a whole message in the place of a delta, which may repeat all that came before."""

    reasoning: str = ""
    content: str = ""
    fragments: tuple[Fragment, ...] = ()
    legacy: Fragment | None = None
    finish_reason: FinishReason | None = None
    is_message: bool = False
    is_error: bool = False


def read_chunk(chunk: object, choice_index: int) -> Chunk:
    """Never raises: what is not understood is not there."""
    if not isinstance(chunk, dict):
        return Chunk()
    is_error = _is_error(chunk)
    choice = _find_choice(chunk, choice_index)
    if choice is None or (is_error and choice is chunk):
        return Chunk(is_error=is_error)

    delta, is_message = _find_delta(choice)
    parts = list(_content_parts(delta.get("content"), 0))
    content = "".join(text for text, is_reasoning in parts if not is_reasoning)
    reasoning = _reasoning(delta) or "".join(text for text, is_reasoning in parts if is_reasoning)
    return Chunk(
        reasoning=reasoning,
        content=content or _text(delta.get("refusal"), 0),
        fragments=tuple(_fragments(delta.get("tool_calls"))),
        legacy=_fragment(delta.get("function_call")),
        finish_reason=_finish_reason(choice),
        is_message=is_message,
        is_error=is_error or _is_error(choice),
    )


def _is_error(chunk: Mapping[str, Any]) -> bool:
    return bool(chunk.get("error")) or chunk.get("object") == "error" or chunk.get("type") == "error"


def _find_choice(chunk: Mapping[str, Any], choice_index: int) -> Mapping[str, Any] | None:
    choices = chunk.get("choices")
    if isinstance(choices, dict):
        choices = [choices]
    if not isinstance(choices, list):
        # No choices at all: a native format with its fields at the top. Beside choices, such fields only repeat.
        return chunk if any(field in chunk for field in ("message", "delta", "response", "content", "text")) else None
    for choice in choices:
        if isinstance(choice, dict) and (_integer(choice.get("index")) or 0) == choice_index:
            return choice
    return None


def _find_delta(choice: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    delta, message = choice.get("delta"), choice.get("message")
    if isinstance(delta, dict) and (delta or not isinstance(message, dict)):
        return delta, False
    if isinstance(message, dict):
        return message, "done" not in choice
    for text in (delta, choice.get("text"), choice.get("response"), message, choice.get("content")):
        if isinstance(text, str):
            return {**choice, "content": text}, False
    return {}, False


def _content_parts(content: object, depth: int) -> Iterator[tuple[str, bool]]:
    """The texts of a content field, which may be a list of typed parts, each with: is it reasoning?"""
    if isinstance(content, str):
        yield content, False
    elif isinstance(content, list) and depth < _MAX_PART_DEPTH:
        for part in content:
            yield from _content_parts(part, depth + 1)
    elif isinstance(content, dict):
        kind = content.get("type")
        is_reasoning = isinstance(kind, str) and any(word in kind for word in _REASONING_PARTS)
        yield _text(content, depth), is_reasoning


def _text(value: object, depth: int) -> str:
    if isinstance(value, str):
        return value
    if depth >= _MAX_PART_DEPTH:
        return ""
    if isinstance(value, list):
        return "".join(_text(part, depth + 1) for part in value)
    if isinstance(value, dict):
        return next((text for field in _TEXT_FIELDS if (text := _text(value.get(field), depth + 1))), "")
    return ""


def _reasoning(delta: Mapping[str, Any]) -> str:
    """Servers that use two names send the same text under both, so the first one that holds text is it."""
    for field in _REASONING_FIELDS:
        value = delta.get(field)
        if value and (text := _text(value, 0)):
            return text
    return ""


def _finish_reason(choice: Mapping[str, Any]) -> FinishReason | None:
    for field in _FINISH_FIELDS:
        reason = choice.get(field)
        if isinstance(reason, str) and reason.strip().lower() not in ("", "null", "none"):
            letters = "".join(char for char in reason.lower() if char.isalnum())
            return _FINISH_REASONS.get(letters, "stop")
    return None


def _fragments(calls: object) -> Iterator[Fragment]:
    for call in calls if isinstance(calls, list) else [calls]:
        fragment = _fragment(call)
        if fragment is not None:
            yield fragment


def _fragment(call: object) -> Fragment | None:
    if not isinstance(call, dict):
        return None
    body = call.get("function")
    if isinstance(body, str):
        body = {**call, "name": body}
    elif not isinstance(body, dict):
        body = call
    name = body.get("name")
    arguments = next((body[field] for field in ("arguments", "parameters", "args") if body.get(field) is not None), "")
    is_text = isinstance(arguments, str)
    call_id = call.get("id")
    return Fragment(
        index=_integer(call.get("index")),
        id=str(call_id) if isinstance(call_id, str | int) and not isinstance(call_id, bool) else "",
        name=name if isinstance(name, str) else "",
        arguments=arguments if is_text else _encoded(arguments),
        is_object=not is_text,
    )


def _encoded(arguments: object) -> str:
    try:
        return json.dumps(arguments, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return ""


def _integer(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return int(value)
    except (ValueError, OverflowError):
        return None
