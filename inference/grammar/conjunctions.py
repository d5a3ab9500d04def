"""Merges what several schemas demand of one string, number or listed value. Knows nothing of references."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from inference.grammar import keywords
from inference.grammar.errors import UnsupportedKeyword
from inference.grammar.nodes import NumberRange, Text
from inference.grammar.places import Part, Reader
from inference.grammar.text_patterns import FORMATS, pattern_fault
from stream_parser.safe_patterns import safe_search

_TYPES_OF_VALUES: dict[type, str] = {
    type(None): "null", bool: "boolean", str: "string", int: "integer", float: "number", list: "array", dict: "object",
}  # fmt: skip


def merge_texts(parts: Sequence[Part], reader: Reader) -> Text | None:
    lows = [n for p in parts if (n := keywords.count(p.schema, "minLength", p.path)) is not None]
    highs = [n for p in parts if (n := keywords.count(p.schema, "maxLength", p.path)) is not None]
    low = max([0, *lows])
    high = min(highs) if highs else max(reader.bounds.string_chars, low)
    patterns: list[str] = []
    formats: list[str] = []
    for part in parts:
        pattern, form = part.schema.get("pattern"), part.schema.get("format")
        if pattern is not None:
            patterns.append(checked_pattern(pattern, part.path))
        if isinstance(form, str) and form in FORMATS:
            formats.append(form)
        elif isinstance(form, str):
            reader.not_enforced[f"{part.path}.format"] = None
    if low > high:
        return None
    return Text(low, high, tuple(dict.fromkeys(patterns)), tuple(dict.fromkeys(formats)), bool(lows or highs))


def checked_pattern(pattern: object, path: str, keyword: str = "pattern") -> str:
    if not isinstance(pattern, str):
        raise UnsupportedKeyword(path, keyword, f"must be a regular expression, got {pattern!r:.60}.")
    fault = pattern_fault(pattern)
    if fault:
        raise UnsupportedKeyword(path, keyword, f"{pattern!r:.80} {fault}. Rewrite it without.")
    return pattern


def merge_numbers(parts: Sequence[Part], *, is_integer: bool) -> NumberRange | None:
    found = {
        key: [n for p in parts for n in _bounds(p, key)]
        for key in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
    }
    steps = [n for p in parts if (n := keywords.number(p.schema, "multipleOf", p.path)) is not None]
    for part in parts:
        step = keywords.number(part.schema, "multipleOf", part.path)
        if step is not None and step <= 0:
            raise UnsupportedKeyword(part.path, "multipleOf", "must be greater than 0.")
    merged = NumberRange(
        is_integer,
        max(found["minimum"], default=None),
        min(found["maximum"], default=None),
        max(found["exclusiveMinimum"], default=None),
        min(found["exclusiveMaximum"], default=None),
        tuple(dict.fromkeys(steps)),
    )
    return None if _is_empty(merged) else merged


def _bounds(part: Part, key: str) -> list[Decimal]:
    """Also draft 4's form, in which `exclusiveMinimum: true` makes `minimum` exclusive."""
    value = keywords.number(part.schema, key, part.path)
    plain = key.removeprefix("exclusive").lower() if key.startswith("exclusive") else key
    exclusive = f"exclusive{plain.capitalize()}"
    flag = part.schema.get(exclusive) is True
    if key == exclusive and flag:
        value = keywords.number(part.schema, plain, part.path)
    elif key == plain and flag:
        value = None
    return [] if value is None else [value]


def _is_empty(numbers: NumberRange) -> bool:
    low = max((n for n in (numbers.minimum, numbers.exclusive_minimum) if n is not None), default=None)
    high = min((n for n in (numbers.maximum, numbers.exclusive_maximum) if n is not None), default=None)
    if low is None or high is None:
        return False
    is_open = low == numbers.exclusive_minimum or high == numbers.exclusive_maximum
    return low > high or (low == high and is_open)


def value_fits(value: object, parts: Sequence[Part], types: frozenset[str]) -> bool:
    """Do the keywords for scalars, beside the listing itself, allow a listed value?"""
    name = _TYPES_OF_VALUES.get(type(value), "")
    if name == "number" and isinstance(value, float) and value.is_integer():
        name = "integer"
    return name in types and all(_scalar_fits(value, part) for part in parts)


def _scalar_fits(value: object, part: Part) -> bool:
    if isinstance(value, str):
        return _text_fits(value, part)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return True
    exact = Decimal(str(value))
    step = keywords.number(part.schema, "multipleOf", part.path)
    return (
        all(exact >= low for low in _bounds(part, "minimum"))
        and all(exact <= high for high in _bounds(part, "maximum"))
        and all(exact > low for low in _bounds(part, "exclusiveMinimum"))
        and all(exact < high for high in _bounds(part, "exclusiveMaximum"))
        and (not step or exact % step == 0)
    )


def _text_fits(value: str, part: Part) -> bool:
    low = keywords.count(part.schema, "minLength", part.path)
    high = keywords.count(part.schema, "maxLength", part.path)
    if (low is not None and len(value) < low) or (high is not None and len(value) > high):
        return False
    pattern = part.schema.get("pattern")
    return pattern is None or key_matches(checked_pattern(pattern, part.path), value)


def key_matches(pattern: str, text: str) -> bool:
    """Is `pattern` found in `text`? True as well for patterns that Python cannot search for in bounded time."""
    return safe_search(pattern.replace("(?<", "(?P<"), text)
