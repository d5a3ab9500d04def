"""Merges what several schemas demand of one string or number, and finds where nothing is left. Knows no references."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction

from inference.grammar import keywords
from inference.grammar.errors import UnsupportedKeyword
from inference.grammar.keywords import Found
from inference.grammar.nodes import Impossible, NumberRange, Text
from inference.grammar.places import Part, Reader
from inference.grammar.text_patterns import FORMATS, all_to_find, pattern_fault, whole_pattern
from inference.grammar.text_sets import text_set

# The lexer counts remainders: a state each, and so long to build. Powers of ten are read off the last digits.
_MAX_STEP_STATES = 100_000
_MAX_STEP = 10**9
_ROOM = 4_096
_MAX_STEP_DIGITS = 15
# The library reckons in doubles.
_MAX_STEPPED = Decimal(2**53)


def merge_texts(parts: Sequence[Part], reader: Reader) -> Text | Impossible:
    low = keywords.greatest(parts, "minLength", keywords.count)
    high = keywords.least(parts, "maxLength", keywords.count)
    patterns: dict[str, str] = {}
    formats: dict[str, str] = {}
    for part in parts:
        pattern, form = part.schema.get("pattern"), part.schema.get("format")
        if pattern is not None:
            for one in all_to_find(pattern) if isinstance(pattern, str) else [pattern]:
                patterns.setdefault(checked_pattern(one, part.path), part.path)
        if isinstance(form, str) and form in FORMATS:
            formats.setdefault(form, part.path)
        elif isinstance(form, str):
            reader.not_enforced[f"{part.path}.format"] = None
    fault = keywords.crossed(low, high) or _text_fault(patterns, formats, low, high)
    if fault:
        return fault
    min_chars = low.value if low else 0
    max_chars = high.value if high else max(reader.bounds.string_chars, min_chars)
    if not high and max_chars < _ROOM and text_set(*_expressions(patterns, formats), f".{{0,{max_chars}}}").is_empty:
        max_chars = _ROOM  # a bound of our own makes nothing impossible
    return Text(min_chars, max_chars, tuple(patterns), tuple(formats), bool(low or high))


def checked_pattern(pattern: object, path: str, keyword: str = "pattern") -> str:
    if not isinstance(pattern, str):
        raise UnsupportedKeyword(path, keyword, f"must be a regular expression, got {pattern!r:.60}.")
    fault = pattern_fault(pattern) or _lexer_fault(pattern)
    if fault:
        raise UnsupportedKeyword(path, keyword, f"{pattern!r:.80} {fault}. Rewrite it without.")
    return pattern


def _lexer_fault(pattern: str) -> str:
    fault = text_set(whole_pattern(pattern)).fault
    return f"is nothing that the grammar's lexer can follow ({fault:.120})" if fault else ""


def key_matches(pattern: str, text: str) -> bool:
    """Is `pattern`, which was checked, found in `text`?"""
    return text in text_set(whole_pattern(pattern))


def _expressions(patterns: Iterable[str], formats: Iterable[str]) -> list[str]:
    return [*map(whole_pattern, patterns), *(FORMATS[form] for form in formats)]


def _text_fault(
    patterns: dict[str, str], formats: dict[str, str], low: Found[int] | None, high: Found[int] | None
) -> Impossible | None:
    """That no string has all of it: a keyword and what it contradicts."""
    if not patterns and not formats:
        return None
    expressions = _expressions(patterns, formats)
    if low or high:
        expressions.append(f".{{{low.value if low else 0},{high.value if high else ''}}}")
    if not text_set(*expressions).is_empty:
        return None
    named: list[tuple[str, object, str]] = [("format", form, path) for form, path in formats.items()]
    named += [("pattern", pattern, path) for pattern, path in patterns.items()]
    named += [(bound.keyword, bound.value, bound.path) for bound in (low, high) if bound]
    (keyword, value, path), *others = named
    beside = ", ".join(f"{word} {other!r:.60}" + (f" at {at}" if at != path else "") for word, other, at in others)
    why = f"{value!r:.80} fits no string that also has {beside}" if others else f"{value!r:.80} fits no string"
    return Impossible(path, keyword, why)


def merge_numbers(parts: Sequence[Part], reader: Reader, *, is_integer: bool) -> NumberRange | Impossible:
    found = {
        key: keywords.chosen(parts, key, _bound, max if key.endswith("inimum") else min)
        for key in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
    }
    steps = [
        Found(n, "multipleOf", p.path)
        for p in parts
        if (n := keywords.number(p.schema, "multipleOf", p.path)) is not None
    ]
    step = _common_step(steps, is_integer=is_integer) if steps else None
    if step is not None and step != 1:
        _check_reach(steps, found)
    values = {key: bound.value if bound else None for key, bound in found.items()}
    merged = NumberRange(
        is_integer, values["minimum"], values["maximum"], values["exclusiveMinimum"], values["exclusiveMaximum"], step
    )
    fault = _range_fault(found, merged, steps, reader.bounds.fraction_digits)
    return fault or merged


def _bound(schema: keywords.Schema, key: str, path: str) -> Decimal | None:
    """Also draft 4's form, in which `exclusiveMinimum: true` makes `minimum` exclusive."""
    plain = key.removeprefix("exclusive").lower() if key.startswith("exclusive") else key
    exclusive = f"exclusive{plain.capitalize()}"
    if schema.get(exclusive) is True:
        return keywords.number(schema, plain, path) if key == exclusive else None
    return keywords.number(schema, key, path)


