"""JSON Schema's keywords (draft 2020-12, and what older drafts and tool authors still write): what becomes of each.

docs/structured-outputs.md prints this table; a test holds the two together. Knows nothing of grammars.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from inference.grammar.errors import UnsupportedKeyword
from stream_parser.schema_types import ALL_TYPES, schema_types

ENFORCED = frozenset(
    {
        "type", "enum", "const", "nullable", "$ref", "$defs", "definitions", "$anchor", "allOf", "anyOf", "oneOf",
        "minLength", "maxLength", "pattern", "format",
        "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
        "items", "prefixItems", "additionalItems", "minItems", "maxItems",
        "properties", "required", "additionalProperties", "patternProperties", "propertyNames",
        "minProperties", "maxProperties", "unevaluatedProperties",
        "dependentRequired", "dependentSchemas", "dependencies",
    }
)  # fmt: skip
# Accepted, since leaving them out lets no valid value be lost; the finished value is to be validated.
NOT_ENFORCED = frozenset(
    {
        "not", "if", "then", "else", "uniqueItems", "contains", "minContains", "maxContains", "unevaluatedItems",
    }
)  # fmt: skip
REFUSED = frozenset({"$dynamicRef", "$recursiveRef"})


def count(schema: Mapping[str, Any], key: str, path: str) -> int | None:
    """The value of a keyword that counts."""
    value = schema.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or value != int(value):
        raise UnsupportedKeyword(path, key, f"must be a whole number of at least 0, got {value!r:.60}.")
    return int(value)


def number(schema: Mapping[str, Any], key: str, path: str) -> Decimal | None:
    value = schema.get(key)
    if value is None or (isinstance(value, bool) and key.startswith("exclusive")):
        return None  # a boolean is draft 4's, which `bounds_of` reads
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnsupportedKeyword(path, key, f"must be a number, got {value!r:.60}.")
    try:
        found = Decimal(str(value))
    except InvalidOperation:
        found = Decimal("NaN")
    if not found.is_finite():
        raise UnsupportedKeyword(path, key, f"must be a finite number, got {value!r:.60}.")
    return found


def schemas(schema: Mapping[str, Any], key: str, path: str) -> list[tuple[object, str]]:
    """The schemas in a list, each with its path."""
    value = schema.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise UnsupportedKeyword(path, key, f"must be a list of schemas, got {value!r:.60}.")
    return [(item, f"{path}.{key}[{index}]") for index, item in enumerate(value)]


def named_schemas(schema: Mapping[str, Any], key: str, path: str) -> dict[str, tuple[object, str]]:
    value = schema.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UnsupportedKeyword(path, key, f"must be an object of schemas, got {value!r:.60}.")
    return {str(name): (item, f"{path}.{key}.{name}") for name, item in value.items()}


def names(schema: Mapping[str, Any], key: str, path: str) -> list[str]:
    value = schema.get(key)
    if value is None or isinstance(value, bool):
        return []  # draft 3 wrote `required: true` inside a property
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise UnsupportedKeyword(path, key, f"must be a list of property names, got {value!r:.60}.")
    return value


def types(schema: Mapping[str, Any], path: str) -> frozenset[str]:
    """The types that one schema allows by itself, "integer" wherever "number" is."""
    named = schema.get("type")
    listed = named if isinstance(named, list) else [] if named is None else [named]
    for name in listed:
        if not isinstance(name, str) or schema_types({"type": name}) == ALL_TYPES:
            raise UnsupportedKeyword(path, "type", f"names no JSON type: {named!r:.60}.")
    if "enum" in schema and not isinstance(schema["enum"], list):
        raise UnsupportedKeyword(path, "enum", f"must be a list, got {schema['enum']!r:.60}.")
    if named == []:
        return frozenset()
    allowed = schema_types({key: schema[key] for key in ("type", "nullable") if key in schema})
    return allowed | {"integer"} if "number" in allowed else allowed
