"""Tools of the Responses API as the model gets them, and back: which tool a call's name means.

The model knows functions only. A custom tool (free text) becomes a function with one string, `input`; a namespace's
tools become functions named `namespace__tool`. Hosted tools do not run here and are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gateway.errors import InvalidRequest
from gateway.protocols.fields import Fields, named, shown
from gateway.protocols.messages import CUSTOM_INPUT, MAX_NAME_CHARS, MAX_TOOLS
from gateway.protocols.unforced import FORCED_CALL
from gateway.types import NamedTool, ToolChoice

_SEPARATOR = "__"
_ToolMode = Literal["auto", "none", "required"]
_MODES: tuple[_ToolMode, ...] = ("auto", "none", "required")

# They run on OpenAI's servers. A name may have a date behind it: web_search_preview_2025_03_11.
_HOSTED = (
    "web_search",
    "file_search",
    "computer",
    "code_interpreter",
    "image_generation",
    "mcp",
    "local_shell",
    "shell",
    "apply_patch",
    "tool_search",
    "programmatic_tool_calling",
)


@dataclass(frozen=True, slots=True)
class ToolName:
    """How the client calls a tool. `is_custom`: its argument is free text instead of JSON."""

    name: str
    namespace: str | None = None
    is_custom: bool = False


def qualified(name: str, namespace: str | None) -> str:
    """The name under which the model knows a tool."""
    return name if namespace is None else f"{namespace}{_SEPARATOR}{name}"


@dataclass(frozen=True, slots=True)
class ToolTable:
    """functions: for the chat template, in the client's order. warnings: what of the request's tools is left out."""

    functions: tuple[Mapping[str, Any], ...]
    names: Mapping[str, ToolName]
    warnings: tuple[str, ...] = ()

    def find(self, called: str) -> ToolName:
        """What the model means: models often leave the namespace out. An unknown name is passed on as a function's."""
        exact = self.names.get(called)
        if exact is not None:
            return exact
        matches = [name for name in self.names.values() if name.name == called]
        return matches[0] if len(matches) == 1 else ToolName(called)


def decode_tools(groups: Iterable[tuple[list[Any], str]]) -> ToolTable:
    """`groups`: lists of tools, with their paths. Of two with one name the first is kept. Raises InvalidRequest."""
    builder = _Builder()
    for tools, path in groups:
        for i, tool in enumerate(tools):
            builder.add(Fields.of(tool, f"{path}[{i}]"))
    if len(builder.functions) > MAX_TOOLS:
        number = len(builder.functions)
        raise InvalidRequest("tools", f"A request may have {MAX_TOOLS} tools at most, got {number}.")
    warnings = tuple(f"tools of type {named(kind)} are ignored: they do not run here" for kind in builder.ignored)
    return ToolTable(tuple(builder.functions), builder.names, warnings)


class _Builder:
    def __init__(self) -> None:
        self.functions: list[Mapping[str, Any]] = []
        self.names: dict[str, ToolName] = {}
        self.ignored: dict[str, None] = {}

    def add(self, tool: Fields) -> None:
        kind = tool.required_string("type")
        if kind == "namespace":
            self._add_namespace(tool)
        elif kind in ("function", "custom"):
            self._add_tool(tool, kind, None)
        elif kind.startswith(_HOSTED):
            self.ignored[kind] = None
        else:
            path = tool.path("type")
            message = f"{path} must be 'function', 'custom', 'namespace' or a hosted tool's, got {shown(kind)}."
            raise InvalidRequest(path, message)

    def _add_namespace(self, tool: Fields) -> None:
        namespace = tool.required_string("name", max_chars=MAX_NAME_CHARS)
        path = tool.path("tools")
        for i, nested in enumerate(tool.array("tools") or []):
            fields = Fields.of(nested, f"{path}[{i}]")
            kind = fields.choice("type", ("function", "custom")) or "function"
            self._add_tool(fields, kind, namespace)

    def _add_tool(self, tool: Fields, kind: str, namespace: str | None) -> None:
        # Chat Completions puts everything one level down; some clients send that here as well.
        holder = (tool.object("function") if kind == "function" else tool.object("custom")) or tool
        name = holder.required_string("name", max_chars=MAX_NAME_CHARS)
        called = qualified(name, namespace)
        if called in self.names:
            return
        is_custom = kind == "custom"
        self.names[called] = ToolName(name, namespace, is_custom)
        function = _custom_function(holder, called) if is_custom else _function(holder, called)
        self.functions.append({"type": "function", "function": function})


