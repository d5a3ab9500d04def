"""The tools of a request: which exist, what types their parameters have, whether arguments fit.

The other half of the parser asks here and nowhere else. A tool list is the caller's input and may be malformed: what is
not there allows everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from stream_parser import repair
from stream_parser.coercion import coerce
from stream_parser.events import Outcome
from stream_parser.json_value import JsonError, dump, parse
from stream_parser.literals import read_literal
from stream_parser.references import References
from stream_parser.schema_check import SchemaChecker
from stream_parser.schema_types import Schema, TypeSet
from stream_parser.typing_rules import TypingRules, type_value

__all__ = ["ToolIndex", "ToolSchema", "TypeSet", "TypingRules", "check", "type_value"]


class ToolSchema:
    """One declared tool. `types` is the type of its arguments as a whole."""

    def __init__(self, name: str, parameters: object) -> None:
        self.name = name
        self._root: Schema = parameters if isinstance(parameters, Mapping) else {}
        references = References(self._root)
        self.types = TypeSet(self._root, references)
        self.checker = SchemaChecker(self._root, references)

    @cached_property
    def params(self) -> tuple[str, ...]:
        """The declared keys, in the schema's order."""
        return self.types.keys

    @cached_property
    def required(self) -> frozenset[str]:
        required = self._root.get("required")
        return frozenset(key for key in required if isinstance(key, str)) if isinstance(required, list) else frozenset()

    def param(self, key: str) -> TypeSet | None:
        """The type of one parameter, None for one that is not declared."""
        return self.types.property(key)


class ToolIndex:
    """The tools of a request by name: OpenAI's form, {"type": "function", "function": {...}}, or the function alone.

    Schemas are read when their tool is called: each of a request's choices has an index, of tools mostly never called.
    """

    def __init__(self, tools: Sequence[Mapping[str, object]] | None) -> None:
        self._parameters: dict[str, object] = {}
        self._schemas: dict[str, ToolSchema] = {}
        for tool in tools or ():
            function = tool.get("function") if isinstance(tool, Mapping) else None
            body = function if isinstance(function, Mapping) else tool
            name = body.get("name") if isinstance(body, Mapping) else None
            if isinstance(name, str) and name:
                self._parameters.setdefault(name, body.get("parameters", body.get("input_schema")))
        self.names: frozenset[str] = frozenset(self._parameters)

    def get(self, name: str) -> ToolSchema | None:
        if name not in self._schemas and name in self._parameters:
            self._schemas[name] = ToolSchema(name, self._parameters[name])
        return self._schemas.get(name)


def check(tool: ToolSchema | None, arguments: str, streamed: str) -> tuple[str, Outcome, str]:
    """The verdict on a call that is whole: its arguments, its outcome, and a reason code or "".

    `streamed` is what has been sent of `arguments`; the result always begins with it, so a call is brought to its
    schema only where nothing of it was sent wrongly. Without a tool anything goes that is a JSON object.
    O(len(arguments)).
    """
    try:
        value = parse(arguments)
    except JsonError as error:
        return arguments, "invalid", repair.TOO_DEEP if error.is_too_deep else repair.NOT_JSON
    if not isinstance(value, dict):
        return arguments, "invalid", repair.NOT_OBJECT
    fault = tool.checker.first_fault(value) if tool else ""
    if not fault or not tool:
        return arguments, "ok", ""
    changed = coerce(value, tool.types, read_literal)
    text = dump(changed)
    if changed != value and text.startswith(streamed) and not tool.checker.first_fault(changed):
        return text, "repaired", repair.COERCED_TYPE
    return arguments, "invalid", fault
