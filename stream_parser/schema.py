"""Tool schemas: what type a value has, and whether arguments fit (skeleton of the interface; the body follows)."""

from collections.abc import Mapping, Sequence
from typing import Literal

TypingRules = Literal["schema", "python", "attr_string", "attr_json"]


class TypeSet:
    types: frozenset[str]
    is_string_only: bool
    is_array: bool
    is_object: bool
    items: "TypeSet | None"

    def property(self, key: str) -> "TypeSet | None":
        raise NotImplementedError


class ToolSchema:
    name: str
    types: TypeSet  # of the whole parameters object
    params: tuple[str, ...]
    required: frozenset[str]

    def param(self, key: str) -> TypeSet | None:
        raise NotImplementedError


class ToolIndex:
    names: frozenset[str]

    def __init__(self, tools: Sequence[Mapping[str, object]] | None) -> None:
        raise NotImplementedError

    def get(self, name: str) -> ToolSchema | None:
        raise NotImplementedError


def type_value(raw: str, types: TypeSet | None, rules: TypingRules = "schema") -> str:
    raise NotImplementedError


def check(tool: ToolSchema | None, arguments: str, streamed: str) -> tuple[str, str, str]:
    raise NotImplementedError
