"""Messages of Anthropic's API, decoded to the values that every protocol shares (Messages API reference, 2026-11).

A string and a list of one text block are the same value, so a client that changes its spelling from turn to turn
still finds its prefix in the cache. `system` entries stay where they are. Neighbours of one role become one message,
as the API promises. What marks blocks for other servers (cache_control, signatures, citations) leaves no trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, assert_never

import orjson

from gateway.errors import InvalidRequest
from gateway.protocols.fields import Fields, missing, wrong_type
from gateway.protocols.omissions import Omissions
from gateway.types import ChatMessage, ToolUse

# Claude Code's own accounting, different in every release and session; as the first words of a prompt it would keep
# one session from finding another's prefix.
_BILLING = "x-anthropic-billing-header:"
_Role = Literal["user", "assistant", "system"]
_ROLES: tuple[_Role, ...] = ("user", "assistant", "system")
_TEXT = "a string or an array of text blocks"


@dataclass(frozen=True, slots=True)
class Conversation:
    """prefill: the text of a last assistant message, which the answer continues. loaded: names of tools that a result
    or a system entry has made known; defined: tools that were added with their definition. warnings: what of it the
    model cannot read."""

    messages: tuple[ChatMessage, ...]
    prefill: str
    loaded: frozenset[str]
    defined: tuple[Fields, ...]
    warnings: tuple[str, ...] = ()


def decode_conversation(fields: Fields) -> Conversation:
    """Raises InvalidRequest."""
    path = fields.path("messages")
    items = fields.array("messages")
    if items is None:
        raise missing(path, "an array of messages")
    if not items:
        raise InvalidRequest(path, f"{path} must have at least one message.", code="empty_array")

    entries = [Fields.of(item, f"{path}[{i}]") for i, item in enumerate(items)]
    omissions = Omissions()
    messages = _system(fields, omissions)
    answered = max((i for i, entry in enumerate(entries) if entry.get("role") == "assistant"), default=-1)
    last_user = max((i for i, entry in enumerate(entries) if entry.get("role") == "user"), default=-1)
    for i, entry in enumerate(entries):
        decoded = _messages(entry, omissions, i < answered)
        if not (i < last_user and entry.get("clear_at") == "next_user_message"):
            messages += decoded
    messages = _merged(messages)
    if not messages:
        raise InvalidRequest(path, f"{path} must have at least one message with content.", code="empty_array")
    prefill = ""
    last = messages[-1]
    if last.role == "assistant" and len(messages) > 1 and not last.tool_uses and last.reasoning is None:
        prefill = last.content
        messages.pop()
    blocks = [block for entry in entries for block in _with_results(entry)]
    loaded, defined = frozenset(_loaded(blocks)), tuple(_defined(blocks))
    return Conversation(tuple(messages), prefill, loaded, defined, omissions.warnings)


def _system(fields: Fields, omissions: Omissions) -> list[ChatMessage]:
    value = fields.get("system")
    if value is None:
        return []
    texts = [_without_billing(text) for text in _texts(value, fields.path("system"), omissions, False)]
    text = "\n".join(text for text in texts if text)
    return [ChatMessage("system", text)] if text else []


def _without_billing(text: str) -> str:
    start = 0
    while text.startswith(_BILLING, start):
        end = text.find("\n", start)
        start = end + 1 if end >= 0 else len(text)
    return text[start:]


def _messages(entry: Fields, omissions: Omissions, is_history: bool) -> list[ChatMessage]:
    role = entry.choice("role", _ROLES)
    if role is None:
        raise missing(entry.path("role"), "'user', 'assistant' or 'system'")
    match role:
        case "system":
            # An entry may hold settings only.
            text = "\n".join(_texts(entry.get("content") or "", entry.path("content"), omissions, is_history))
            return [ChatMessage("system", text)] if text else []
        case "assistant":
            return [_assistant(entry, omissions)]
        case "user":
            return _user(entry, omissions, is_history)
        case _:
            assert_never(role)


def _texts(value: object, path: str, omissions: Omissions, is_history: bool) -> list[str]:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise wrong_type(path, _TEXT, value)
    return [_readable(Fields.of(block, f"{path}[{i}]"), omissions, is_history) for i, block in enumerate(value)]


def _blocks(entry: Fields) -> Iterator[Fields]:
    """The content as blocks; a string is one block of text."""
    value = entry.get("content")
    path = entry.path("content")
    if value is None:
        raise missing(path, "a string or an array of blocks")
    if isinstance(value, str):
        yield Fields({"type": "text", "text": value}, path)
        return
    if not isinstance(value, list):
        raise wrong_type(path, "a string or an array of blocks", value)
    for i, block in enumerate(value):
        yield Fields.of(block, f"{path}[{i}]")


def _readable(block: Fields, omissions: Omissions, is_history: bool) -> str:
    """What a block of a user, of a system entry or of a tool's result says to the model."""
    kind = block.required_string("type")
    match kind:
        case "text":
            return _string(block, "text")
        case "search_result":
            texts = "\n".join(_texts(block.get("content") or [], block.path("content"), omissions, is_history))
            return f"{block.string('title') or ''} ({block.string('source') or ''})\n{texts}"
        case "tool_reference":
            return f"The tool {block.required_string('tool_name')} is available now."
        case "tool_addition":
            return f"The tool {_changed_tool(block)} is available now."
        case "tool_removal":
            # It stays in the prompt's head, where the cached prefix has it.
            return f"The tool {_changed_tool(block)} is not available any more."
        case _:
            return omissions.replace(block, kind, is_history)


