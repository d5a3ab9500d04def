"""Chat messages and tools as OpenAI's Chat Completions spells them, decoded. Later protocols map onto the same values.

Content may be a string or a list of text parts, in every role; both give the same ChatMessage, so that a client which
changes its spelling from one turn to the next still finds its prefix in the cache. Reasoning comes back under every
name that clients use for it, see `_reasoning`; `<think>` in the content is the chat template's matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import orjson

from gateway.errors import InvalidRequest
from gateway.protocols.fields import Fields, missing, shown, wrong_type
from gateway.protocols.legacy_functions import with_tool_calls
from gateway.protocols.omissions import Omissions
from gateway.types import ChatMessage, NamedTool, Role, ToolChoice, ToolUse

# What the one argument of a tool is called that takes free text.
CUSTOM_INPUT = "input"
MAX_TOOLS = 1024
MAX_NAME_CHARS = 256
_ROLES: tuple[Role, ...] = ("system", "developer", "user", "assistant", "tool")
_ToolMode = Literal["auto", "none", "required"]
_TOOL_MODES: tuple[_ToolMode, ...] = ("auto", "none", "required")
_ALLOWED_TOOLS_MODES: tuple[_ToolMode, ...] = ("auto", "required")
# As other servers send it, and so as clients send it back. The first that has text counts: some servers send two.
_REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_text", "thinking")
# Of an assistant's content parts, or of reasoning_details: where the text stands.
_REASONING_PART_FIELDS = ("text", "thinking", "reasoning", "summary")
_REASONING_PARTS = ("thinking", "reasoning")
_TEXT_PART_FIELDS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}


def decode_messages(fields: Fields, omissions: Omissions) -> tuple[ChatMessage, ...]:
    """Raises InvalidRequest."""
    path = fields.path("messages")
    items = fields.array("messages")
    if items is None:
        raise missing(path, "an array of messages")
    if not items:
        raise InvalidRequest(path, f"{path} must have at least one message.", code="empty_array")
    given = [Fields.of(item, f"{path}[{i}]") for i, item in enumerate(items)]
    entries = list(with_tool_calls(given, path))
    answered = max((i for i, entry in enumerate(entries) if entry.get("role") == "assistant"), default=-1)
    return tuple(_message(entry, omissions, i < answered) for i, entry in enumerate(entries))


def _message(fields: Fields, omissions: Omissions, is_answered: bool) -> ChatMessage:
    role = fields.choice("role", _ROLES)
    if role is None:
        raise missing(fields.path("role"), "one of " + ", ".join(repr(role) for role in _ROLES))
    name = fields.string("name", max_chars=MAX_NAME_CHARS)

    if role == "assistant":
        # After a turn that only called tools, or said nothing, clients send content null back.
        text = decode_content(fields, "content", omissions, True, _REASONING_PARTS)
        content = text or fields.string("refusal") or ""
        return ChatMessage(role, content, name, _reasoning(fields), _tool_uses(fields))

    call_id = fields.required_string("tool_call_id") if role == "tool" else None
    text = decode_content(fields, "content", omissions, is_answered or role == "tool")
    if text is None:
        raise missing(fields.path("content"), "a string or an array of text parts")
    return ChatMessage(role, text, name, tool_call_id=call_id)


def decode_content(
    fields: Fields, name: str, omissions: Omissions, is_history: bool, skipped: tuple[str, ...] = ()
) -> str | None:
    """skipped: types of parts that are no part of the text."""
    value = fields.get(name)
    path = fields.path(name)
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise wrong_type(path, "a string or an array of text parts", value)
    parts = [Fields.of(part, f"{path}[{i}]") for i, part in enumerate(value)]
    texts = [_part_text(part, omissions, is_history) for part in parts if part.raw.get("type") not in skipped]
    return "\n".join(texts)


def _part_text(part: Fields, omissions: Omissions, is_history: bool) -> str:
    kind = part.required_string("type")
    field = _TEXT_PART_FIELDS.get(kind)
    if field is None:
        return omissions.replace(part, kind, is_history)
    text = part.string(field)
    if text is None:
        raise missing(part.path(field), "a string")
    return text


def _reasoning(fields: Fields) -> str | None:
    for name in _REASONING_FIELDS:
        value = fields.get(name)
        if isinstance(value, str) and value:
            return value
    details = fields.get("reasoning_details")
    content = fields.get("content")
    # Everything in it is an object: the content was decoded before.
    parts = [part for part in content if part.get("type") in _REASONING_PARTS] if isinstance(content, list) else []
    return _reasoning_text(details if isinstance(details, list) else []) or _reasoning_text(parts) or None


def _reasoning_text(value: Any) -> str:
    """Of parts in any nesting. What is sealed or unknown has none."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(map(_reasoning_text, value))
    if not isinstance(value, dict):
        return ""
    return next(filter(None, (_reasoning_text(value.get(name)) for name in _REASONING_PART_FIELDS)), "")


