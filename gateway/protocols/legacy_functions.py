"""Chat Completions as it was before tools: `functions`, `function_call` and messages of the role `function`.

Deprecated in OpenAI's API since 2023-11 and still accepted there. A request is respelled with tools before it is
decoded, so the model and its prompt know no difference; the answer goes out as such a client reads it. One call an
answer, without an id: ours is made from the message's place, the same each turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gateway.errors import InvalidRequest
from gateway.protocols.fields import Fields, missing, shown
from gateway.protocols.frames import Json

_MODES = ("auto", "none")


def speaks_legacy(fields: Fields) -> bool:
    """Whether the answer's calls are to be a `function_call`."""
    return bool(fields.array("functions")) and not fields.array("tools")


def with_tools(fields: Fields) -> Fields:
    """The request in today's spelling. Raises InvalidRequest, with the names of the fields that were sent."""
    functions = fields.array("functions") or []
    path = fields.path("functions")
    for i, function in enumerate(functions):
        Fields.of(function, f"{path}[{i}]").required_string("name")
    tools = [{"type": "function", "function": function} for function in functions]
    rest = {name: value for name, value in fields.raw.items() if name not in ("functions", "function_call")}
    return Fields({**rest, "tools": tools, "tool_choice": _choice(fields, functions)})


def _choice(fields: Fields, functions: Sequence[Json]) -> Any:
    if not isinstance(fields.get("function_call"), dict):
        return fields.choice("function_call", _MODES)
    choice = Fields(fields.get("function_call"), fields.path("function_call"))
    name = choice.required_string("name")
    if name not in [function["name"] for function in functions]:
        path = choice.path("name")
        raise InvalidRequest(path, f"{path} is {shown(name)}, but no function of the request has that name.")
    return {"type": "function", "function": {"name": name}}


def with_tool_calls(entries: Sequence[Fields], path: str) -> Iterator[Fields]:
    """The messages in today's spelling. Raises InvalidRequest."""
    latest: dict[str, str] = {}
    for i, entry in enumerate(entries):
        role = entry.get("role")
        if role == "function":
            call_id = latest.get(entry.required_string("name"), f"call_{i}")
            content = "" if entry.get("content") is None else entry.get("content")
            yield Fields({**entry.raw, "role": "tool", "tool_call_id": call_id, "content": content}, f"{path}[{i}]")
            continue
        call = entry.object("function_call") if role == "assistant" and not entry.get("tool_calls") else None
        if call is None:
            yield entry
            continue
        if not isinstance(call.get("arguments"), (str, dict, type(None))):
            raise missing(call.path("arguments"), "a string of JSON")
        latest[call.required_string("name")] = f"call_{i}"
        tool_call = {"id": f"call_{i}", "type": "function", "function": call.raw}
        yield Fields({**entry.raw, "tool_calls": [tool_call]}, f"{path}[{i}]")
