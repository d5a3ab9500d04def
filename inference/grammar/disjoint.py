"""Whether the options of a `oneOf` exclude each other, so that no value fits two of them. Certain or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from inference.grammar import keywords
from inference.grammar.validation import canonical
from stream_parser.schema_types import ALL_TYPES

_MAX_OPTIONS_COMPARED = 48


def are_disjoint(options: Sequence[object]) -> bool:
    """Is it certain that no value fits two of them?"""
    if len(options) > _MAX_OPTIONS_COMPARED:
        return False
    return all(_exclude(left, right) for i, left in enumerate(options) for right in options[:i])


def _exclude(left: object, right: object) -> bool:
    if left is False or right is False:
        return True
    if not isinstance(left, Mapping) or not isinstance(right, Mapping):
        return False
    mine, theirs = (keywords.types(s, "") if "type" in s else ALL_TYPES for s in (left, right))
    if not mine & theirs:
        return True
    values = [_values(left), _values(right)]
    if values[0] is not None and values[1] is not None:
        return not values[0] & values[1]
    both = set(left.get("required") or ()) & set(right.get("required") or ())
    if mine == theirs == {"object"}:
        pairs = [(_property(left, key), _property(right, key)) for key in both]
        return any(_exclude(a, b) for a, b in pairs if a is not None and b is not None)
    return False


def _values(schema: Mapping[str, Any]) -> set[object] | None:
    listed = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(listed, list):
        return None
    return set(map(canonical, [*listed, None] if schema.get("nullable") is True else listed))


def _property(schema: Mapping[str, Any], key: object) -> object:
    properties = schema.get("properties")
    return properties.get(key) if isinstance(properties, Mapping) else None
