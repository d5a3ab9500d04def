import pytest

from stream_parser.coercion import coerce, fit, read_word
from stream_parser.json_value import parse
from stream_parser.literals import read_literal
from stream_parser.references import References
from stream_parser.schema import TypeSet


def typed(schema):
    return TypeSet(schema, References(schema))


@pytest.mark.parametrize(
    ("schema", "text", "fitting"),
    [
        ({"type": "integer"}, '"5"', "5"),
        ({"type": "integer"}, '" 12345678901234567890 "', "12345678901234567890"),
        ({"type": "integer"}, '"5.5"', '"5.5"'),
        ({"type": "number"}, '"1e400"', "1e400"),
        ({"type": "integer"}, '"five"', '"five"'),
        ({"type": "integer"}, "5.5", "5.5"),
        ({"type": "boolean"}, '"true"', "true"),
        ({"type": "boolean"}, '"False"', "false"),
        ({"type": "boolean"}, "1", "1"),
        ({"type": ["integer", "null"]}, '"null"', "null"),
        ({"type": ["integer", "null"]}, '"None"', "null"),
        ({"type": ["string", "integer"]}, '"5"', '"5"'),
        ({"type": "array", "items": {"type": "string"}}, '"a"', '["a"]'),
        ({"type": "array", "items": {"type": "integer"}}, '"5"', "[5]"),
        ({"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}, '"5"', "[[5]]"),
        ({"type": "array", "items": {"type": "integer"}}, '"a"', '"a"'),
        ({"type": "array"}, "5", "[5]"),
        ({"type": "array"}, "null", "null"),
        ({"type": "array", "items": {"type": "integer"}}, "[ 1, 2 ]", "[ 1, 2 ]"),
        ({"type": "array", "items": {"type": "integer"}}, '["1", 2]', "[1, 2]"),
        ({"type": "array", "items": {"type": "array"}}, "[[1]]", "[[1]]"),
        ({"type": "object"}, '"{\\"a\\": 1}"', '{"a": 1}'),
        ({"type": "object"}, "\"{'a': None}\"", '{"a": null}'),
        ({"type": "object"}, '"{a"', '"{a"'),
        ({"type": "object"}, '"[1]"', '"[1]"'),
        ({"type": "array"}, '"(1, 2)"', "[1, 2]"),
        ({"type": "object", "properties": {"n": {"type": "integer"}}}, '{"n":"1","m":"1"}', '{"n": 1, "m": "1"}'),
        ({"type": "string"}, "5", "5"),
        ({}, '"5"', '"5"'),
        ({"type": "integer"}, "not json", "not json"),
    ],
)
def test_only_certain_meanings_change_their_type(schema, text, fitting):
    assert fit(text, typed(schema), read_literal) == fitting


@pytest.mark.parametrize("text", ["1", '"x"', '{"a": 1}', "true"])
def test_a_value_for_arrays_within_each_other_without_an_end_stays(text):
    schema = {"$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"}
    assert fit(text, typed(schema)) == text


def test_without_a_schema_nothing_changes():
    assert fit('"5"', None) == '"5"'
    assert coerce(parse('{"a": "5"}'), None) == {"a": "5"}


def test_without_a_reader_of_literals_only_json_is_read_in_text():
    assert fit("\"{'a': 1}\"", typed({"type": "object"})) == "\"{'a': 1}\""


def test_a_literal_nested_too_deeply_stays_text():
    text = '"' + "(" + "[" * 300 + "]" * 300 + ",)" + '"'
    assert fit(text, typed({"type": "array", "items": {"type": "integer"}}), read_literal) == text


@pytest.mark.parametrize(
    ("schema", "word", "text"),
    [
        (None, "750", "750"),
        (None, "Oslo", '"Oslo"'),
        ({"type": "string"}, "750", '"750"'),
        ({"type": "integer"}, "750", "750"),
        ({"type": ["string", "integer"]}, "750", "750"),
        ({"type": ["string", "null"]}, "750", '"750"'),
        ({"type": ["string", "null"]}, "None", "null"),
    ],
)
def test_bare_words_mean_what_the_schema_wants(schema, word, text):
    assert read_word(word, None if schema is None else typed(schema)).text == text
