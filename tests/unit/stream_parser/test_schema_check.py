import json
import time

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_parser import repair
from stream_parser.json_value import parse
from stream_parser.references import References
from stream_parser.schema_check import SchemaChecker


def fault(schema, text):
    return SchemaChecker(schema, References(schema)).first_fault(parse(text))


@pytest.mark.parametrize(
    ("schema", "good", "bad", "reason"),
    [
        ({"type": "string"}, '"x"', "5", repair.SCHEMA_TYPE),
        ({"type": "integer"}, "5.0", "5.5", repair.SCHEMA_TYPE),
        ({"type": "number"}, "5", "true", repair.SCHEMA_TYPE),
        ({"type": ["array", "null"]}, "null", "{}", repair.SCHEMA_TYPE),
        ({"type": "string", "nullable": True, "enum": ["a"]}, "null", '"b"', repair.SCHEMA_ENUM),
        ({"enum": ["a", 1, None, True, [1], {"k": [None]}]}, '{"k": [null]}', '{"k": []}', repair.SCHEMA_ENUM),
        ({"enum": [1, 2.5]}, "2.50", "true", repair.SCHEMA_ENUM),
        ({"enum": [[1]]}, "[1.0]", "[1, 2]", repair.SCHEMA_ENUM),
        ({"enum": [{"a": 1}]}, '{"a": 1}', '{"b": 1}', repair.SCHEMA_ENUM),
        ({"enum": [True, None]}, "true", "1", repair.SCHEMA_ENUM),
        ({"enum": ["1"]}, '"1"', "1", repair.SCHEMA_ENUM),
        ({"enum": [5]}, "5", "[5]", repair.SCHEMA_ENUM),
        ({"enum": [5]}, "5", "{}", repair.SCHEMA_ENUM),
        ({"const": None}, "null", "false", repair.SCHEMA_ENUM),
        ({"required": ["a"]}, '{"a": null}', "{}", repair.SCHEMA_REQUIRED),
        ({"properties": {"a": {"type": "string"}}}, '{"b": 1}', '{"a": 1}', repair.SCHEMA_TYPE),
        ({"additionalProperties": False, "properties": {"a": {}}}, '{"a": 1}', '{"b": 1}', repair.SCHEMA_EXTRA),
        ({"additionalProperties": {"type": "integer"}}, '{"b": 1}', '{"b": "x"}', repair.SCHEMA_TYPE),
        ({"minProperties": 1}, '{"a": 1}', "{}", repair.SCHEMA_RANGE),
        ({"items": {"type": "integer"}}, "[1, 2]", '[1, "x"]', repair.SCHEMA_TYPE),
        ({"prefixItems": [{"type": "string"}], "items": False}, '["x"]', '["x", 1]', repair.SCHEMA_FORM),
        (
            {"items": [{"type": "string"}], "additionalItems": {"type": "null"}},
            '["x", null]',
            '["x", 1]',
            repair.SCHEMA_TYPE,
        ),
        ({"minItems": 1, "maxItems": 2}, "[1]", "[1, 2, 3]", repair.SCHEMA_RANGE),
        ({"minimum": 0, "maximum": 10}, "10", "-0.5", repair.SCHEMA_RANGE),
        ({"minimum": 0}, "1e99999999999999999999", "-1e99999999999999999999", repair.SCHEMA_RANGE),
        ({"exclusiveMinimum": 0}, "0.1", "0", repair.SCHEMA_RANGE),
        ({"exclusiveMaximum": 10}, "9", "10", repair.SCHEMA_RANGE),
        ({"minLength": 2, "maxLength": 3}, '"ab"', '"abcd"', repair.SCHEMA_RANGE),
        ({"pattern": "^[a-z]+$"}, '"abc"', '"ABC"', repair.SCHEMA_PATTERN),
        ({"allOf": [{"type": "integer"}, {"minimum": 1}]}, "1", "0", repair.SCHEMA_RANGE),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "null", "1", repair.SCHEMA_FORM),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "1", '"x"', repair.SCHEMA_FORM),
        ({"not": {"type": "string"}}, "1", '"x"', repair.SCHEMA_FORM),
        ({"$defs": {"p": {"type": "integer"}}, "items": {"$ref": "#/$defs/p"}}, "[1]", '["x"]', repair.SCHEMA_TYPE),
    ],
)
def test_each_keyword_accepts_and_refuses(schema, good, bad, reason):
    assert fault(schema, good) == ""
    assert fault(schema, bad) == reason


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "whatever"},
        {"type": 5, "enum": "x", "required": "a", "properties": 3, "items": "y", "anyOf": {}, "allOf": [5, None, True]},
        {"required": [1, None]},
        {"minimum": "1", "maxLength": True, "pattern": 7, "minItems": None},
        {"pattern": "(unclosed"},
        {"pattern": "(a+)+$"},
        {"pattern": "(.*)(.*)*x"},
        {"pattern": r"(a)\1"},
        {"pattern": "a" * 500},
        {"$ref": "#/nowhere"},
        {"$ref": "https://example.org/other"},
        {"patternProperties": {"^x": {"type": "string"}}, "additionalProperties": False},
        {"multipleOf": 7, "format": "date", "unknown": 1},
    ],
)
@pytest.mark.parametrize(
    "text", ['{"a": 1}', '["x", 5]', '"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!"', "5", "null"]
)
def test_malformed_unknown_and_dangerous_keywords_allow_everything(schema, text):
    assert fault(schema, text) == ""


def test_a_pattern_is_not_tried_on_long_text():
    assert fault({"pattern": "^x$"}, '"' + "y" * 10_000 + '"') == ""


def test_a_false_schema_refuses():
    assert fault({"properties": {"a": False}}, '{"a": 1}') == repair.SCHEMA_FORM


def test_references_in_a_circle_end():
    assert fault({"$ref": "#"}, "{}") == ""
    tree = {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["name"]}
    assert fault(tree, '{"name": 1, "next": {"name": 2, "next": {}}}') == repair.SCHEMA_REQUIRED


def test_a_schema_that_multiplies_itself_ends_soon():
    schema = {"anyOf": [{"$ref": "#"}, {"$ref": "#"}], "type": "object"}
    start = time.process_time()
    fault(schema, '{"a": {"b": {}}}')
    assert time.process_time() - start < 2


schemas = st.recursive(
    st.sampled_from(
        [
            {}, True, {"type": "string"}, {"type": "integer"}, {"type": ["number", "null"]}, {"type": "boolean"},
            {"enum": ["a", 1, None]}, {"const": [1]}, {"minimum": 1}, {"maxLength": 1}, {"minItems": 1},
            {"type": "object"}, {"type": "array"}, {"pattern": "^a"},
        ]
    ),
    lambda inner: st.one_of(
        st.builds(lambda a, b: {"properties": {"a": a, "b": b}, "required": ["a"]}, inner, inner),
        st.builds(lambda a: {"items": a}, inner),
        st.builds(lambda a, b: {"anyOf": [a, b]}, inner, inner),
        st.builds(lambda a, b: {"allOf": [a, b]}, inner, inner),
        st.builds(lambda a: {"properties": {"a": a}, "additionalProperties": False}, inner),
        st.builds(lambda a: {"not": a}, inner.filter(lambda schema: schema is not True)),
    ),
    max_leaves=6,
)  # fmt: skip
values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 2.0, "", "a", "ab", "b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(schema=schemas, value=values)
def test_the_verdict_is_that_of_the_reference_validator(schema, value):
    if schema is True:
        return
    is_valid = jsonschema.Draft202012Validator(schema).is_valid(value)
    assert (fault(schema, json.dumps(value)) == "") == is_valid
