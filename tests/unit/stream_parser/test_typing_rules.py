import json

import pytest

from stream_parser.literals import read_literal
from stream_parser.references import References
from stream_parser.schema import TypeSet, type_value


def typed(schema):
    return None if schema is None else TypeSet(schema, References(schema))


STRING, INTEGER, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
UNION = {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}, {"type": "object"}]}
ARRAY = {"type": "array", "items": {"type": "string"}}


@pytest.mark.parametrize("raw", ["007", "null", "true", '{"a": 1}', '"x"', "  padded \n", "", "[1]"])
def test_a_string_is_verbatim(raw):
    assert json.loads(type_value(raw, typed(STRING))) == raw


@pytest.mark.parametrize(
    ("schema", "raw", "text"),
    [
        (INTEGER, "25", "25"),
        (INTEGER, " 25\n", "25"),
        (INTEGER, "12345678901234567890123", "12345678901234567890123"),
        (INTEGER, "3.0", "3"),
        (INTEGER, "-3.00", "-3"),
        (NUMBER, "3.0", "3.0"),
        (NUMBER, "1e400", "1e400"),
        (INTEGER, "+5", "5"),
        (INTEGER, '"5"', "5"),
        (INTEGER, "2026-01-15", '"2026-01-15"'),
        (INTEGER, "null", "null"),
        (INTEGER, "", '""'),
        (NUMBER, "NaN", '"NaN"'),
        ({"type": "boolean"}, "True", "true"),
        ({"type": "boolean"}, "false", "false"),
        ({"type": "boolean"}, "yes", '"yes"'),
        ({"type": ["integer", "null"]}, "None", "null"),
        (ARRAY, '["a", "b"]', '["a", "b"]'),
        (ARRAY, "['a', \"b\"]", '["a", "b"]'),
        (ARRAY, "bug", '"bug"'),
        (ARRAY, "['a', b", "\"['a', b\""),
        (ARRAY, '["\\ud83d"]', '["\\ufffd"]'),
        ({"type": "object"}, "{'k': {'n': 1, 'x': None}}", '{"k": {"n": 1, "x": null}}'),
        ({"type": "object"}, '{ "k" : 1e400 }', '{ "k" : 1e400 }'),
        ({"type": "object"}, "{k: v", '"{k: v"'),
    ],
)
def test_where_no_string_is_allowed_json_and_python_are_read(schema, raw, text):
    assert type_value(raw, typed(schema)) == text


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("42", "42"),
        ("null", "null"),
        ('{"a": 1}', '{"a": 1}'),
        (" 42", '" 42"'),
        ("42\n", '"42\\n"'),
        ("4.5", '"4.5"'),
        ("true", '"true"'),
        ("None", '"None"'),
        ('"42"', '"\\"42\\""'),
        ("Oslo", '"Oslo"'),
    ],
)
def test_in_a_union_with_string_only_exact_json_of_another_type_counts(raw, text):
    assert type_value(raw, typed(UNION)) == text


@pytest.mark.parametrize("schema", [None, {}])
@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("5", "5"),
        ("-1.5", "-1.5"),
        ("true", "true"),
        ("null", "null"),
        ('{"a": [1]}', '{"a": [1]}'),
        ("007", '"007"'),
        ("2026-01-15", '"2026-01-15"'),
        ("{oops", '"{oops"'),
        ("True", '"True"'),
        ('"x"', '"\\"x\\""'),
        ("", '""'),
        ("Oslo", '"Oslo"'),
    ],
)
def test_where_nothing_is_declared_json_that_looks_like_no_string_is_read(schema, raw, text):
    assert type_value(raw, typed(schema)) == text


def test_dialects_that_write_python_may_be_read_as_python_where_nothing_is_declared():
    assert type_value("True", None, "python") == "true"
    assert type_value("['a']", None, "python") == '["a"]'
    assert type_value("Oslo", None, "python") == '"Oslo"'


def test_the_wire_may_say_the_type():
    assert type_value("5", typed(INTEGER), "attr_string") == '"5"'
    assert type_value(' "x" ', typed(STRING), "attr_json") == '"x"'
    assert type_value('"x', typed(STRING), "attr_json") == '"\\"x"'
    assert type_value("5", None, "attr_json") == "5"
    assert type_value("oops", None, "attr_json") == '"oops"'


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ("(1, 'x')", '[1, "x"]'),
        (" {'a': True} ", '{"a": true}'),
        ("'x'", '"x"'),
        ("[1] or so", None),
        ("[1", None),
        ("[one two]", None),
        ("x", None),
        ("", None),
    ],
)
def test_only_a_whole_literal_is_one(text, literal):
    assert read_literal(text) == literal
