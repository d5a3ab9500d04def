"""The check of finished values; that it agrees with the reference is shown in tests/conformance/test_json_schema.py."""

from __future__ import annotations

import time
from typing import Any

import pytest

from inference.grammar.validation import Fault, Undecided, Validator, canonical


@pytest.mark.parametrize(
    ("schema", "value", "fault"),
    [
        ({"properties": {"a": {"items": {"uniqueItems": True}}}}, {"a": [[1], [1, 1.0]]}, Fault("a[1]", "uniqueItems")),
        ({"not": {"type": "string"}}, "x", Fault("", "not")),
        ({"if": {"minimum": 3}, "then": {"multipleOf": 2}}, 5, Fault("", "then")),
        ({"if": {"minimum": 3}, "else": {"multipleOf": 2}}, 1, Fault("", "else")),
        ({"contains": {"const": 1}, "minContains": 2}, [1, 2], Fault("", "minContains")),
        ({"contains": {"const": 1}, "maxContains": 1}, [1, 1], Fault("", "maxContains")),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, Fault("", "dependentRequired")),
        ({"dependencies": {"a": {"required": ["b"]}}}, {"a": 1}, Fault("", "dependencies")),
        ({"propertyNames": {"maxLength": 1}}, {"ab": 1}, Fault("ab", "propertyNames")),
        ({"properties": {"a": {"unevaluatedProperties": False}}}, {"a": {"b": 1}},
         Fault("a.b", "unevaluatedProperties")),
        ({"items": False}, [1], Fault("[0]", "false")),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"multipleOf": 0.1}}}, 0.35, Fault("", "multipleOf")),
        ({"minimum": 3, "exclusiveMinimum": True}, 3, Fault("", "exclusiveMinimum")),
        ({"multipleOf": 0.1}, 0.3, None),
        ({"type": "string", "nullable": True}, None, None),
        ({"enum": [1]}, 1.0, None),
    ],
)  # fmt: skip
def test_the_first_fault_is_named_by_its_place_and_its_keyword(schema: Any, value: Any, fault: Fault | None) -> None:
    assert Validator(schema).first_fault(value) == fault


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"not": {"properties": 3}}, {"a": 1}),
        ({"not": {"dependentRequired": ["a"]}}, {"a": 1}),
        ({"not": {"required": "a"}}, {}),
        ({"not": {"enum": 3}}, 1),
        ({"not": {"minimum": "3"}}, 1),
        ({"not": {"multipleOf": 0}}, 1),
        ({"not": {"anyOf": {}}}, 1),
        ({"not": {"pattern": "("}}, "x"),
        ({"if": {"pattern": "(?=x)"}, "then": False}, "x"),
        ({"unevaluatedProperties": False, "if": {"patternProperties": 7}}, {"a": 1}),
        ({"$ref": "#"}, 1),
        ({"minimum": float("nan")}, 1),
    ],
)
def test_what_is_malformed_or_without_an_end_is_left_undecided(schema: Any, value: Any) -> None:
    with pytest.raises(Undecided):
        Validator(schema).first_fault(value)
    assert Validator(schema).may_fit(value, schema)


def test_a_reference_that_leads_nowhere_allows_everything() -> None:
    assert Validator({"not": {"$ref": "#/nowhere"}}).first_fault(1) == Fault("", "not")
    assert Validator({"$ref": "#/nowhere"}).first_fault(1) is None


def test_a_schema_that_multiplies_itself_is_given_up_soon() -> None:
    below = {"properties": {"a": {"$ref": "#"}}, "required": ["b"]}
    schema = {"type": "object", "anyOf": [below] * 4, "not": {"anyOf": [{"not": below}] * 4}}
    value: dict[str, Any] = {}
    for _ in range(40):
        value = {"a": value, "b": 1}
    begun_s = time.process_time()
    with pytest.raises(Undecided):
        Validator(schema).first_fault(value)
    assert time.process_time() - begun_s < 1


def test_values_are_equal_as_json_schema_has_it() -> None:
    assert canonical({"a": [1, {"b": None}], "c": "x"}) == canonical({"c": "x", "a": [1.0, {"b": None}]})
    different = [1, True, "1", None, False, 0, [], {}, [1], [[1]], {"a": 1}, {"a": True}, "", ["a", 1], [["a", 1]]]
    assert len({canonical(value) for value in different}) == len(different)
