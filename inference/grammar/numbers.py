"""Expressions for numbers, which are spelled alike in every notation."""

from __future__ import annotations

import json
import math
from decimal import Decimal

from inference.grammar.lark import LarkWriter, either
from inference.grammar.nodes import NumberRange
from inference.grammar.policy import Bounds

_MAX_SHORTER = 6


def number_expression(writer: LarkWriter, node: NumberRange, bounds: Bounds) -> str:
    if node.is_free:
        digits = f"-?(?:0|[1-9][0-9]{{0,{bounds.integer_digits - 1}}})"
        if not node.is_integer:
            digits += rf"(?:\.[0-9]{{1,{bounds.fraction_digits}}})?(?:[eE][+\-]?[0-9]{{1,{bounds.exponent_digits}}})?"
        return writer.terminal(f"/{digits}/")
    schema = _bounded(node, bounds)
    return either([writer.rule("%json " + json.dumps(schema | step)) for step in _steps(node, bounds)])


def _bounded(node: NumberRange, bounds: Bounds) -> dict[str, object]:
    """The schema for llguidance's own range regexes. A step bounds the fraction's digits, limits the whole part's."""
    most = Decimal(10) ** bounds.integer_digits - 1
    schema: dict[str, object] = {"type": "integer" if node.is_integer else "number"}
    found = {
        "minimum": node.minimum,
        "maximum": node.maximum,
        "exclusiveMinimum": node.exclusive_minimum,
        "exclusiveMaximum": node.exclusive_maximum,
    }
    if node.minimum is None and node.exclusive_minimum is None:
        ceiling = min((n for n in (node.maximum, node.exclusive_maximum) if n is not None), default=most)
        found["minimum"] = min(-most, ceiling - most)
    if node.maximum is None and node.exclusive_maximum is None:
        floor = max((n for n in (node.minimum, node.exclusive_minimum) if n is not None), default=-most)
        found["maximum"] = max(most, floor + most)
    schema |= {key: _plain(value) for key, value in found.items() if value is not None}
    return schema


def _steps(node: NumberRange, bounds: Bounds) -> list[dict[str, object]]:
    """What bounds the digits behind the point: the schema's own steps, or a step of our own.

    The library takes multiples of 0.25 with two such digits or none (0.50, not 0.5), so steps with fewer are given too.
    """
    steps = list(node.multiples_of)
    if not steps:
        return [{}] if node.is_integer else [{"multipleOf": _plain(Decimal(10) ** -bounds.fraction_digits)}]
    if len(steps) > 1:
        return [{"allOf": [{"multipleOf": _plain(step)} for step in steps]}]
    digits = -int(steps[0].normalize().as_tuple().exponent)
    scaled = int(steps[0].scaleb(max(digits, 0)))
    shorter = [math.lcm(scaled, 10 ** (digits - kept)) for kept in range(1, min(digits, _MAX_SHORTER))]
    return [{"multipleOf": _plain(Decimal(step).scaleb(-max(digits, 0)))} for step in (scaled, *shorter)]


def _plain(value: Decimal) -> int | float:
    return int(value) if value == value.to_integral_value() else float(value)
