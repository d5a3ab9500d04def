"""JSON Schema in grammars, keyword by keyword: what a validator accepts is taken, what it refuses is not.

The cases are ours, after the sections of draft 2020-12; jsonschema's validator is the judge of each instance.
"""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from inference.grammar.errors import GrammarError, GrammarTooComplex, UnsupportedKeyword
from inference.grammar.policy import Bounds
from tests.testkit.grammar_kit import schema_source, takes, takes_value

EVERY_TYPE: list[Any] = ["a", "", 1, -3, 1.5, True, False, None, [], [1], {}, {"a": 1}]
ENFORCED: list[tuple[str, Any, list[Any]]] = [
    ("boolean schema true", True, EVERY_TYPE),
    ("empty schema", {}, EVERY_TYPE),
    ("type string", {"type": "string"}, EVERY_TYPE),
    ("type integer", {"type": "integer"}, [0, 12, -7, 1.5, "1", True]),
    ("type number", {"type": "number"}, EVERY_TYPE),
    ("type boolean", {"type": "boolean"}, EVERY_TYPE),
    ("type null", {"type": "null"}, EVERY_TYPE),
    ("type array", {"type": "array"}, EVERY_TYPE),
    ("type object", {"type": "object"}, EVERY_TYPE),
    ("several types", {"type": ["string", "null"]}, EVERY_TYPE),
    ("enum", {"enum": ["a", 1, None, [1], {"a": 1}, "é\"x"]}, [*EVERY_TYPE, "é\"x", "b", [2]]),
    ("enum beside type", {"type": "string", "enum": ["a", 1]}, ["a", 1]),
    ("const", {"const": {"a": [1, "x"]}}, [{"a": [1, "x"]}, {"a": [1]}, {}]),
    ("const beside enum", {"const": 2, "enum": [1, 2, 3]}, [1, 2, 3]),
    ("enum beside minimum", {"enum": [1, 5, 9], "minimum": 3, "maximum": 6}, [1, 5, 9]),
    ("minLength", {"type": "string", "minLength": 2}, ["", "a", "ab", "abc", "東京"]),
    ("maxLength", {"type": "string", "maxLength": 2}, ["", "ab", "abc", "東京", "東京都", "🙂🙂", '"\\']),
    ("pattern", {"type": "string", "pattern": "^a+b?$"}, ["a", "aab", "b", ""]),
    ("pattern is searched for", {"type": "string", "pattern": "o{2}"}, ["foo", "boot", "fo", ""]),
    ("pattern of alternatives", {"type": "string", "pattern": "^ab|cd$"}, ["abx", "xcd", "xabx", "cdx"]),
    ("pattern with escapes", {"type": "string", "pattern": r"^\d{2}\.\w+$"}, ["12.ab", "12xab", "1.a"]),
    ("pattern over quotes", {"type": "string", "pattern": '^"x\\\\$'}, ['"x\\', "x"]),
    ("pattern and lengths", {"type": "string", "pattern": "^a*$", "minLength": 2, "maxLength": 3},
     ["a", "aa", "aaa", "aaaa"]),
    ("pattern and a great length", {"type": "string", "pattern": "b", "minLength": 60},
     ["a" * 60, "a" * 60 + "b", "b"]),
    ("two patterns", {"allOf": [{"pattern": "a"}, {"pattern": "b"}], "type": "string"}, ["ab", "ba", "a", "b"]),
    ("minimum", {"type": "integer", "minimum": 3}, [2, 3, 4, 100, -5]),
    ("maximum", {"type": "integer", "maximum": -2}, [-3, -2, -1, 0, -400]),
    ("exclusive bounds", {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
     [0, 0.5, 1, 0.001, -1, 0.999]),
    ("fractional bounds", {"type": "number", "minimum": 1.5, "maximum": 2.25}, [1.4, 1.5, 2, 2.25, 2.26]),
    ("multipleOf", {"type": "integer", "multipleOf": 7}, [0, 7, -14, 8, 700]),
    ("multipleOf a fraction", {"type": "number", "multipleOf": 0.25}, [0, 0.5, -1.75, 0.25, 3.0, 0.3, 0.1]),
    ("bounds beside other types", {"minimum": 3}, [2, 3, "a", None, [1]]),
    ("items", {"type": "array", "items": {"type": "integer"}}, [[], [1], [1, 2], ["a"], [1, None]]),
    ("minItems", {"type": "array", "minItems": 2}, [[], [1], [1, 2], [1, 2, 3]]),
    ("maxItems", {"type": "array", "maxItems": 1}, [[], [1], [1, 2]]),
    ("prefixItems", {"prefixItems": [{"type": "integer"}, {"type": "string"}], "type": "array"},
     [[], [1], [1, "a"], ["a"], [1, 2], [1, "a", None]]),
    ("prefixItems and no more", {"prefixItems": [{"type": "integer"}], "items": False, "type": "array"}, [[], [1],
     [1, 2]]),
    ("prefixItems and items", {"prefixItems": [{"type": "null"}], "items": {"type": "integer"}, "minItems": 2},
     [[None], [None, 1], [None, 1, 2], [None, "a"], [1, 1]]),
    ("properties", {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}},
     [{}, {"a": 1}, {"b": "x"}, {"a": 1, "b": "x"}, {"a": "1"}, {"c": 1}, {"a": 1, "c": [2]}]),
    ("property false", {"type": "object", "properties": {"a": False, "b": True}}, [{"b": 1}, {"a": 1}, {}]),
    ("required", {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["b"]},
     [{}, {"a": 1}, {"b": 1}, {"a": 1, "b": 2}]),
    ("required and undeclared", {"type": "object", "required": ["x"]}, [{}, {"x": 1}, {"x": "a", "y": 2}]),
    ("additionalProperties false", {"type": "object", "properties": {"a": {}}, "additionalProperties": False},
     [{}, {"a": 1}, {"b": 1}, {"a": 1, "b": 1}]),
    ("additionalProperties schema", {"type": "object", "properties": {"a": {}},
     "additionalProperties": {"type": "boolean"}},
     [{"a": 1, "b": True}, {"b": 1}, {"b": False, "c": True}]),
    ("patternProperties", {"type": "object", "patternProperties": {"^n_": {"type": "integer"},
     "_s$": {"type": "string"}}},
     [{"n_a": 1}, {"n_a": "x"}, {"a_s": "x"}, {"a_s": 1}, {"n_s": 1}, {"n_s": "x"}, {"z": None}]),
    ("patternProperties alone", {"type": "object", "patternProperties": {"^x": {}}, "additionalProperties": False},
     [{}, {"x1": 2}, {"y": 1}]),
    ("patternProperties over properties",
     {"type": "object", "properties": {"ab": {"minimum": 2}}, "patternProperties": {"a": {"type": "integer"}}},
     [{"ab": 2}, {"ab": 1}, {"ab": "x"}]),
    ("propertyNames", {"type": "object", "propertyNames": {"pattern": "^[a-c]+$", "maxLength": 2}},
     [{}, {"ab": 1}, {"abc": 1}, {"x": 1}]),
    ("propertyNames listed", {"type": "object", "propertyNames": {"enum": ["a", "b"]}}, [{"a": 1}, {"b": 2}, {"c": 3}]),
    ("minProperties", {"type": "object", "minProperties": 2, "properties": {"a": {}, "b": {}}},
     [{}, {"a": 1}, {"a": 1, "b": 1}, {"a": 1, "c": 1}, {"x": 1, "y": 1}]),
    ("maxProperties", {"type": "object", "maxProperties": 1, "properties": {"a": {}, "b": {}}},
     [{}, {"a": 1}, {"b": 1}, {"a": 1, "b": 1}, {"x": 1}, {"a": 1, "x": 1}]),
    ("unevaluatedProperties", {"type": "object", "properties": {"a": {}}, "unevaluatedProperties": False},
     [{"a": 1}, {"b": 1}]),
    ("dependentRequired", {"type": "object", "properties": {"a": {}, "b": {}}, "dependentRequired": {"a": ["b"]}},
     [{}, {"a": 1}, {"b": 1}, {"a": 1, "b": 2}, {"c": 1}]),
    ("dependentSchemas", {"type": "object", "properties": {"a": {}, "b": {}},
                          "dependentSchemas": {"a": {"properties": {"b": {"type": "null"}}}}},
     [{}, {"a": 1}, {"b": 1}, {"a": 1, "b": 2}, {"a": 1, "b": None}]),
    ("dependencies", {"type": "object", "properties": {"a": {}, "b": {}, "c": {}},
                      "dependentRequired": {"a": ["b"], "b": ["c"]}},
     [{"a": 1, "b": 1}, {"a": 1, "b": 1, "c": 1}, {"c": 1}, {"b": 1}, {"b": 1, "c": 1}]),
    ("allOf", {"allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]},
     {"properties": {"b": {"type": "null"}}}],
               "type": "object"}, [{"a": 1}, {"a": 1, "b": None}, {"b": None}, {"a": 1, "b": 2}, {"a": "x"}]),
    ("allOf of bounds", {"type": "integer", "allOf": [{"minimum": 2}, {"maximum": 4}, {"minimum": 3}]},
     [1, 2, 3, 4, 5]),
    ("anyOf", {"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 1}]}, [1, "a", "ab", 1.5]),
    ("anyOf beside properties", {"type": "object", "properties": {"a": {"type": "integer"}},
                                 "anyOf": [{"required": ["a"]}, {"properties": {"b": {"const": 1}},
                                  "required": ["b"]}]},
     [{"a": 1}, {"b": 1}, {"b": 2}, {"a": 1, "b": 1}, {}]),
    ("oneOf", {"oneOf": [{"type": "integer"}, {"type": "string"}]}, [1, "a", None]),
    ("oneOf by a constant", {"oneOf": [
        {"type": "object", "properties": {"t": {"const": "a"}, "x": {"type": "integer"}}, "required": ["t", "x"]},
        {"type": "object", "properties": {"t": {"const": "b"}}, "required": ["t"]}]},
     [{"t": "a", "x": 1}, {"t": "b"}, {"t": "a"}, {"t": "c"}]),
    ("$ref and $defs", {"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}}, [1, "a"]),
    ("$ref beside keywords", {"$ref": "#/$defs/n", "minimum": 3, "$defs": {"n": {"type": "integer"}}}, [1, 3, "a"]),
    ("$ref with escapes", {"$ref": "#/$defs/a~1b%25", "$defs": {"a/b%": {"type": "null"}}}, [None, 1]),
    ("$ref by anchor", {"$ref": "#here", "$defs": {"x": {"$anchor": "here", "type": "null"}}}, [None, 1]),
    ("recursive $ref", {"$ref": "#/$defs/t", "$defs": {"t": {
        "type": "object", "properties": {"v": {"type": "integer"}, "k": {"type": "array",
         "items": {"$ref": "#/$defs/t"}}},
        "required": ["v"], "additionalProperties": False}}},
     [{"v": 1}, {"v": 1, "k": [{"v": 2}, {"v": 3, "k": []}]}, {"v": 1, "k": [{}]}, {"k": []}, {"v": 1,
      "k": [{"v": "x"}]}]),
    ("recursive root", {"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": False},
     [{}, {"next": {}}, {"next": {"next": {}}}, {"next": 1}, {"other": {}}]),
    ("not true", {"properties": {"a": {"not": {}}}, "type": "object"}, [{}, {"a": 1}, {"b": 1}]),
    ("properties beyond ASCII", {"type": "object", "properties": {"größe \"\\": {"type": "integer"}},
     "required": ["größe \"\\"]},
     [{"größe \"\\": 1}, {}]),
    ("false in a list", {"type": "array", "items": False}, [[], [1]]),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "values"), [case[1:] for case in ENFORCED], ids=[case[0] for case in ENFORCED])
def test_a_grammar_takes_what_the_schema_allows_and_nothing_else(schema: Any, values: list[Any]) -> None:
    validator = Draft202012Validator(schema)
    verdicts = {validator.is_valid(value) for value in values}
    assert verdicts == {True, False} or schema in (True, {}), "the case would show nothing"
    for value in values:
        assert takes_value(schema, value) == validator.is_valid(value), value


FORMATS = {
    "date": (["2024-02-29", "1999-12-31"], ["2023-02-29", "2024-13-01", "24-01-01"]),
    "time": (["10:00:00Z", "23:59:59.5+02:00"], ["10:00", "24:00:00Z"]),
    "date-time": (["2024-02-29T10:00:00Z"], ["2024-02-29", "2024-02-29 10:00:00Z"]),
    "duration": (["P1DT2H", "PT5M", "P3W"], ["P", "1D", "PT"]),
    "email": (["a.b@example.org"], ["a@", "@b", "a b@c"]),
    "hostname": (["example.org", "a-b.c"], ["-a", "a..b", "a b"]),
    "ipv4": (["127.0.0.1", "255.255.255.255"], ["256.1.1.1", "1.2.3"]),
    "ipv6": (["::1", "fe80::1:2", "1:2:3:4:5:6:7:8"], ["1:2", "::1::2", "12345::"]),
    "uuid": (["123e4567-e89b-12d3-a456-426614174000"], ["123e4567e89b12d3a456426614174000"]),
    "uri": (["https://example.org/a?b=c#d"], ["example.org", "https://"]),
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_enforced(name: str) -> None:
    right, wrong = FORMATS[name]
    for text in right:
        assert takes_value({"type": "string", "format": name}, text), text
    for text in wrong:
        assert not takes_value({"type": "string", "format": name}, text), text


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"type": "array", "uniqueItems": True}, "response_format.schema.uniqueItems"),
        ({"not": {"type": "string"}}, "response_format.schema.not"),
        ({"if": {"type": "string"}, "then": {"minLength": 3}}, "response_format.schema.if"),
        ({"type": "array", "contains": {"type": "null"}}, "response_format.schema.contains"),
        ({"type": "string", "format": "iri"}, "response_format.schema.format"),
        ({"oneOf": [{"minimum": 2}, {"maximum": 3}]}, "response_format.schema.oneOf"),
        (
            {"type": "object", "properties": {"a": {"uniqueItems": True}}},
            "response_format.schema.properties.a.uniqueItems",
        ),
    ],
)
def test_a_keyword_that_is_let_pass_is_named(schema: dict[str, Any], path: str) -> None:
    assert path in schema_source(schema).not_enforced


