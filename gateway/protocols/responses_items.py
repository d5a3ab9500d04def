"""Input items of the Responses API as chat messages, in the order in which the client sends them.

What the model wrote in one go (reasoning, text and calls that follow each other) is one assistant message, as Chat
Completions would spell it, so that a conversation gives the same prompt on both. Where it called tools that run on
OpenAI's servers, a note stands (see `omissions`). Knows nothing of stored responses: references are resolved before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from gateway.errors import InvalidRequest
from gateway.protocols.fields import Fields, missing, shown, wrong_type
from gateway.protocols.messages import CUSTOM_INPUT, decode_content
from gateway.protocols.omissions import Omissions
from gateway.protocols.responses_opaque import Unsealer
from gateway.protocols.responses_tools import qualified
from gateway.types import ChatMessage, Role, ToolUse

Item = Mapping[str, Any]
_ROLES: tuple[Role, ...] = ("user", "assistant", "system", "developer")
_TEXT_PARTS = ("text", "input_text", "output_text", "summary_text", "reasoning_text")
_HOSTED = (
    "web_search_call",
    "file_search_call",
    "computer_call",
    "computer_call_output",
    "code_interpreter_call",
    "image_generation_call",
    "mcp_call",
    "program",
    "program_output",
)
# Nothing that was said.
_LEFT_OUT = ("mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "configuration_update")
# Besides messages of the assistant, and every call.
_WRITTEN = ("reasoning", "program", "compaction", "compaction_summary")


@dataclass(frozen=True, slots=True)
class Transcript:
    """tool_groups: lists of tools that items brought, with their paths, for `decode_tools`."""

    messages: tuple[ChatMessage, ...]
    tool_groups: tuple[tuple[list[Any], str], ...]
    warnings: tuple[str, ...]


def item_type(item: Item) -> str | None:
    """The type an item has or, by its fields, means: messages and references may leave it out."""
    kind = item.get("type")
    if kind is None:
        if "role" in item:
            return "message"
        return "item_reference" if "id" in item else None
    return kind if isinstance(kind, str) else None


def transcribe(history: Sequence[Item], items: Sequence[Any], instructions: str | None) -> Transcript:
    """Raises InvalidRequest. `history` was checked when it was `items` of an earlier request."""
    writer = _Writer()
    if instructions:
        writer.add_message("system", instructions)
    for i, item in enumerate(history):
        writer.add_item(Fields(item, f"history[{i}]"))
    given = [Fields.of(item, f"input[{i}]") for i, item in enumerate(items)]
    answered = max((i for i, item in enumerate(given) if _is_written(item.raw)), default=-1)
    for i, fields in enumerate(given):
        writer.is_history = i < answered
        writer.add_item(fields)
    return writer.transcript()


def _is_written(item: Item) -> bool:
    """Whether the model wrote it, so that what comes before was answered."""
    kind = item_type(item) or ""
    return kind in _WRITTEN or kind.endswith("_call") or (kind == "message" and item.get("role") == "assistant")


class _Writer:
    """The assistant message in progress stays open while items that the model wrote follow each other."""

    def __init__(self) -> None:
        self._messages: list[ChatMessage] = []
        self._tool_groups: list[tuple[list[Any], str]] = []
        self._warnings: dict[str, None] = {}
        self.unsealer = Unsealer()
        self.omissions = Omissions()
        self.is_history = True
        self._reasoning: list[str] = []
        self._texts: list[str] = []
        self._uses: list[ToolUse] = []
        self._is_open = False
        self._ends_in_text = False

    def transcript(self) -> Transcript:
        self._close()
        return Transcript(tuple(self._messages), tuple(self._tool_groups), (*self._warnings, *self.omissions.warnings))

    def add_item(self, item: Fields) -> None:
        kind = item_type(item.raw)
        handler = _HANDLERS.get(kind or "")
        if handler is not None:
            handler(item, self)
        elif kind in _LEFT_OUT:
            self.warn(f"input items of type {kind} are ignored: the model does not know what they are")
        elif kind in _HOSTED or (kind and self.is_history):
            self._add_note(self.omissions.note(kind))
        else:
            path = item.path("type")
            raise InvalidRequest(path, f"{path} is {shown(item.get('type'))}, which is no type of input item.")

    def warn(self, text: str) -> None:
        self._warnings[text] = None

    def add_message(self, role: Role, text: str, name: str | None = None, call_id: str | None = None) -> None:
        self._close()
        self._messages.append(ChatMessage(role, text, name, tool_call_id=call_id))

    def add_text(self, text: str) -> None:
        if self._ends_in_text:
            # Two messages in a row are two messages, not what the model wrote around a call.
            self._close()
        self._texts.append(text)
        self._is_open = self._ends_in_text = True

    def _add_note(self, text: str) -> None:
        """Within what the model wrote: it ends no message and begins none."""
        self._texts.append(text)
        self._is_open, self._ends_in_text = True, False

    def add_reasoning(self, text: str) -> None:
        self._reasoning.append(text)
        self._is_open, self._ends_in_text = True, False

    def add_use(self, use: ToolUse) -> None:
        self._uses.append(use)
        self._is_open, self._ends_in_text = True, False

    def add_tools(self, tools: list[Any], path: str) -> None:
        self._tool_groups.append((tools, path))

    def _close(self) -> None:
        if not self._is_open:
            return
        reasoning = "\n".join(self._reasoning) or None
        content = "\n".join(self._texts)
        self._messages.append(ChatMessage("assistant", content, None, reasoning, tuple(self._uses)))
        self._reasoning, self._texts, self._uses = [], [], []
        self._is_open = self._ends_in_text = False


def _message(item: Fields, writer: _Writer) -> None:
    role = item.choice("role", _ROLES)
    if role is None:
        raise missing(item.path("role"), "one of " + ", ".join(repr(role) for role in _ROLES))
    is_history = writer.is_history or role == "assistant"
    text = decode_content(item, "content", writer.omissions, is_history)
    if text is None:
        raise missing(item.path("content"), "a string or an array of text parts")
    if role == "assistant":
        writer.add_text(text)
    else:
        writer.add_message(role, text)


def _reasoning(item: Fields, writer: _Writer) -> None:
    """The text itself where there is one, then what we sealed, then the summary."""
    text = _joined(item, "content")
    sealed = item.string("encrypted_content")
    if not text and sealed:
        opened = writer.unsealer.open(sealed)
        if isinstance(opened, str):
            text = opened
        else:
            writer.warn("encrypted_content of other servers' reasoning items is ignored")
    text = text or _joined(item, "summary")
    if text:
        writer.add_reasoning(text)


def _joined(item: Fields, name: str) -> str:
    path = item.path(name)
    parts = [Fields.of(part, f"{path}[{i}]") for i, part in enumerate(item.array(name) or [])]
    return "".join(part.string("text") or "" for part in parts)


def _function_call(item: Fields, writer: _Writer) -> None:
    name = qualified(item.required_string("name"), item.string("namespace"))
    arguments = item.get("arguments")
    # Not in OpenAI's API, but some agents keep the parsed arguments; what they mean is plain.
    text = _json(arguments) if isinstance(arguments, dict) else item.string("arguments")
    writer.add_use(ToolUse(_call_id(item), name, text or "{}"))


def _custom_tool_call(item: Fields, writer: _Writer) -> None:
    name = qualified(item.required_string("name"), item.string("namespace"))
    arguments = _json({CUSTOM_INPUT: item.string("input") or ""})
    writer.add_use(ToolUse(_call_id(item), name, arguments))


def _built_in_call(name: str, field: str) -> Callable[[Fields, _Writer], None]:
    """Calls of OpenAI's shell and patch tools, which clients run: to the model, calls of functions."""

    def add(item: Fields, writer: _Writer) -> None:
        value = item.get(field)
        writer.add_use(ToolUse(_call_id(item), name, _json(value if isinstance(value, dict) else {})))

    return add


