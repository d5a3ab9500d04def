"""Schemas that say the contrary of another in keywords that a grammar enforces. Few have one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from inference.grammar import keywords
from stream_parser.schema_types import ALL_TYPES

Contrary: TypeAlias = Mapping[str, Any] | bool
_CONSTRAINING = keywords.ENFORCED | keywords.NOT_ENFORCED | keywords.REFUSED


def contrary_of(schema: object, path: str) -> Contrary | None:
    """What `not` of this schema demands; None where no other keywords say so. Raises UnsupportedKeyword."""
    if schema is True or schema is False:
        return not schema
    if not isinstance(schema, Mapping):
        return None
    words = schema.keys() & _CONSTRAINING
    if not words:
        return False
    if words == {"type"}:
        return _other_types(schema, path)
    if words == {"required"}:
        absent = [{"properties": {name: False}} for name in keywords.names(schema, "required", path)]
        # What is no object has all that is required of one.
        return {"type": "object", "anyOf": absent} if absent else False
    if words == {"not"}:
        inner: Contrary = schema["not"]
        return inner if isinstance(inner, Mapping | bool) else None
    return None


def _other_types(schema: Mapping[str, Any], path: str) -> Contrary | None:
    excluded = keywords.types(schema, path)
    if "integer" in excluded and "number" not in excluded:
        return None  # numbers that are not whole have no type of their own
    return {"type": sorted(ALL_TYPES - excluded - {"integer"})}
