"""Expressions for numbers, which are spelled alike in every notation."""

from __future__ import annotations

import json
import math
from decimal import Context, Decimal
from fractions import Fraction

from inference.grammar.decimal_ranges import decimal_range, integer_range
from inference.grammar.lark import LarkWriter, either, quoted, regex
from inference.grammar.nodes import NumberRange
from inference.grammar.policy import Bounds

_MAX_SHORTER = 6
_MAX_LISTED = 16
_FARTHEST = 10**64
_EXACT = Context(prec=1000)


def number_expression(writer: LarkWriter, node: NumberRange, bounds: Bounds) -> str:
    if node.is_free:
        digits = f"-?(?:0|[1-9][0-9]{{0,{bounds.integer_digits - 1}}})"
        if not node.is_integer:
            digits += rf"(?:\.[0-9]{{1,{bounds.fraction_digits}}})?(?:[eE][+\-]?[0-9]{{1,{bounds.exponent_digits}}})?"
        return writer.terminal(f"/{digits}/")
    if node.step is None:
        return writer.terminal(regex(_range(node, bounds)))
    found = [_multiples(writer, node, step, bounds) for step in _steps(node.step)]
    return either([expression for expression in found if expression])


def _range(node: NumberRange, bounds: Bounds) -> str:
    if node.is_integer:
        return integer_range(*_ends(node, Decimal(1), bounds))
    digits = bounds.fraction_digits
    return decimal_range(*_ends(node, Decimal(10) ** -digits, bounds), digits)


def _ends(node: NumberRange, step: Decimal, bounds: Bounds) -> tuple[int, int]:
    """The lowest and the highest multiple of `step`, in steps: where the schema has no bound, of so many digits."""
    most = Fraction(10) ** bounds.integer_digits - 1 + Fraction(node.step or 0)
    lowest, highest = node.multiples(step)
    unit = Fraction(step)
    if lowest is None:
        lowest = math.ceil(-most / unit) + min(highest or 0, 0)
    if highest is None:
        highest = math.floor(most / unit) + max(lowest, 0)
    # A bound beyond is none to a model, and a regex of so many digits nests too deeply.
    far = math.floor(_FARTHEST / unit)
    return max(lowest, -far) if highest > -far else lowest, min(highest, far) if lowest < far else highest


def _steps(step: Decimal) -> list[Decimal]:
    """The schema's own step bounds the digits behind the point.

    The library takes multiples of 0.25 with two such digits or none (0.50, not 0.5), so steps with fewer are given too.
    """
    digits = max(-int(step.normalize().as_tuple().exponent), 0)
    scaled = int(step.scaleb(digits))
    shorter = [math.lcm(scaled, 10 ** (digits - kept)) for kept in range(1, min(digits, _MAX_SHORTER))]
    return [Decimal(number).scaleb(-digits) for number in (scaled, *shorter)]


def _multiples(writer: LarkWriter, node: NumberRange, step: Decimal, bounds: Bounds) -> str:
    """The multiples of `step` that are in the range, "" for none, by llguidance's own regexes.

    The library reckons in binary fractions, in which a tenth is none: it takes bounds right that are multiples, and
    sees no number between two that are near each other. So few numbers are listed.
    """
    lowest, highest = _ends(node, step, bounds)
    if highest - lowest < _MAX_LISTED:
        listed = [text for number in range(lowest, highest + 1) for text in _spellings(number, step)]
        return writer.terminal(" | ".join(map(quoted, listed))) if listed else ""
    schema: dict[str, object] = {"type": "integer" if node.is_integer else "number"}
    schema |= {"minimum": _plain(lowest * Fraction(step)), "maximum": _plain(highest * Fraction(step))}
    schema["multipleOf"] = _plain(Fraction(step))
    return writer.rule("%json " + json.dumps(schema))


def _spellings(number: int, step: Decimal) -> list[str]:
    """Their product, with the digits that it comes with, with those that it needs, and with a point."""
    exact = f"{_EXACT.multiply(Decimal(number), step):f}"
    if "." not in exact:
        return [exact]
    short = exact.rstrip("0").removesuffix(".")
    return list(dict.fromkeys([exact, short, short if "." in short else f"{short}.0"]))


def _plain(value: Fraction) -> int | float:
    return int(value) if value.denominator == 1 else float(value)
