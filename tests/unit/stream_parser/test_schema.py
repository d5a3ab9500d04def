import json

import pytest

from stream_parser import repair, schema
from stream_parser.schema import ToolIndex, check


def tool(parameters, name="f"):
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


SCHEMA = {
    "type": "object",
    "properties": {"count": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}},
    "required": ["count", 7],
}
TOOL = ToolIndex([tool(SCHEMA)]).get("f")


def test_tools_are_found_by_name_in_every_form_of_declaration():
    index = ToolIndex([tool(SCHEMA), {"name": "bare", "parameters": SCHEMA}, {"name": "other", "input_schema": SCHEMA}])
    assert index.names == {"f", "bare", "other"}
    for name in index.names:
        found = index.get(name)
        assert found.name == name
        assert found.params == ("count", "tags")
        assert found.required == {"count"}
        assert found.param("count").types == {"integer"}
        assert found.param("nothing") is None
    assert index.get("nothing") is None


def test_a_schema_is_read_when_its_tool_is_called_and_then_once(monkeypatch):
    """A request with 128 choices and 1,024 tools read 131,072 schemas before its first token."""
    made = []

    class Counted(schema.ToolSchema):
        def __init__(self, name, parameters):
            made.append(name)
            super().__init__(name, parameters)

    monkeypatch.setattr(schema, "ToolSchema", Counted)
    index = ToolIndex([tool(SCHEMA, f"t{i}") for i in range(100)])
    assert made == []
    assert index.get("t7") is index.get("t7")
    assert made == ["t7"]


@pytest.mark.parametrize(
    "tools", [None, [], [{}], [{"name": ""}], [{"function": 5}], ["x"], [{"function": {"name": 5}}]]
)
def test_what_is_no_tool_is_skipped(tools):
    assert ToolIndex(tools).names == frozenset()


@pytest.mark.parametrize("parameters", [None, 5, [], {}, {"required": 5, "properties": None}])
def test_a_malformed_schema_allows_everything(parameters):
    found = ToolIndex([tool(parameters)]).get("f")
    assert (found.params, found.required) == ((), frozenset())
    assert found.types.is_unknown
    assert check(found, '{"x": 1}', "") == ('{"x": 1}', "ok", "")


def test_the_first_of_two_tools_with_one_name_counts():
    assert ToolIndex([tool(SCHEMA), tool({})]).get("f").params == ("count", "tags")


@pytest.mark.parametrize(
    ("arguments", "outcome", "reason"),
    [
        ('{"count": 1}', "ok", ""),
        ('{"count": 1, "more": true}', "ok", ""),
        ('{"count": 1.5}', "invalid", repair.SCHEMA_TYPE),
        ("{}", "invalid", repair.SCHEMA_REQUIRED),
        ("[1]", "invalid", repair.NOT_OBJECT),
        ('"x"', "invalid", repair.NOT_OBJECT),
        ("{", "invalid", repair.NOT_JSON),
        ("", "invalid", repair.NOT_JSON),
        ('{"count": ' + "[" * 500 + "]" * 500 + "}", "invalid", repair.TOO_DEEP),
    ],
)
def test_the_verdict_says_how_arguments_fit(arguments, outcome, reason):
    assert check(TOOL, arguments, arguments) == (arguments, outcome, reason)


def test_without_a_tool_any_object_is_fine():
    assert check(None, '{"x": [1]}', "")[1] == "ok"
    assert check(None, "[1]", "")[1] == "invalid"


def test_what_was_not_sent_yet_is_brought_to_the_schema():
    arguments, outcome, reason = check(TOOL, '{"count": "5", "tags": "a", "big": 1e400}', "")
    assert (outcome, reason) == ("repaired", repair.COERCED_TYPE)
    assert arguments == '{"count": 5, "tags": ["a"], "big": 1e400}'
    assert check(TOOL, '{"tags": "a", "count": "5"}', "{")[0].startswith("{")


def test_what_was_sent_stays_as_it_is():
    arguments = '{"count": "5"}'
    assert check(TOOL, arguments, '{"count": "') == (arguments, "invalid", repair.SCHEMA_TYPE)


def test_a_change_that_does_not_help_is_not_made():
    arguments = '{"tags": "a"}'
    assert check(TOOL, arguments, "") == (arguments, "invalid", repair.SCHEMA_REQUIRED)
    assert json.loads(arguments) == {"tags": "a"}