@pytest.mark.parametrize(
    ("schema", "path", "keyword"),
    [
        ({"properties": {"a": {"$ref": "http://x.org/y"}}}, "response_format.schema.properties.a", "$ref"),
        ({"$ref": "#/$defs/none"}, "response_format.schema", "$ref"),
        ({"$ref": "#"}, "response_format.schema(#)", "$ref"),
        ({"$dynamicRef": "#x"}, "response_format.schema", "$dynamicRef"),
        ({"type": "text!"}, "response_format.schema", "type"),
        ({"anyOf": {"type": "string"}}, "response_format.schema", "anyOf"),
        ({"items": {"pattern": "a(?=b)", "type": "string"}, "type": "array"}, "response_format.schema.items",
         "pattern"),
        ({"type": "string", "pattern": r"(a)\1"}, "response_format.schema", "pattern"),
        ({"type": "string", "pattern": r"\bfoo"}, "response_format.schema", "pattern"),
        ({"type": "string", "pattern": "(a"}, "response_format.schema", "pattern"),
        ({"type": "string", "pattern": 3}, "response_format.schema", "pattern"),
        ({"type": "string", "pattern": "a^b"}, "response_format.schema", "pattern"),
        ({"type": "string", "minLength": -1}, "response_format.schema", "minLength"),
        ({"type": "integer", "minimum": "3"}, "response_format.schema", "minimum"),
        ({"type": "integer", "multipleOf": 0}, "response_format.schema", "multipleOf"),
        ({"enum": "ab"}, "response_format.schema", "enum"),
        ({"required": "a"}, "response_format.schema", "required"),
        ({"properties": ["a"]}, "response_format.schema", "properties"),
        ({"patternProperties": {f"{i}": {} for i in range(9)}}, "response_format.schema", "patternProperties"),
    ],
)  # fmt: skip
def test_what_cannot_be_enforced_is_refused_by_its_path(schema: dict[str, Any], path: str, keyword: str) -> None:
    with pytest.raises(UnsupportedKeyword) as caught:
        schema_source(schema)
    assert (caught.value.path, caught.value.keyword) == (path, keyword)
    assert caught.value.field == path


