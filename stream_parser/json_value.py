"""Decoded JSON whose numbers keep their text, so that nothing is lost between reading and writing it again."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TypeAlias

from stream_parser.json_text import quoted

# Deeper values are valid JSON, but common decoders (this one among them) refuse them.
MAX_DEPTH = 100

_BRACKETS = re.compile(r'"(?:[^"\\]+|\\.)*"|([\[{])|([\]}])', re.DOTALL)
_INTEGER = re.compile(r"-?[0-9]+")


@dataclass(frozen=True, slots=True)
class Number:
    text: str

    @property
    def decimal(self) -> Decimal:
        """The value; an exponent out of all bounds counts as infinity."""
        try:
            return Decimal(self.text)
        except InvalidOperation:
            return Decimal("-Infinity" if self.text.startswith("-") else "Infinity")

    @property
    def is_integer(self) -> bool:
        if _INTEGER.fullmatch(self.text):
            return True
        value = self.decimal
        return value.is_finite() and value == value.to_integral_value()


_CONSTANTS = {None: "null", True: "true", False: "false"}
_TYPE_NAMES: dict[type, str] = {
    type(None): "null",
    bool: "boolean",
    str: "string",
    list: "array",
    dict: "object",
}
Value: TypeAlias = "bool | str | Number | list[Value] | dict[str, Value] | None"


class JsonError(ValueError):
    """The text is no JSON, or nested too deeply (`is_too_deep`) to be decoded."""

    def __init__(self, is_too_deep: bool = False) -> None:
        super().__init__("nested too deeply" if is_too_deep else "not JSON")
        self.is_too_deep = is_too_deep


def parse(text: str) -> Value:
    """Decode strict JSON. Raises JsonError. O(len(text))."""
    if text.count("[") + text.count("{") > MAX_DEPTH and _depth(text) > MAX_DEPTH:
        raise JsonError(is_too_deep=True)
    try:
        value: Value = json.loads(text, parse_int=Number, parse_float=Number, parse_constant=_refuse)
    except ValueError:
        raise JsonError from None
    return value


def dump(value: Value) -> str:
    """JSON text in the common spelling, with a blank behind commas and colons."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, Number):
        return value.text
    if isinstance(value, list):
        return "[" + ", ".join(dump(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(key)}: {dump(item)}" for key, item in value.items()) + "}"
    return _CONSTANTS[value]


def type_name(value: Value) -> str:
    """The JSON Schema type; a whole number is an integer however it is spelled."""
    if isinstance(value, Number):
        return "integer" if value.is_integer else "number"
    return _TYPE_NAMES[type(value)]


def _refuse(constant: str) -> Value:
    raise ValueError(constant)


def _depth(text: str) -> int:
    depth = deepest = 0
    for match in _BRACKETS.finditer(text):
        if match[1]:
            depth += 1
            deepest = max(deepest, depth)
        elif match[2]:
            depth -= 1
    return deepest