def _common_step(steps: Sequence[Found[Decimal]], *, is_integer: bool) -> Decimal:
    """The number whose multiples are multiples of all steps, and whole where integers are wanted."""
    common = Fraction(1) if is_integer else None
    for step in steps:
        if step.value <= 0:
            raise UnsupportedKeyword(step.path, "multipleOf", f"must be greater than 0, got {step.value:f}.")
        common = Fraction(step.value) if common is None else _common_multiple(common, Fraction(step.value))
        digits = _num_digits(common)
        if digits > _MAX_STEP_DIGITS or _num_states(int(common * 10**digits)) > _MAX_STEP_STATES:
            message = f"of {step.value} makes a grammar of too many states. Choose a rounder step."
            raise UnsupportedKeyword(step.path, "multipleOf", message)
    assert common is not None
    return Decimal(common.numerator) / Decimal(common.denominator)


def _check_reach(steps: Sequence[Found[Decimal]], found: dict[str, Found[Decimal] | None]) -> None:
    for bound in found.values():
        if bound and abs(bound.value) > _MAX_STEPPED:
            message = f'of {steps[0].value} cannot reach "{bound.keyword}" of {bound.value}. Take a bound nearer to 0.'
            raise UnsupportedKeyword(steps[0].path, "multipleOf", message)


def _common_multiple(left: Fraction, right: Fraction) -> Fraction:
    shared = math.lcm(left.numerator * right.denominator, right.numerator * left.denominator)
    return Fraction(shared, left.denominator * right.denominator)


def _num_digits(step: Fraction) -> int:
    """Digits behind its point."""
    exponent = (Decimal(step.numerator) / Decimal(step.denominator)).normalize().as_tuple().exponent
    return max(-int(exponent), 0)


def _num_states(step: int) -> int:
    if step > _MAX_STEP:
        return step
    while step and step % 10 == 0:
        step //= 10
    return step


def _range_fault(
    found: dict[str, Found[Decimal] | None], numbers: NumberRange, steps: Sequence[Found[Decimal]], fraction_digits: int
) -> Impossible | None:
    """That no number is in the range, or none of those that can be written there."""
    lows = [bound for key in ("exclusiveMinimum", "minimum") if (bound := found[key])]
    highs = [bound for key in ("exclusiveMaximum", "maximum") if (bound := found[key])]
    if not lows or not highs:
        return None
    low, high = max(lows, key=lambda b: b.value), min(highs, key=lambda b: b.value)  # of equals the exclusive one
    is_open = low.keyword != "minimum" or high.keyword != "maximum"
    if low.value > high.value or (low.value == high.value and is_open):
        return keywords.contradiction(low, high, "is not below" if is_open else "is more than")
    step = numbers.step or (Decimal(1) if numbers.is_integer else Decimal(10) ** -fraction_digits)
    lowest, highest = numbers.multiples(step)
    assert lowest is not None
    assert highest is not None
    if lowest <= highest:
        return None
    kind = "integer" if numbers.is_integer else f"number of at most {fraction_digits} digits behind the point"
    sought = f"multiple of {step:f}" if steps else kind
    return keywords.contradiction(low, high, f"leaves no {sought} up to")
