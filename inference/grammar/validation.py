"""Does a finished value fit a schema? Every keyword that the schema reader knows, also those that no grammar enforces.

Values are decoded JSON. Draft 2020-12, with the older spellings that `keywords` lists; formats are annotations, as in
the standard. Bounded in work and depth; of keywords that are malformed nothing is decided.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

from inference.grammar.errors import GrammarError
from inference.grammar.evaluated import evaluated_items, evaluated_keys
from inference.grammar.keywords import dependents, item_schemas
from inference.grammar.references import References
from inference.grammar.text_patterns import all_to_find, pattern_fault, whole_pattern
from inference.grammar.text_sets import TextSet, text_set
from stream_parser.schema_types import schema_types

_MAX_VISITS = 5_000
_MAX_DEPTH = 100
_NAMES: Mapping[type, str] = {
    type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object",
}  # fmt: skip
# Most schemas have a few keywords: what they have none of is not looked into.
_NUMERIC = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_OWN = _NUMERIC | {
    "type", "const", "pattern", "required", "minLength", "maxLength", "minItems", "maxItems", "minProperties",
    "maxProperties",
}  # fmt: skip
_COMBINED = frozenset({"$ref", "allOf", "anyOf", "oneOf", "not", "if"})
_DEPENDENT = frozenset({"dependentRequired", "dependentSchemas", "dependencies"})
_SIZES: Mapping[type, tuple[str, str]] = {
    str: ("minLength", "maxLength"), list: ("minItems", "maxItems"), dict: ("minProperties", "maxProperties"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fault:
    """The first thing that does not fit: `keyword`, of the schema that holds for the part of the value at `path`."""

    path: str
    keyword: str


class Undecided(Exception):
    """The schema asks for more work than a check may take."""


# What a keyword raises that is malformed where the reader has not been, within `not` for one; and depth of values.
_UNREAD = (GrammarError, TypeError, AttributeError, RecursionError, ZeroDivisionError)


class Validator:
    """Checks values against the schemas of one document, with `max_visits` of them in all."""

    def __init__(self, root: object, max_visits: int = _MAX_VISITS) -> None:
        self._root = root
        self._references = References(root)
        self._visits_left = max_visits
        self._listed: dict[int, frozenset[object]] = {}

    def first_fault(self, value: object) -> Fault | None:
        """Raises Undecided."""
        try:
            return next(self.faults(value, self._root, "", 0), None)
        except _UNREAD as error:
            raise Undecided from error

    def may_fit(self, value: object, schema: object) -> bool:
        """True as well where that is not decided."""
        try:
            return self.fits(value, schema)
        except (Undecided, *_UNREAD):
            return True

    def fits(self, value: object, schema: object, depth: int = 0) -> bool:
        """Raises Undecided."""
        return next(self.faults(value, schema, "", depth), None) is None

    def faults(self, value: object, schema: object, path: str, depth: int) -> Iterator[Fault]:
        self._visits_left -= 1
        if self._visits_left < 0 or depth > _MAX_DEPTH:
            raise Undecided
        if schema is False:
            yield Fault(path, "false")
        if not isinstance(schema, Mapping):
            return
        if not _OWN.isdisjoint(schema):
            yield from (Fault(path, keyword) for keyword in _own_faults(value, schema))
        if "enum" in schema and not self._is_listed(value, schema):
            yield Fault(path, "enum")
        if isinstance(value, Mapping):
            yield from self._object_faults(value, schema, path, depth + 1)
        elif isinstance(value, list):
            yield from self._array_faults(value, schema, path, depth + 1)
        if not _COMBINED.isdisjoint(schema):
            yield from self._combined_faults(value, schema, path, depth + 1)

    def target(self, schema: Mapping[str, Any]) -> object:
        """What its `$ref` leads to; True where that is nothing."""
        try:
            return self._references.target(schema["$ref"], "")
        except GrammarError:
            return True

    def matches(self, pattern: str, text: str) -> bool:
        """Raises Undecided for what the grammar's lexer cannot follow."""
        return _matches(pattern, text)

    def _is_listed(self, value: object, schema: Mapping[str, Any]) -> bool:
        listed = _read(schema, "enum", list)
        if listed is None or (value is None and schema.get("nullable") is True):
            return True
        if id(listed) not in self._listed:
            self._listed[id(listed)] = frozenset(map(canonical, listed))
        return canonical(value) in self._listed[id(listed)]

    def _object_faults(
        self, value: Mapping[str, object], schema: Mapping[str, Any], path: str, depth: int
    ) -> Iterator[Fault]:
        if not _DEPENDENT.isdisjoint(schema):
            for dependent in dependents(schema, path):
                if dependent.key in value and not self.fits(value, dependent.schema, depth):
                    yield Fault(path, dependent.keyword)
        properties, patterns = _mapping(schema, "properties"), _mapping(schema, "patternProperties")
        for key, item in value.items():
            at = f"{path}.{key}" if path else key
            if "propertyNames" in schema and not self.fits(key, schema["propertyNames"], depth):
                yield Fault(at, "propertyNames")
            own = [properties[key]] if key in properties else []
            own += [found for pattern, found in patterns.items() if self.matches(pattern, key)]
            if not own and schema.get("additionalProperties") is False:
                yield Fault(at, "additionalProperties")
            for found in own or [schema.get("additionalProperties", True)]:
                yield from self.faults(item, found, at, depth)
        if "unevaluatedProperties" in schema:
            for key in value.keys() - evaluated_keys(self, value, schema, depth):
                if not self.fits(value[key], schema["unevaluatedProperties"], depth):
                    yield Fault(f"{path}.{key}" if path else key, "unevaluatedProperties")

    def _array_faults(self, value: list[object], schema: Mapping[str, Any], path: str, depth: int) -> Iterator[Fault]:
        prefix, rest = item_schemas(schema)
        for index, item in enumerate(value):
            found = prefix[index] if index < len(prefix) else rest
            yield from self.faults(item, found, f"{path}[{index}]", depth)
        if schema.get("uniqueItems") is True and len({canonical(item) for item in value}) < len(value):
            yield Fault(path, "uniqueItems")
        if "contains" in schema:
            num_found = sum(self.fits(item, schema["contains"], depth) for item in value)
            low, high = _number(schema, "minContains"), _number(schema, "maxContains")
            if num_found < (1 if low is None else low):
                yield Fault(path, "minContains" if "minContains" in schema else "contains")
            if high is not None and num_found > high:
                yield Fault(path, "maxContains")
        if "unevaluatedItems" in schema:
            seen = evaluated_items(self, value, schema, depth)
            for index in range(len(value)):
                if index not in seen and not self.fits(value[index], schema["unevaluatedItems"], depth):
                    yield Fault(f"{path}[{index}]", "unevaluatedItems")

    def _combined_faults(self, value: object, schema: Mapping[str, Any], path: str, depth: int) -> Iterator[Fault]:
        if "$ref" in schema:
            yield from self.faults(value, self.target(schema), path, depth)
        for part in _listed(schema, "allOf"):
            yield from self.faults(value, part, path, depth)
        any_of, one_of = _read(schema, "anyOf", list), _read(schema, "oneOf", list)
        if any_of is not None and not any(self.fits(value, option, depth) for option in any_of):
            yield Fault(path, "anyOf")
        if one_of is not None and sum(self.fits(value, option, depth) for option in one_of) != 1:
            yield Fault(path, "oneOf")
        if "not" in schema and self.fits(value, schema["not"], depth):
            yield Fault(path, "not")
        if "if" in schema:
            branch = "then" if self.fits(value, schema["if"], depth) else "else"
            if not self.fits(value, schema.get(branch, True), depth):
                yield Fault(path, branch)


