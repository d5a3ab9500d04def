"""Validates finished arguments against a tool's schema, and brings them to it where the meaning is certain.

A small validator for what tools use: type, enum, const, required, properties, additionalProperties, items,
prefixItems, the combinators, local references, bounds, lengths and patterns. A keyword it does not know, or that is
malformed, allows everything. Model output never makes it raise or hang: nesting, references and patterns are bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal

from stream_parser import repair
from stream_parser.json_value import Number, Value, type_name
from stream_parser.references import References
from stream_parser.safe_patterns import safe_search
from stream_parser.schema_types import Schema, schema_types

# How far schemas are followed below each other, and how many are tried for one value: references may lead in circles,
# alternatives multiply, and Python's own stack is short. What lies beyond is allowed.
_MAX_DEPTH = 120
_MAX_VISITS = 20_000


class SchemaChecker:
    """Checks values against one root schema. `first_fault` gives the first reason code found, "" for none."""

    def __init__(self, root: Schema, references: References) -> None:
        self._root = root
        self._references = references
        self._visits = 0

    def first_fault(self, value: Value) -> str:
        self._visits = 0
        return next(self._faults(value, self._root, 0), "")

    def _fits(self, value: Value, schema: object, depth: int) -> bool:
        return next(self._faults(value, schema, depth), None) is None

    def _faults(self, value: Value, schema: object, depth: int) -> Iterator[str]:
        if schema is False:
            yield repair.SCHEMA_FORM
        self._visits += 1
        if not isinstance(schema, Mapping) or depth > _MAX_DEPTH or self._visits > _MAX_VISITS:
            return
        yield from self._own_faults(value, schema)
        if isinstance(value, dict):
            yield from self._object_faults(value, schema, depth)
        elif isinstance(value, list):
            yield from self._array_faults(value, schema, depth)
        yield from self._combined_faults(value, schema, depth)

    def _own_faults(self, value: Value, schema: Schema) -> Iterator[str]:
        name = type_name(value)
        allowed = schema_types({key: schema[key] for key in ("type", "nullable") if key in schema})
        if name not in allowed and not (name == "integer" and "number" in allowed):
            yield repair.SCHEMA_TYPE
        enum = schema.get("enum")
        is_null = value is None and schema.get("nullable") is True
        if isinstance(enum, list) and not is_null and not any(_equals(value, choice) for choice in enum):
            yield repair.SCHEMA_ENUM
        if "const" in schema and not _equals(value, schema["const"]):
            yield repair.SCHEMA_ENUM
        if isinstance(value, Number):
            yield from _number_faults(value.decimal, schema)
        elif isinstance(value, str):
            yield from _text_faults(value, schema)

    def _object_faults(self, value: dict[str, Value], schema: Schema, depth: int) -> Iterator[str]:
        required = schema.get("required")
        if isinstance(required, list) and any(isinstance(key, str) and key not in value for key in required):
            yield repair.SCHEMA_REQUIRED
        yield from _bound_faults(Decimal(len(value)), schema, "minProperties", "maxProperties")
        properties = schema.get("properties")
        declared: Mapping[str, object] = properties if isinstance(properties, Mapping) else {}
        extra = schema.get("additionalProperties")
        for key, item in value.items():
            if key in declared:
                yield from self._faults(item, declared[key], depth + 1)
            elif extra is False and "patternProperties" not in schema:
                yield repair.SCHEMA_EXTRA
            elif "patternProperties" not in schema:
                yield from self._faults(item, extra, depth + 1)

    def _array_faults(self, value: list[Value], schema: Schema, depth: int) -> Iterator[str]:
        yield from _bound_faults(Decimal(len(value)), schema, "minItems", "maxItems")
        items, prefix = schema.get("items"), schema.get("prefixItems")
        if isinstance(items, list):
            items, prefix = schema.get("additionalItems"), items
        listed = prefix if isinstance(prefix, list) else []
        for item, item_schema in zip(value, listed, strict=False):
            yield from self._faults(item, item_schema, depth + 1)
        for item in value[len(listed) :]:
            yield from self._faults(item, items, depth + 1)

    def _combined_faults(self, value: Value, schema: Schema, depth: int) -> Iterator[str]:
        if "$ref" in schema:
            yield from self._faults(value, self._references.target(schema["$ref"]), depth + 1)
        for part in _listed(schema, "allOf"):
            yield from self._faults(value, part, depth + 1)
        for word in ("anyOf", "oneOf"):
            options = _listed(schema, word)
            # Of oneOf's demand that no second one fits, nothing is enforced: generated schemas overlap.
            if options and not any(self._fits(value, option, depth + 1) for option in options):
                yield repair.SCHEMA_FORM
        if isinstance(schema.get("not"), Mapping) and self._fits(value, schema["not"], depth + 1):
            yield repair.SCHEMA_FORM


def _listed(schema: Schema, word: str) -> list[object]:
    value = schema.get(word)
    return value if isinstance(value, list) else []


def _equals(value: Value, other: object) -> bool:
    """Is a decoded value the same as one from the schema, whose numbers are Python's?"""
    if isinstance(other, bool) or isinstance(value, bool) or other is None or value is None:
        return value is other
    if isinstance(value, Number):
        return isinstance(other, int | float) and value.decimal == Decimal(str(other))
    if isinstance(value, list):
        return isinstance(other, list) and len(value) == len(other) and all(map(_equals, value, other))
    if isinstance(value, dict):
        if not isinstance(other, dict) or value.keys() != other.keys():
            return False
        return all(_equals(item, other[key]) for key, item in value.items())
    return value == other


def _decimal(bound: object) -> Decimal | None:
    return Decimal(str(bound)) if isinstance(bound, int | float) and not isinstance(bound, bool) else None


def _number_faults(value: Decimal, schema: Schema) -> Iterator[str]:
    yield from _bound_faults(value, schema, "minimum", "maximum")
    exclusive: tuple[tuple[str, Callable[[Decimal, Decimal], bool]], ...] = (
        ("exclusiveMinimum", lambda number, bound: number <= bound),
        ("exclusiveMaximum", lambda number, bound: number >= bound),
    )
    for word, is_outside in exclusive:
        bound = _decimal(schema.get(word))
        if bound is not None and is_outside(value, bound):
            yield repair.SCHEMA_RANGE


def _bound_faults(size: Decimal, schema: Schema, least: str, most: str) -> Iterator[str]:
    low, high = _decimal(schema.get(least)), _decimal(schema.get(most))
    if (low is not None and size < low) or (high is not None and size > high):
        yield repair.SCHEMA_RANGE


def _text_faults(value: str, schema: Schema) -> Iterator[str]:
    yield from _bound_faults(Decimal(len(value)), schema, "minLength", "maxLength")
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and not safe_search(pattern, value):
        yield repair.SCHEMA_PATTERN