@pytest.mark.parametrize(
    "schema",
    [False, {"type": "string", "enum": [1]}, {"type": "integer", "minimum": 3, "maximum": 2},
     {"allOf": [{"type": "null"}, False]},
     {"type": "object", "properties": {"a": False}, "required": ["a"]}, {"minItems": 3, "maxItems": 2, "type": "array"},
     {"type": "string", "minLength": 3, "maxLength": 2}, {"type": "object", "maxProperties": 0, "required": ["a"]},
     {"anyOf": []}, {"type": []}],
)  # fmt: skip
def test_a_schema_that_nothing_fits_is_refused(schema: Any) -> None:
    with pytest.raises(GrammarError, match="no value"):
        schema_source(schema)


@pytest.mark.parametrize("schema", ["x", 3, ["a"], {"properties": {"a": "string"}}, {"items": 3, "type": "array"}])
def test_what_is_no_schema_is_refused(schema: Any) -> None:
    with pytest.raises(GrammarError):
        schema_source(schema)


def test_values_without_bounds_of_their_own_end() -> None:
    bounds = Bounds(integer_digits=3, fraction_digits=2, exponent_digits=1, string_chars=4, key_chars=2, array_items=2,
                    extra_members=1, free_depth=2)  # fmt: skip
    for right, wrong in (
        (999, 1000), (1.25, 1.125), ("abcd", "abcde"), ([1, 2], [1, 2, 3]), ({"ab": 1}, {"abc": 1}),
        ({"a": 1}, {"a": 1, "b": 2}), ([[1]], [[[1]]]), ([{"a": 1}], [{"a": [1]}]),
    ):  # fmt: skip
        assert takes_value({}, right, bounds), right
        assert not takes_value({}, wrong, bounds), wrong
    assert takes_value({"type": "string", "minLength": 6}, "abcdef", bounds)
    assert takes_value({"type": "string", "maxLength": 6}, "abcdef", bounds)
    assert takes_value({"type": "integer", "minimum": 2000}, 2500, bounds)
    assert not takes_value({"type": "number", "minimum": 0}, 0.125, bounds)