def _changed_tool(block: Fields) -> str:
    tool = block.object("tool")
    if tool is None:
        raise missing(block.path("tool"), "a reference to a tool, or its definition")
    return (tool.object("definition") or tool).required_string("name")


def _string(block: Fields, name: str) -> str:
    text = block.string(name)
    if text is None:
        raise missing(block.path(name), "a string")
    return text


def _user(entry: Fields, omissions: Omissions, is_history: bool) -> list[ChatMessage]:
    """Results become messages of their own; texts between them stay between them."""
    messages: list[ChatMessage] = []
    texts: list[str] = []

    def end_text() -> None:
        if texts:
            messages.append(ChatMessage("user", "\n".join(texts)))
            texts.clear()

    for block in _blocks(entry):
        if block.required_string("type") == "tool_result":
            end_text()
            messages.append(_tool_result(block, omissions))
        else:
            texts.append(_readable(block, omissions, is_history))
    end_text()
    return messages or [ChatMessage("user", "")]


def _tool_result(block: Fields, omissions: Omissions) -> ChatMessage:
    call_id = block.required_string("tool_use_id")
    text = "\n".join(_texts(block.get("content") or "", block.path("content"), omissions, True))
    # Chat templates know no failed results, and the model should.
    if block.boolean("is_error") and "error" not in text[:80].lower():
        text = f"Error: {text}" if text else "Error"
    return ChatMessage("tool", text, tool_call_id=call_id)


def _assistant(entry: Fields, omissions: Omissions) -> ChatMessage:
    texts: list[str] = []
    thoughts: list[str] = []
    uses: list[ToolUse] = []
    for block in _blocks(entry):
        kind = block.required_string("type")
        match kind:
            case "text":
                texts.append(_string(block, "text"))
            case "thinking":
                thoughts.append(_string(block, "thinking"))
            case "tool_use":
                uses.append(_tool_use(block))
            case "redacted_thinking" | "fallback":
                # Another server's secrets and bookmarks.
                pass
            case "compaction":
                texts.append(block.string("content") or "")
            case _:
                # On a line of its own, between the pieces of a text.
                begins_line = not texts or texts[-1].endswith("\n")
                texts.append(("" if begins_line else "\n") + omissions.note(kind) + "\n")
    # The blocks are pieces of one text, cut where a call or a citation stood.
    reasoning = "\n".join(filter(None, thoughts)) or None
    return ChatMessage("assistant", "".join(texts), reasoning=reasoning, tool_uses=tuple(uses))


def _tool_use(block: Fields) -> ToolUse:
    call_id = block.required_string("id")
    name = block.required_string("name")
    given = block.get("input")
    if given is not None and not isinstance(given, dict):
        raise wrong_type(block.path("input"), "an object", given)
    return ToolUse(call_id, name, orjson.dumps(given or {}).decode())


def _merged(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """O(all of the text): each run of neighbours is joined once."""
    merged: list[ChatMessage] = []
    for role, neighbours in groupby(messages, lambda message: message.role):
        run = list(neighbours)
        if len(run) == 1 or role not in ("user", "assistant"):
            merged += run
        elif role == "user":
            merged.append(ChatMessage("user", "\n".join(message.content for message in run)))
        else:
            merged.append(
                ChatMessage(
                    "assistant",
                    "".join(message.content for message in run),
                    reasoning="\n".join(message.reasoning for message in run if message.reasoning) or None,
                    tool_uses=tuple(use for message in run for use in message.tool_uses),
                )
            )
    return merged


def _with_results(entry: Fields) -> Iterator[Fields]:
    """The blocks of an entry that was checked, and those inside its tool results."""
    if entry.get("content") is None:
        return
    for block in _blocks(entry):
        yield block
        if block.get("type") == "tool_result" and isinstance(block.get("content"), list):
            yield from _blocks(block)


def _loaded(blocks: Sequence[Fields]) -> Iterator[str]:
    for block in blocks:
        if block.get("type") == "tool_reference":
            yield block.required_string("tool_name")
        elif block.get("type") == "tool_addition":
            yield _changed_tool(block)


def _defined(blocks: Sequence[Fields]) -> Iterator[Fields]:
    for block in blocks:
        tool = block.object("tool") if block.get("type") == "tool_addition" else None
        definition = tool.object("definition") if tool is not None else None
        if definition is not None:
            yield definition