def _tool_uses(fields: Fields) -> tuple[ToolUse, ...]:
    calls = fields.array("tool_calls") or []
    path = fields.path("tool_calls")
    return tuple(_tool_use(Fields.of(call, f"{path}[{i}]")) for i, call in enumerate(calls))


def _tool_use(call: Fields) -> ToolUse:
    call_id = call.required_string("id")
    if call.get("type") == "custom":
        custom = call.object("custom")
        if custom is None:
            raise missing(call.path("custom"), "an object with name and input")
        text = custom.string("input") or ""
        return ToolUse(call_id, custom.required_string("name"), orjson.dumps({CUSTOM_INPUT: text}).decode())
    function = call.object("function")
    if function is None:
        raise missing(call.path("function"), "an object with name and arguments")
    name = function.required_string("name")
    arguments = function.get("arguments")
    if isinstance(arguments, dict):
        # Not in OpenAI's API, but some agents keep the parsed arguments; what they mean is plain.
        arguments = orjson.dumps(arguments).decode()
    elif arguments is not None and not isinstance(arguments, str):
        raise wrong_type(function.path("arguments"), "a string of JSON", arguments)
    return ToolUse(call_id, name, arguments or "{}")


def decode_tools(fields: Fields) -> tuple[Mapping[str, Any], ...]:
    """The tools as the client sent them: the template sees the same keys in the same order every turn."""
    tools = fields.array("tools") or []
    path = fields.path("tools")
    if len(tools) > MAX_TOOLS:
        raise InvalidRequest(path, f"{path} may have {MAX_TOOLS} entries at most, got {len(tools)}.")
    for i, tool in enumerate(tools):
        _check_tool(Fields.of(tool, f"{path}[{i}]"))
    return tuple(tools)


def _check_tool(tool: Fields) -> None:
    kind = tool.required_string("type")
    if kind != "function":
        path = tool.path("type")
        raise InvalidRequest(path, f"{path} must be 'function', got {shown(kind)}: no other tools run here.")
    function = tool.object("function")
    if function is None:
        raise missing(tool.path("function"), "an object with name and parameters")
    function.required_string("name", max_chars=MAX_NAME_CHARS)
    function.string("description")
    function.object("parameters")
    function.boolean("strict")


def allowed_tools(fields: Fields, tools: tuple[Mapping[str, Any], ...]) -> tuple[Mapping[str, Any], ...]:
    """Those that tool_choice leaves to the model: the others are not shown to it. Raises InvalidRequest."""
    choice = fields.object("tool_choice") if isinstance(fields.get("tool_choice"), dict) else None
    if choice is None or choice.get("type") != "allowed_tools":
        return tools
    holder = choice.object("allowed_tools") or choice
    path = holder.path("tools")
    names: set[str] = set()
    for i, given in enumerate(holder.array("tools") or []):
        entry = Fields.of(given, f"{path}[{i}]")
        named_by = entry.object("function") or entry
        name = named_by.required_string("name")
        if name not in {tool["function"]["name"] for tool in tools}:
            name_path = named_by.path("name")
            message = f"{name_path} is {shown(name)}, but no tool of the request has that name."
            raise InvalidRequest(name_path, message)
        names.add(name)
    return tuple(tool for tool in tools if tool["function"]["name"] in names) if names else tools


def decode_tool_choice(fields: Fields, tools: tuple[Mapping[str, Any], ...]) -> ToolChoice:
    value = fields.get("tool_choice")
    path = fields.path("tool_choice")
    if value is None:
        return "auto"
    if isinstance(value, dict):
        return _tool_choice_object(Fields(value, path), tools)
    choice = fields.choice("tool_choice", _TOOL_MODES)
    assert choice is not None
    if choice == "required" and not tools:
        raise InvalidRequest(path, f"{path} is 'required', but the request has no tools.")
    return choice


def _tool_choice_object(choice: Fields, tools: tuple[Mapping[str, Any], ...]) -> ToolChoice:
    kind = choice.choice("type", ("function", "allowed_tools"))
    if kind is None:
        raise missing(choice.path("type"), "'function' or 'allowed_tools'")
    if kind == "allowed_tools":
        allowed = choice.object("allowed_tools") or choice
        return allowed.choice("mode", _ALLOWED_TOOLS_MODES) or "auto"
    # Responses puts the name beside the type, Chat Completions one level down.
    holder = choice.object("function") or choice
    name = holder.required_string("name")
    if name not in {tool["function"]["name"] for tool in tools}:
        path = holder.path("name")
        raise InvalidRequest(path, f"{path} is {shown(name)}, but no tool of the request has that name.")
    return NamedTool(name)