def _matches(pattern: str, text: str) -> bool:
    found = _texts_of(pattern)
    if found is None:
        raise Undecided
    return text in found


@lru_cache(maxsize=256)
def _texts_of(pattern: str) -> TextSet | None:
    """None for a pattern that cannot be followed."""
    parts = all_to_find(pattern)
    if any(map(pattern_fault, parts)):
        return None
    found = text_set(*map(whole_pattern, parts))
    return None if found.fault else found


def canonical(value: object) -> object:
    """Equal and hashable for values that JSON Schema calls equal: 1 and 1.0 are, true and 1 are not."""
    if isinstance(value, Mapping):
        return frozenset((key, canonical(member)) for key, member in value.items())
    if isinstance(value, list):
        return tuple(map(canonical, value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return type(value), value
    return float, value


def _own_faults(value: object, schema: Mapping[str, Any]) -> Iterator[str]:
    """Keywords for the value as a whole."""
    if "type" in schema and not _has_type(value, schema):
        yield "type"
    if "const" in schema and canonical(value) != canonical(schema["const"]):
        yield "const"
    words = _SIZES.get(type(value))
    if isinstance(value, str | list | dict) and words is not None and not schema.keys().isdisjoint(words):
        yield from (word for word, is_off in zip(words, _outside(len(value), schema, *words), strict=True) if is_off)
    pattern = _read(schema, "pattern", str)
    if isinstance(value, str) and pattern is not None and not _matches(pattern, value):
        yield "pattern"
    if isinstance(value, Mapping) and any(key not in value for key in _listed(schema, "required")):
        yield "required"
    if isinstance(value, int | float) and not isinstance(value, bool) and not _NUMERIC.isdisjoint(schema):
        yield from _number_faults(_exact(value), schema)


def _number_faults(value: Fraction, schema: Mapping[str, Any]) -> Iterator[str]:
    is_low, is_high = _outside(value, schema, "minimum", "maximum")
    if is_low:
        yield "minimum"
    if is_high:
        yield "maximum"
    for word, plain, sign in (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)):
        bound = _number(schema, plain if schema.get(word) is True else word)
        if bound is not None and (value - _exact(bound)) * sign <= 0:
            yield word
    step = _number(schema, "multipleOf")
    if step is not None and value % _exact(step):
        yield "multipleOf"


def _outside(size: Fraction | int, schema: Mapping[str, Any], least: str, most: str) -> tuple[bool, bool]:
    low, high = _number(schema, least), _number(schema, most)
    return low is not None and size < _exact(low), high is not None and size > _exact(high)


def _exact(value: Any) -> Fraction:
    """The decimal number that its shortest spelling says: 0.1 is a tenth."""
    if isinstance(value, int):
        return Fraction(value)
    if value != value or abs(value) == float("inf"):
        raise Undecided
    return Fraction(str(value))


def _has_type(value: object, schema: Mapping[str, Any]) -> bool:
    name = "integer" if isinstance(value, float) and value.is_integer() else _NAMES.get(type(value), "")
    named = schema["type"]
    if name == named or (named == "number" and name == "integer"):
        return True
    allowed = schema_types({key: schema[key] for key in ("type", "nullable") if key in schema})
    return name in allowed or (name == "integer" and "number" in allowed)


def _listed(schema: Mapping[str, Any], word: str) -> Sequence[object]:
    return _read(schema, word, list) or ()


def _mapping(schema: Mapping[str, Any], word: str) -> Mapping[str, object]:
    return _read(schema, word, dict) or {}


def _number(schema: Mapping[str, Any], word: str) -> Any:
    value = schema.get(word)
    if value is None or (value is False and word.startswith("exclusive")):
        return None
    if isinstance(value, bool):
        raise Undecided
    return _read(schema, word, int, float)


def _read(schema: Mapping[str, Any], word: str, *kinds: type) -> Any:
    """The keyword's value, None for none. Raises Undecided where it is of no such kind."""
    value = schema.get(word)
    if value is not None and not isinstance(value, kinds):
        raise Undecided
    return value
