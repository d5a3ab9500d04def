"""Does a finished value fit a schema? Every keyword that the schema reader knows, also those that no grammar enforces.

Values are decoded JSON. Draft 2020-12, with the older spellings that `keywords` lists; formats are annotations, as in
the standard. Bounded in work and depth, and a keyword that is malformed allows everything: the reader refuses those.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from inference.grammar.errors import GrammarError
from inference.grammar.evaluated import evaluated_items, evaluated_keys
from inference.grammar.keywords import dependents, item_schemas
from inference.grammar.references import References
from inference.grammar.text_patterns import pattern_fault, whole_pattern
from inference.grammar.text_sets import text_set
from stream_parser.schema_types import ALL_TYPES, schema_types

_MAX_VISITS = 10_000
_MAX_DEPTH = 100
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


class Validator:
    """Checks values against the schemas of one document, with `max_visits` of them in all."""

    def __init__(self, root: object, max_visits: int = _MAX_VISITS) -> None:
        self._root = root
        self._references = References(root)
        self._visits_left = max_visits

    def first_fault(self, value: object) -> Fault | None:
        """Raises Undecided."""
        return next(self.faults(value, self._root, "", 0), None)

    def may_fit(self, value: object, schema: object) -> bool:
        """True as well where that is not decided."""
        try:
            return self.fits(value, schema)
        except Undecided:
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
        yield from (Fault(path, keyword) for keyword in _own_faults(value, schema))
        if isinstance(value, Mapping):
            yield from self._object_faults(value, schema, path, depth + 1)
        elif isinstance(value, list):
            yield from self._array_faults(value, schema, path, depth + 1)
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

    def _object_faults(
        self, value: Mapping[str, object], schema: Mapping[str, Any], path: str, depth: int
    ) -> Iterator[Fault]:
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
            if num_found < _bound(schema, "minContains", 1):
                yield Fault(path, "minContains" if "minContains" in schema else "contains")
            if num_found > _bound(schema, "maxContains", len(value)):
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
        any_of, one_of = schema.get("anyOf"), schema.get("oneOf")
        if isinstance(any_of, list) and not any(self.fits(value, option, depth) for option in any_of):
            yield Fault(path, "anyOf")
        if isinstance(one_of, list) and sum(self.fits(value, option, depth) for option in one_of) != 1:
            yield Fault(path, "oneOf")
        if "not" in schema and self.fits(value, schema["not"], depth):
            yield Fault(path, "not")
        if "if" in schema:
            branch = "then" if self.fits(value, schema["if"], depth) else "else"
            if not self.fits(value, schema.get(branch, True), depth):
                yield Fault(path, branch)


def _matches(pattern: str, text: str) -> bool:
    if pattern_fault(pattern) or text_set(whole_pattern(pattern)).fault:
        raise Undecided
    return text in text_set(whole_pattern(pattern))


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
    allowed = schema_types({key: schema[key] for key in ("type", "nullable") if key in schema})
    if not _type_names(value) & (allowed if "type" in schema else ALL_TYPES):
        yield "type"
    is_null = value is None and schema.get("nullable") is True
    is_listed = not isinstance(schema.get("enum"), list) or canonical(value) in set(map(canonical, schema["enum"]))
    if not is_listed and not is_null:
        yield "enum"
    if "const" in schema and canonical(value) != canonical(schema["const"]):
        yield "const"
    words = _SIZES.get(type(value))
    if words is not None and isinstance(value, str | list | dict):
        yield from (word for word, is_off in zip(words, _outside(len(value), schema, *words), strict=True) if is_off)
    if isinstance(value, str) and isinstance(schema.get("pattern"), str) and not _matches(schema["pattern"], value):
        yield "pattern"
    if isinstance(value, Mapping) and any(key not in value for key in _listed(schema, "required")):
        yield "required"
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number_faults(_exact(value), schema)


def _number_faults(value: Fraction, schema: Mapping[str, Any]) -> Iterator[str]:
    is_low, is_high = _outside(value, schema, "minimum", "maximum")
    if is_low:
        yield "minimum"
    if is_high:
        yield "maximum"
    for word, plain, sign in (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)):
        bound = schema.get(plain) if schema.get(word) is True else schema.get(word)
        if _is_number(bound) and (value - _exact(bound)) * sign <= 0:
            yield word
    step: Any = schema.get("multipleOf")
    if _is_number(step) and step > 0 and value % _exact(step):
        yield "multipleOf"


def _outside(size: Fraction | int, schema: Mapping[str, Any], least: str, most: str) -> tuple[bool, bool]:
    low, high = schema.get(least), schema.get(most)
    return _is_number(low) and size < _exact(low), _is_number(high) and size > _exact(high)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _exact(value: Any) -> Fraction:
    """The decimal number that its shortest spelling says: 0.1 is a tenth."""
    if isinstance(value, int):
        return Fraction(value)
    if value != value or abs(value) == float("inf"):
        raise Undecided
    return Fraction(str(value))


def _type_names(value: object) -> frozenset[str]:
    if isinstance(value, bool):
        return frozenset({"boolean"})
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return frozenset({"integer", "number"})
    return frozenset({_NAMES.get(type(value), "")})


_NAMES: Mapping[type, str] = {type(None): "null", str: "string", float: "number", list: "array", dict: "object"}


def _bound(schema: Mapping[str, Any], word: str, default: int) -> float:
    value: Any = schema.get(word)
    return float(value) if _is_number(value) else default


def _listed(schema: Mapping[str, Any], word: str) -> Sequence[object]:
    value = schema.get(word)
    return value if isinstance(value, list) else ()


def _mapping(schema: Mapping[str, Any], word: str) -> Mapping[str, object]:
    value = schema.get(word)
    return value if isinstance(value, Mapping) else {}
