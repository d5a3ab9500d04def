"""`not` of a schema, said in keywords that a grammar enforces: jsonschema is the judge."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from inference.grammar.errors import UnsupportedKeyword
from inference.grammar.negation import contrary_of

VALUES: list[Any] = ["", 1, 1.5, True, None, [], {}, {"a": 1}, {"b": 1}, {"a": 1, "b": 2}]


@pytest.mark.parametrize(
    "schema",
    [
        True, False, {}, {"title": "x"}, {"type": "string"}, {"type": ["array", "null"]}, {"type": "number"},
        {"type": ["integer", "number"]}, {"type": "boolean", "description": "x"}, {"required": ["a"]},
        {"required": ["a", "b"]}, {"required": []}, {"not": {"type": "object"}}, {"not": {"minimum": 3}},
    ],
)  # fmt: skip
def test_the_contrary_takes_what_the_schema_does_not(schema: Any) -> None:
    contrary = contrary_of(schema, "p")
    assert contrary is not None
    for value in VALUES:
        assert Draft202012Validator(contrary).is_valid(value) != Draft202012Validator(schema).is_valid(value), value


@pytest.mark.parametrize(
    "schema", [{"type": "integer"}, {"minimum": 3}, {"type": "string", "minLength": 2}, {"enum": [1]}, {"$ref": "#"}, 3,
               {"not": 3}, {"$dynamicRef": "#x"}]
)  # fmt: skip
def test_most_schemas_have_none(schema: Any) -> None:
    assert contrary_of(schema, "p") is None


def test_a_malformed_one_is_refused_by_its_place() -> None:
    with pytest.raises(UnsupportedKeyword) as caught:
        contrary_of({"type": "nope"}, "p.not")
    assert (caught.value.path, caught.value.keyword) == ("p.not", "type")
