"""Expressions for numbers, which are spelled alike in every notation."""

from __future__ import annotations

import json
from decimal import Decimal

from inference.grammar.lark import LarkWriter
from inference.grammar.nodes import NumberRange
from inference.grammar.policy import Bounds


def number_expression(writer: LarkWriter, node: NumberRange, bounds: Bounds) -> str:
    if node.is_free:
        digits = f"-?(?:0|[1-9][0-9]{{0,{bounds.integer_digits - 1}}})"
        if not node.is_integer:
            digits += rf"(?:\.[0-9]{{1,{bounds.fraction_digits}}})?(?:[eE][+\-]?[0-9]{{1,{bounds.exponent_digits}}})?"
        return writer.terminal(f"/{digits}/")
    return writer.rule("%json " + json.dumps(_bounded(node, bounds)))


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
    steps = list(node.multiples_of)
    if not node.is_integer and not steps:
        steps = [Decimal(10) ** -bounds.fraction_digits]
    if len(steps) == 1:
        schema["multipleOf"] = _plain(steps[0])
    elif steps:
        schema["allOf"] = [{"multipleOf": _plain(step)} for step in steps]
    return schema


def _plain(value: Decimal) -> int | float:
    return int(value) if value == value.to_integral_value() else float(value)