def _function(tool: Fields, name: str) -> dict[str, Any]:
    function: dict[str, Any] = {"name": name}
    description, parameters = tool.string("description"), tool.object("parameters")
    if description is not None:
        function["description"] = description
    if parameters is not None:
        function["parameters"] = parameters.raw
    if tool.get("strict") is not None:
        function["strict"] = tool.boolean("strict")
    return function


def _custom_function(tool: Fields, name: str) -> dict[str, Any]:
    about = "The tool's input, as free text."
    grammar = tool.object("format")
    if grammar is not None and grammar.string("type") == "grammar":
        syntax, definition = grammar.string("syntax") or "lark", grammar.string("definition") or ""
        about = f"The tool's input, as text that follows this {syntax} grammar:\n{definition}"
    text = {"type": "string", "description": about}
    parameters = {"type": "object", "properties": {CUSTOM_INPUT: text}, "required": [CUSTOM_INPUT]}
    return {"name": name, "description": tool.string("description") or "", "parameters": parameters}


def decode_tool_choice(fields: Fields, tools: ToolTable) -> tuple[ToolChoice, tuple[str, ...]]:
    """The choice, and what of it cannot be kept. Raises InvalidRequest."""
    value = fields.get("tool_choice")
    if value is None:
        return "auto", ()
    if not isinstance(value, dict):
        return _with_warning(_checked(fields.choice("tool_choice", _MODES) or "auto", fields, tools))
    choice = Fields(value, fields.path("tool_choice"))
    kind = choice.required_string("type")
    if kind == "allowed_tools":
        return _with_warning(_checked(choice.choice("mode", _MODES) or "auto", fields, tools))
    if kind in ("function", "custom"):
        return _with_warning(_named(choice, tools))
    return "auto", (f"tool_choice {named(kind)} is ignored: such tools do not run here",)


def allowed_functions(fields: Fields, tools: ToolTable) -> tuple[Mapping[str, Any], ...]:
    """Those that tool_choice leaves to the model: the others are not shown to it. Raises InvalidRequest."""
    value = fields.get("tool_choice")
    if not isinstance(value, dict) or value.get("type") != "allowed_tools":
        return tools.functions
    choice = Fields(value, fields.path("tool_choice"))
    path = choice.path("tools")
    names: set[str] = set()
    for i, given in enumerate(choice.array("tools") or []):
        entry = Fields.of(given, f"{path}[{i}]")
        if entry.get("type") in ("function", "custom", None):
            names.add(_named(entry, tools).name)
    return tuple(tool for tool in tools.functions if tool["function"]["name"] in names) if names else tools.functions


def _checked(mode: _ToolMode, fields: Fields, tools: ToolTable) -> ToolChoice:
    if mode == "required" and not tools.functions:
        path = fields.path("tool_choice")
        raise InvalidRequest(path, f"{path} is 'required', but the request has no tools.")
    return mode


def _named(choice: Fields, tools: ToolTable) -> NamedTool:
    called = qualified(choice.required_string("name"), choice.string("namespace"))
    if called not in tools.names:
        path = choice.path("name")
        raise InvalidRequest(path, f"{path} is {shown(called)}, but no tool of the request has that name.")
    return NamedTool(called)


def _with_warning(choice: ToolChoice) -> tuple[ToolChoice, tuple[str, ...]]:
    if choice == "required" or isinstance(choice, NamedTool):
        return choice, (FORCED_CALL,)
    return choice, ()