def _call_id(item: Fields) -> str:
    return item.string("call_id") or item.string("id") or "call_unknown"


def _tool_output(item: Fields, writer: _Writer) -> None:
    """Of the client's own tools: what has neither would be nobody's result, or none."""
    call_id = item.required_string("call_id")
    if item.get("output") is None:
        raise missing(item.path("output"), "a string or an array of parts")
    writer.add_message("tool", _output_text(item, writer), item.string("name"), call_id)


def _built_in_output(item: Fields, writer: _Writer) -> None:
    """local_shell_call_output names its call by `id`; apply_patch_call_output may have no more than a status."""
    call_id = item.string("call_id") or item.string("id")
    writer.add_message("tool", _output_text(item, writer), item.string("name"), call_id)


def _output_text(item: Fields, writer: _Writer) -> str:
    value = item.get("output")
    path = item.path("output")
    if isinstance(value, str):
        return value
    if value is None:
        return item.string("status") or ""
    if isinstance(value, dict):
        return _json(value)
    if not isinstance(value, list):
        raise wrong_type(path, "a string or an array of parts", value)
    return "\n".join(_part_text(Fields.of(part, f"{path}[{i}]"), writer) for i, part in enumerate(value))


def _part_text(part: Fields, writer: _Writer) -> str:
    """An agent whose tool gives an image goes on with what the model can read."""
    kind = part.string("type")
    if kind in _TEXT_PARTS:
        return part.string("text") or ""
    if kind is None:
        return _command_text(part)
    return writer.omissions.note(kind)


