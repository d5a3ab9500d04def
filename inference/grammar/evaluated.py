"""Which members and places of a value the keywords of one schema have looked at: what `unevaluated…` leaves out.

Keywords that apply to the value itself hand on what they saw, if they fit; draft 2020-12, sections 11.2 and 11.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from inference.grammar.keywords import dependents, item_schemas


class Fits(Protocol):
    def fits(self, value: object, schema: object, depth: int = 0) -> bool: ...

    def target(self, schema: Mapping[str, Any]) -> object: ...

    def matches(self, pattern: str, text: str) -> bool: ...


def evaluated_keys(validator: Fits, value: Mapping[str, object], schema: object, depth: int) -> set[str]:
    """The members that `schema`, without its own `unevaluatedProperties`, and what applies with it, has looked at."""
    if not isinstance(schema, Mapping):
        return set()
    if "additionalProperties" in schema:
        return set(value)
    seen = set(schema.get("properties") or ()) & value.keys()
    for pattern in schema.get("patternProperties") or ():
        seen |= {key for key in value if validator.matches(pattern, key)}
    for part in _applied(validator, value, schema, depth):
        if isinstance(part, Mapping) and "unevaluatedProperties" in part:
            return set(value)
        seen |= evaluated_keys(validator, value, part, depth + 1)
    return seen


def evaluated_items(validator: Fits, value: Sequence[object], schema: object, depth: int) -> set[int]:
    """The same for places of an array."""
    if not isinstance(schema, Mapping):
        return set()
    prefix, _ = item_schemas(schema)
    if "items" in schema and not isinstance(schema["items"], list):
        return set(range(len(value)))
    seen = set(range(min(len(prefix), len(value))))
    if "contains" in schema:
        seen |= {index for index, item in enumerate(value) if validator.fits(item, schema["contains"], depth)}
    for part in _applied(validator, value, schema, depth):
        if isinstance(part, Mapping) and "unevaluatedItems" in part:
            return set(range(len(value)))
        seen |= evaluated_items(validator, value, part, depth + 1)
    return seen


def _applied(validator: Fits, value: object, schema: Mapping[str, Any], depth: int) -> Iterator[object]:
    """The schemas within that hold for the value itself, and that it fits."""
    if "$ref" in schema:
        yield validator.target(schema)
    yield from schema.get("allOf") or ()
    for word in ("anyOf", "oneOf"):
        yield from (option for option in schema.get(word) or () if validator.fits(value, option, depth))
    if "if" in schema:
        holds = validator.fits(value, schema["if"], depth)
        yield from (schema["if"], schema.get("then", True)) if holds else (schema.get("else", True),)
    if isinstance(value, Mapping):
        yield from (dependent.schema for dependent in dependents(schema, "") if dependent.key in value)
