"""Requests of Anthropic's Messages API to turns (API reference, versions 2023-06-01 and 2026-10-21, read 2026-11).

What only makes sense on Anthropic's servers is accepted and ignored; what changes the answer and cannot be had here is
named in the turn's warnings; so is what the model cannot read of the history, and what is new is refused.
docs/protocols.md has the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, assert_never

from gateway.errors import InvalidRequest
from gateway.protocols.anthropic_content import Conversation, decode_conversation
from gateway.protocols.fields import Fields, missing, shown
from gateway.protocols.frames import Json
from gateway.protocols.handed_on import messages_fields
from gateway.protocols.messages import MAX_NAME_CHARS, MAX_TOOLS
from gateway.protocols.output_format import messages_format
from gateway.protocols.sampling import decode_max_tokens, decode_sampling, decode_stop
from gateway.protocols.unforced import FORCED_CALL, forced_format
from gateway.types import FREE_TEXT, ChatTurn, NamedTool, OutputFormat, SamplingParams, ToolChoice

Tool = Mapping[str, Any]

_ToolMode = Literal["auto", "any", "tool", "none"]
_TOOL_MODES: tuple[_ToolMode, ...] = ("auto", "any", "tool", "none")
_Thinking = Literal["enabled", "adaptive", "between_tools", "disabled"]
_THINKING: tuple[_Thinking, ...] = ("enabled", "adaptive", "between_tools", "disabled")
# Templates have no word above "high" but DeepSeek's "max".
_EFFORTS = {"xhigh": "high"}
_TOOL_SEARCH = "tool_search_tool"


def decode_messages_request(body: Json) -> ChatTurn:
    """Raises InvalidRequest."""
    fields = Fields(body)
    max_tokens = decode_max_tokens(fields, "max_tokens", low=0)
    if max_tokens is None:
        raise missing("max_tokens", "how many tokens the answer may have")
    conversation = decode_conversation(fields)
    tools = _tools(fields, conversation)
    tool_choice = _tool_choice(fields, tools)
    choice = fields.object("tool_choice") or Fields({})
    stop = decode_stop(fields, "stop_sequences")
    output, output_field = messages_format(fields)
    if conversation.prefill and output != FREE_TEXT:
        # As Anthropic's API has it: the form would be that of the rest alone.
        message = f"messages end with the assistant's own text, and {output_field} asks for a form: send one of them."
        raise InvalidRequest(output_field, message)

    return ChatTurn(
        model=fields.string("model"),
        messages=conversation.messages,
        params=decode_sampling(fields, max_tokens=max_tokens, logprobs=None),
        tools=tools,
        tool_choice=tool_choice,
        stop=stop.strings,
        include_stop=stop.include,
        stream=fields.boolean("stream"),
        template_kwargs=_template_kwargs(fields, conversation.prefill),
        prefill=conversation.prefill,
        parallel_calls=not choice.boolean("disable_parallel_tool_use"),
        cache_salt=fields.string("cache_salt", max_chars=256) or "",
        warnings=(*_warnings(fields, tool_choice, output, output_field), *conversation.warnings),
        output=output,
        output_field=output_field,
        schema_field="input_schema",
        max_reasoning_tokens=_reasoning_budget(fields),
        handed_on=messages_fields(body),
    )


def decode_count_tokens(body: Json) -> ChatTurn:
    """The prompt of a request that is counted and not run. Raises InvalidRequest."""
    fields = Fields(body)
    conversation = decode_conversation(fields)
    tools = _tools(fields, conversation)
    return ChatTurn(
        model=fields.string("model"),
        messages=conversation.messages,
        params=SamplingParams(),
        tools=tools,
        tool_choice=_tool_choice(fields, tools),
        template_kwargs=_template_kwargs(fields, conversation.prefill),
        prefill=conversation.prefill,
    )


def _tools(fields: Fields, conversation: Conversation) -> tuple[Tool, ...]:
    """The client's own tools as Chat Completions spells them, in the client's order and with its keys' order."""
    path = fields.path("tools")
    given = fields.array("tools") or []
    if len(given) > MAX_TOOLS:
        raise InvalidRequest(path, f"{path} may have {MAX_TOOLS} entries at most, got {len(given)}.")
    entries = [Fields.of(tool, f"{path}[{i}]") for i, tool in enumerate(given)]
    # Deferred tools stay out of the prompt until a search has loaded them. Where Anthropic's server would have
    # searched, nobody does: then all of them are shown.
    shows_deferred = any(kind.startswith(_TOOL_SEARCH) for kind in map(_kind, entries))
    tools: list[Tool] = []
    for entry in (*entries, *conversation.defined):
        if _kind(entry) != "custom":
            continue
        tool = _tool(entry)
        if not entry.boolean("defer_loading") or shows_deferred or tool["function"]["name"] in conversation.loaded:
            tools.append(tool)
    return tuple(tools)