def _command_text(part: Fields) -> str:
    """What one shell command left (shell_call_output)."""
    texts = [text for text in (part.string("stdout"), part.string("stderr")) if text]
    outcome = part.object("outcome")
    if outcome is not None:
        code = outcome.get("exit_code")
        texts.append("timed out" if code is None else f"exit code {code}")
    return "\n".join(texts)


def _tool_search_call(item: Fields, writer: _Writer) -> None:
    arguments = item.get("arguments")
    text = arguments if isinstance(arguments, str) else _json(arguments or {})
    writer.add_use(ToolUse(_call_id(item), "tool_search", text))


def _tool_search_output(item: Fields, writer: _Writer) -> None:
    tools = item.array("tools") or []
    writer.add_tools(tools, item.path("tools"))
    names = [str(tool.get("name")) for tool in tools if isinstance(tool, dict)]
    writer.add_message("tool", "Found: " + (", ".join(names) or "no tools"), "tool_search", _call_id(item))


def _additional_tools(item: Fields, writer: _Writer) -> None:
    writer.add_tools(item.array("tools") or [], item.path("tools"))


def _compaction(item: Fields, writer: _Writer) -> None:
    items = writer.unsealer.open(item.required_string("encrypted_content"))
    path = item.path("encrypted_content")
    if not isinstance(items, list):
        raise InvalidRequest(path, f"{path} is not one that this server made, so the conversation cannot go on.")
    for i, inner in enumerate(items):
        fields = Fields.of(inner, f"{path}[{i}]")
        if item_type(fields.raw) == "compaction":
            raise InvalidRequest(path, f"{path} has another compaction in it, which this server does not make.")
        writer.add_item(fields)


def _compaction_trigger(item: Fields, writer: _Writer) -> None:
    """Asks for a compaction instead of an answer; see responses_request."""


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


_HANDLERS: dict[str, Callable[[Fields, _Writer], None]] = {
    "message": _message,
    "reasoning": _reasoning,
    "function_call": _function_call,
    "function_call_output": _tool_output,
    "custom_tool_call": _custom_tool_call,
    "custom_tool_call_output": _tool_output,
    "local_shell_call": _built_in_call("local_shell", "action"),
    "local_shell_call_output": _built_in_output,
    "shell_call": _built_in_call("shell", "action"),
    "shell_call_output": _built_in_output,
    "apply_patch_call": _built_in_call("apply_patch", "operation"),
    "apply_patch_call_output": _built_in_output,
    "tool_search_call": _tool_search_call,
    "tool_search_output": _tool_search_output,
    "additional_tools": _additional_tools,
    "compaction": _compaction,
    "compaction_summary": _compaction,
    "compaction_trigger": _compaction_trigger,
}