def test_blanks_are_those_that_models_write_or_none() -> None:
    spaced, compact = schema_source({"type": "array"}), schema_source({"type": "array"}, Bounds(compact_json=True))
    assert takes(spaced, "[1, 2]")
    assert not takes(spaced, "[1,2]")
    assert not takes(spaced, "[1,  2]")
    assert takes(compact, "[1,2]")
    assert not takes(compact, "[1, 2]")


def test_recursion_ends_at_its_bound() -> None:
    schema = {"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": False}
    value: dict[str, Any] = {}
    for _ in range(3):
        value = {"next": value}
    assert takes_value(schema, value, Bounds(recursion_depth=3))
    assert not takes_value(schema, {"next": value}, Bounds(recursion_depth=3))


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [{"anyOf": [{"properties": {f"p{i}_{j}": {}}} for j in range(4)]} for i in range(12)]},
        {"type": "object", "minProperties": 3, "properties": {f"p{i}": {} for i in range(400)}},
        {"type": "object", "properties": {f"p{i}": {} for i in range(2500)}},
    ],
    ids=["exponential anyOf", "counted members", "thousands of members"],
)
def test_a_schema_that_grows_beyond_bounds_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises((GrammarTooComplex, UnsupportedKeyword)):
        schema_source(schema)


@pytest.mark.parametrize("pattern", ["(" * 1500 + "a" + ")" * 1500, "^" + "(?:" * 700 + "a" + ")?" * 700 + "$"])
def test_a_pattern_of_nothing_but_brackets_is_refused(pattern):
    with pytest.raises(GrammarError, match="nested too deeply"):
        schema_source({"type": "string", "pattern": pattern})
