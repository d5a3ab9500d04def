"""JSON Schema's keywords (draft 2020-12, and what older drafts and tool authors still write): what becomes of each.

docs/structured-outputs.md prints this table; a test holds the two together. Knows nothing of grammars.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Generic, TypeAlias, TypeVar

from inference.grammar.errors import UnsupportedKeyword
from inference.grammar.nodes import Impossible
from inference.grammar.places import Part
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

_ANY = "any"  # draft 3's name of all types
_MAX_COUNT = 1_000_000
_MAX_MAGNITUDE = 308

Schema: TypeAlias = Mapping[str, Any]
_N = TypeVar("_N", int, Decimal)


@dataclass(frozen=True, slots=True)
class Found(Generic[_N]):
    """A keyword's value, and where it stands."""

    value: _N
    keyword: str
    path: str


def chosen(
    parts: Sequence[Part],
    key: str,
    read: Callable[[Schema, str, str], _N | None],
    choose: Callable[[Sequence[_N]], _N],
) -> Found[_N] | None:
    """Of the values that several schemas give one keyword, the one that binds."""
    found = [Found(n, key, p.path) for p in parts if (n := read(p.schema, key, p.path)) is not None]
    if not found:
        return None
    value = choose([one.value for one in found])
    return next(one for one in found if one.value == value)


def greatest(parts: Sequence[Part], key: str, read: Callable[[Schema, str, str], _N | None]) -> Found[_N] | None:
    return chosen(parts, key, read, max)


def least(parts: Sequence[Part], key: str, read: Callable[[Schema, str, str], _N | None]) -> Found[_N] | None:
    return chosen(parts, key, read, min)


def crossed(low: Found[_N] | None, high: Found[_N] | None) -> Impossible | None:
    return contradiction(low, high, "is more than") if low and high and low.value > high.value else None


def contradiction(low: Found[_N], high: Found[_N], relation: str) -> Impossible:
    beside = f" at {high.path}" if high.path != low.path else ""
    return Impossible(low.path, low.keyword, f'of {low.value} {relation} "{high.keyword}" of {high.value}{beside}')


def count(schema: Mapping[str, Any], key: str, path: str) -> int | None:
    """The value of a keyword that counts."""
    value = schema.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf or value % 1:
        raise UnsupportedKeyword(path, key, f"must be a whole number of at least 0, got {value!r:.60}.")
    if value > _MAX_COUNT:
        raise UnsupportedKeyword(path, key, f"may be {_MAX_COUNT:,} at most, got {value:.6g}.")
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
    if found and abs(found.adjusted()) > _MAX_MAGNITUDE:
        raise UnsupportedKeyword(path, key, f"must be a number that a double holds, got {value!r:.60}.")
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


@dataclass(frozen=True, slots=True)
class Dependent:
    """A schema that holds for an object which has a member `key`."""

    key: str
    schema: object
    keyword: str
    path: str


def dependents(schema: Schema, path: str) -> list[Dependent]:
    """`dependencies` is the older name of both keywords."""
    found = []
    for word in ("dependentRequired", "dependentSchemas", "dependencies"):
        for key, (value, at) in named_schemas(schema, word, path).items():
            held = {"required": value} if word != "dependentSchemas" and isinstance(value, list) else value
            found.append(Dependent(key, held, word, at))
    return found


def item_words(schema: Schema) -> tuple[str, str]:
    """The keywords for an array's first places and for the rest: a list of `items` is older drafts' `prefixItems`."""
    return ("items", "additionalItems") if isinstance(schema.get("items"), list) else ("prefixItems", "items")


def item_schemas(schema: Schema) -> tuple[list[object], object]:
    """The schemas of the first places, and that of the rest."""
    word, rest_word = item_words(schema)
    prefix = schema.get(word)
    return prefix if isinstance(prefix, list) else [], schema.get(rest_word, True)


def last_keyword(path: str) -> str:
    """The keyword under which a path's last schema stands."""
    known = ENFORCED | NOT_ENFORCED
    steps = [step.partition("[")[0] for step in path.split(".")]
    return next((step for step in reversed(steps) if step in known), "schema")


def names(schema: Mapping[str, Any], key: str, path: str) -> list[str]:
    value = schema.get(key)
    if value is None or isinstance(value, bool):
        return []  # draft 3 wrote `required: true` inside a property
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise UnsupportedKeyword(path, key, f"must be a list of property names, got {value!r:.60}.")
    return value


def tag(schema: Schema) -> str | None:
    """The member that tells a value's option: OpenAPI's `discriminator`, which pydantic writes and then insists on."""
    discriminator = schema.get("discriminator")
    name = discriminator.get("propertyName") if isinstance(discriminator, Mapping) else None
    return name if isinstance(name, str) else None


def types(schema: Mapping[str, Any], path: str) -> frozenset[str]:
    """The types that one schema allows by itself, "integer" wherever "number" is."""
    named = schema.get("type")
    listed = named if isinstance(named, list) else [] if named is None else [named]
    for name in listed:
        if not isinstance(name, str) or (name.lower() != _ANY and schema_types({"type": name}) == ALL_TYPES):
            raise UnsupportedKeyword(path, "type", f"names no JSON type: {named!r:.60}.")
    if "enum" in schema and not isinstance(schema["enum"], list):
        raise UnsupportedKeyword(path, "enum", f"must be a list, got {schema['enum']!r:.60}.")
    if named == []:
        return frozenset()
    allowed = schema_types({key: schema[key] for key in ("type", "nullable") if key in schema})
    return allowed | {"integer"} if "number" in allowed else allowed
