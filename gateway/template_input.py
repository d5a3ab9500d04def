"""What a chat template gets: messages as it expects them, and of the client's own arguments those that it may have.

Knows nothing of templates and tokens themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.errors import InvalidRequest
from gateway.types import ChatMessage, ChatTurn

PARAM = "chat_template_kwargs"

_LANGUAGE = "it is a word of the template language. Leave it out"
_TOKEN = "it is the tokenizer's. Leave it out"
# What helps, by the names that are taken.
_TAKEN: Mapping[str, str] = {
    "messages": "send the conversation as messages",
    "tools": "send them as tools",
    "documents": "put their text into a message",
    "add_generation_prompt": "the prompt always ends where the answer begins. Leave it out",
    "self": "choose another name",
    **dict.fromkeys(("raise_exception", "strftime_now", "range", "dict", "namespace", "cycler", "joiner"), _LANGUAGE),
    **dict.fromkeys(
        ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token"), _TOKEN
    ),
}


def usable_arguments(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Raises InvalidRequest, which names the key and what to do instead."""
    if given.get("add_generation_prompt") is True:
        # Says what happens anyway, and some clients always say it.
        given = {name: value for name, value in given.items() if name != "add_generation_prompt"}
    for name in given:
        if name in _TAKEN:
            raise InvalidRequest(PARAM, f"{PARAM} must not have {name!r}, which the server sets: {_TAKEN[name]}.")
    return given


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


def is_long(turn: ChatTurn, tools: Sequence[Mapping[str, Any]], max_chars: int) -> bool:
    """Whether the prompt is longer, about. Looks no further than it has to."""
    num_chars = 500 * len(tools)
    for message in turn.messages:
        num_chars += 20 + len(message.content) + len(message.reasoning or "")
        num_chars += sum(len(use.arguments) for use in message.tool_uses)
        if num_chars > max_chars:
            return True
    return num_chars > max_chars or any(len(str(tool)) > max_chars for tool in tools)