def _kind(tool: Fields) -> str:
    return tool.string("type") or "custom"


def _tool(entry: Fields) -> Tool:
    function: dict[str, Any] = {"name": entry.required_string("name", max_chars=MAX_NAME_CHARS)}
    description = entry.string("description")
    if description is not None:
        function["description"] = description
    schema = entry.object("input_schema")
    if schema is None:
        raise missing(entry.path("input_schema"), "the JSON Schema of the tool's input")
    function["parameters"] = schema.raw
    if entry.boolean("strict"):
        function["strict"] = True
    return {"type": "function", "function": function}


def _tool_choice(fields: Fields, tools: Sequence[Tool]) -> ToolChoice:
    choice = fields.object("tool_choice")
    if choice is None:
        return "auto"
    kind = choice.choice("type", _TOOL_MODES)
    path = choice.path("type")
    match kind:
        case None:
            raise missing(path, "'auto', 'any', 'tool' or 'none'")
        case "auto" | "none":
            return kind
        case "any":
            if not tools:
                raise InvalidRequest(path, f"{path} is 'any', but the request has no tools that can be called.")
            return "required"
        case "tool":
            name = choice.required_string("name")
            if name not in {tool["function"]["name"] for tool in tools}:
                path = choice.path("name")
                raise InvalidRequest(path, f"{path} is {shown(name)}, but no tool of the request has that name.")
            return NamedTool(name)
        case _:
            assert_never(kind)


def _template_kwargs(fields: Fields, prefill: str) -> dict[str, Any]:
    """Under every name by which chat templates know them; a template ignores what it does not have."""
    kwargs: dict[str, Any] = {}
    config = fields.object("output_config")
    effort = config.string("effort", max_chars=64) if config is not None else None
    if effort is not None:
        kwargs["reasoning_effort"] = _EFFORTS.get(effort, effort)

    thinking = fields.object("thinking")
    kind = thinking.choice("type", _THINKING) if thinking is not None else None
    if thinking is not None and kind is None:
        raise missing(thinking.path("type"), "'enabled', 'adaptive', 'between_tools' or 'disabled'")
    if prefill:
        # The answer has begun: it is too late to think.
        kind = "disabled"
    if kind is not None:
        is_on = kind != "disabled"
        kwargs |= {"enable_thinking": is_on, "thinking": is_on}
        # MiniMax's name, with Anthropic's own values.
        kwargs["thinking_mode"] = "enabled" if kind == "between_tools" else kind
        if not is_on:
            kwargs["thinking_budget"] = 0
        elif thinking is not None:
            budget = thinking.integer("budget_tokens", low=1, high=2**31 - 1)
            kwargs |= {} if budget is None else {"thinking_budget": budget}
    given = fields.object("chat_template_kwargs")
    return {**kwargs, **(given.raw if given is not None else {})}


def _reasoning_budget(fields: Fields) -> int | None:
    thinking = fields.object("thinking")
    if thinking is not None and thinking.get("type") == "enabled":
        return thinking.integer("budget_tokens", low=1, high=2**31 - 1)
    return None


def _warnings(
    fields: Fields, tool_choice: ToolChoice, output: OutputFormat, output_field: str
) -> Iterator[str]:
    if tool_choice == "required" or isinstance(tool_choice, NamedTool):
        yield FORCED_CALL
    if output != FREE_TEXT:
        yield forced_format(output_field)
    budget, room = _reasoning_budget(fields), fields.get("max_tokens")
    if budget is not None and budget >= room > 0:
        yield f"thinking.budget_tokens is not below max_tokens ({room}): the answer may be all reasoning"
    if hosted := sorted({kind for tool in fields.array("tools") or [] if (kind := _kind(Fields(tool))) != "custom"}):
        yield f"tools of type {', '.join(map(shown, hosted))} are left out: no tools run here"
    for name in ("mcp_servers", "container"):
        if fields.get(name):
            yield f"{name} is ignored: no tools run here"
