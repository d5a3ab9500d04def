"""Tools as the model gets them, and which tool a call means."""

import pytest

from gateway.errors import InvalidRequest
from gateway.protocols.fields import Fields
from gateway.protocols.messages import MAX_TOOLS
from gateway.protocols.responses_tools import ToolName, decode_tool_choice, decode_tools
from gateway.types import NamedTool


def table_of(*tools):
    return decode_tools([(list(tools), "tools")])


def function(name, **more):
    return {"type": "function", "name": name, **more}


def test_a_function_keeps_what_the_template_needs():
    parameters = {"type": "object"}
    table = table_of(function("f", description="d", parameters=parameters, strict=True, defer_loading=False))
    wanted = {"name": "f", "description": "d", "parameters": parameters, "strict": True}
    assert table.functions == ({"type": "function", "function": wanted},)


def test_chat_completions_spelling_is_taken():
    nested = table_of({"type": "function", "function": {"name": "f", "parameters": {}}})
    assert nested == table_of(function("f", parameters={}))


def test_a_custom_tool_is_a_function_with_one_string():
    grammar = {"type": "grammar", "syntax": "regex", "definition": "a+"}
    table = table_of({"type": "custom", "name": "note", "description": "d", "format": grammar})
    made = table.functions[0]["function"]
    assert made["parameters"]["required"] == ["input"]
    assert "regex" in made["parameters"]["properties"]["input"]["description"]
    assert table.find("note") == ToolName("note", None, is_custom=True)


def test_a_custom_tool_without_a_grammar_takes_any_text():
    about = table_of({"type": "custom", "name": "note"}).functions[0]["function"]["parameters"]["properties"]["input"]
    assert "grammar" not in about["description"]


def test_tools_of_a_namespace_are_found_by_their_whole_name_and_by_their_own():
    space = {"type": "namespace", "name": "n", "description": "", "tools": [function("spawn"), {"name": "note"}]}
    table = table_of(space, {"type": "namespace", "name": "m", "tools": [function("note")]})
    assert [tool["function"]["name"] for tool in table.functions] == ["n__spawn", "n__note", "m__note"]
    assert table.find("n__spawn") == table.find("spawn") == ToolName("spawn", "n")
    assert table.find("note") == ToolName("note"), "two tools have this name"
    assert table.find("never heard") == ToolName("never heard")
    assert table_of({"type": "namespace", "name": "empty"}).functions == ()


def test_of_two_tools_with_one_name_the_first_is_kept():
    table = table_of(function("f", description="first"), function("f", description="second"))
    assert [tool["function"]["description"] for tool in table.functions] == ["first"]


def test_hosted_tools_are_left_out_with_a_warning_each():
    table = table_of({"type": "web_search_2025_08_26"}, {"type": "mcp"}, {"type": "mcp"}, function("f"))
    assert len(table.functions) == 1
    assert len(table.warnings) == 2


def test_more_tools_than_a_request_may_have_are_refused():
    with pytest.raises(InvalidRequest, match=str(MAX_TOOLS)):
        table_of(*(function(f"f{i}") for i in range(MAX_TOOLS + 1)))


@pytest.mark.parametrize(
    ("value", "choice", "is_kept"),
    [
        (None, "auto", True),
        ("auto", "auto", True),
        ("none", "none", True),
        ("required", "required", False),
        ({"type": "function", "name": "f"}, NamedTool("f"), False),
        ({"type": "function", "name": "spawn", "namespace": "n"}, NamedTool("n__spawn"), False),
        ({"type": "allowed_tools", "mode": "required", "tools": []}, "required", False),
        ({"type": "allowed_tools", "mode": "none", "tools": []}, "none", True),
        ({"type": "allowed_tools", "tools": []}, "auto", True),
        ({"type": "file_search"}, "auto", False),
    ],
)
def test_a_choice_is_kept_or_the_client_is_told(value, choice, is_kept):
    table = table_of(function("f"), {"type": "namespace", "name": "n", "tools": [function("spawn")]})
    found, warnings = decode_tool_choice(Fields({"tool_choice": value}), table)
    assert (found, not warnings) == (choice, is_kept)
