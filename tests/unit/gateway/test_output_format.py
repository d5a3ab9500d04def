import pytest

from gateway.errors import InvalidRequest
from gateway.protocols.fields import Fields
from gateway.protocols.output_format import (
    chat_format,
    messages_format,
    responses_format,
    schema_path,
    structured_format,
)
from gateway.types import FREE_TEXT, Choice, JsonObject, JsonSchema, Regex, TextGrammar

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


def chat(given):
    return chat_format(Fields({"response_format": given}))[0]


def responses(given):
    return responses_format(Fields({"text": {"format": given}}))[0]


def messages(given):
    return messages_format(Fields({"output_config": {"format": given}}))[0]


def structured(**fields):
    return structured_format(Fields(fields))


def test_what_is_left_out_is_text():
    assert chat(None) == responses(None) == messages(None) == responses_format(Fields({}))[0] == FREE_TEXT
    assert structured() == (FREE_TEXT, "structured_outputs")


@pytest.mark.parametrize("read", [chat, responses])
def test_formats_without_a_schema(read):
    assert read({"type": "text"}) == FREE_TEXT
    assert read({"type": "json_object"}) == JsonObject()


def test_an_object_may_have_a_schema_as_other_servers_have_it():
    given = {"type": "json_object", "schema": SCHEMA}
    assert chat_format(Fields({"response_format": given})) == (JsonSchema(SCHEMA), "response_format.schema")
    assert responses_format(Fields({"text": {"format": given}})) == (JsonSchema(SCHEMA), "text.format")
    assert chat({"type": "json_object", "schema": None}) == JsonObject()
    assert schema_path("response_format.schema") == "response_format.schema"


def test_a_schema_stands_where_each_api_has_it():
    wanted = JsonSchema(SCHEMA)
    assert chat({"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}}) == wanted
    assert responses({"type": "json_schema", "name": "n", "schema": SCHEMA}) == wanted
    assert messages({"type": "json_schema", "schema": SCHEMA}) == wanted
    older = {"output_format": {"type": "json_schema", "schema": SCHEMA}}
    assert messages_format(Fields(older)) == (wanted, "output_format")
    both = older | {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}
    assert messages_format(Fields(both)) == (wanted, "output_config.format")
    both["output_config"]["format"]["schema"] = {}
    with pytest.raises(InvalidRequest, match="differ"):
        messages_format(Fields(both))


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"json": SCHEMA}, JsonSchema(SCHEMA)),
        ({"json": '{"type": "object"}'}, JsonSchema({"type": "object"})),
        ({"regex": "[ab]+"}, Regex("[ab]+")),
        ({"choice": ["a", "b"]}, Choice(("a", "b"))),
        ({"grammar": "root ::= 'a'"}, TextGrammar("root ::= 'a'")),
        ({"json_object": True}, JsonObject()),
        ({"json_object": False, "regex": None}, FREE_TEXT),
    ],
)
def test_the_extension_of_vllm_on_chat_and_completions(given, wanted):
    assert structured(structured_outputs=given)[0] == wanted
    assert chat_format(Fields({"structured_outputs": given}))[0] == wanted
    assert responses_format(Fields({"structured_outputs": given}))[0] == wanted


def test_its_older_names():
    assert structured(guided_json=SCHEMA) == (JsonSchema(SCHEMA), "guided_json")
    assert structured(guided_choice=["x"]) == (Choice(("x",)), "guided_choice")
    assert structured(guided_regex="a")[0] == Regex("a")
    assert structured(guided_grammar="start: \"a\"")[0] == TextGrammar("start: \"a\"")


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"structured_outputs": "json"}, "structured_outputs", "an object"),
        ({"structured_outputs": {"json": 3}}, "structured_outputs.json", "a JSON Schema"),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs.json", "not valid JSON"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice", "at least one"),
        ({"structured_outputs": {"choice": ["a", 3]}}, "structured_outputs.choice", "texts"),
        ({"structured_outputs": {"regex": 1}}, "structured_outputs.regex", "a string"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs.choice", "exclude"),
        ({"structured_outputs": {"regex": "a"}, "guided_json": {}}, "guided_json", "exclude"),
        ({"structured_outputs": {"structural_tag": "{}"}}, "structured_outputs.structural_tag", "tool_choice"),
        ({"response_format": {"type": "json_object"}, "guided_regex": "a"}, "guided_regex", "exclude"),
        ({"response_format": {"type": "json_object", "schema": []}}, "response_format.schema", "an object"),
        ({"structured_outputs": {"choices": ["a"]}}, "structured_outputs.choices", "'choice'"),
        ({"structured_outputs": {"json": None, "whitespace_pattern": " "}}, "structured_outputs.whitespace_pattern",
         "demands nothing"),
    ],
)
def test_what_is_wrong_with_a_structured_output_is_named(fields, param, words):
    with pytest.raises(InvalidRequest, match=words) as caught:
        chat_format(Fields(fields))
    assert caught.value.param == param


FORMAT = "response_format"
NAMED = {"type": "json_schema", "json_schema": {"name": "n"}}


@pytest.mark.parametrize(
    ("read", "given", "param", "words"),
    [
        (chat, "json", FORMAT, "an object"),
        (chat, {}, f"{FORMAT}.type", "'json_object'"),
        (chat, {"type": "jsonschema"}, f"{FORMAT}.type", "'jsonschema'"),
        (chat, {"type": ["text"]}, f"{FORMAT}.type", "a string"),
        (chat, {"type": "json_schema"}, f"{FORMAT}.json_schema", "schema"),
        (chat, {"type": "json_schema", "schema": SCHEMA}, f"{FORMAT}.json_schema", "required"),
        (chat, NAMED, f"{FORMAT}.json_schema.schema", "required"),
        (chat, {"type": "json_schema", "json_schema": {"schema": True}}, f"{FORMAT}.json_schema.schema", "an object"),
        (
            chat,
            {"type": "json_schema", "json_schema": {"schema": {}, "name": ""}},
            f"{FORMAT}.json_schema.name",
            "empty",
        ),
        (responses, {"type": "grammar"}, "text.format.type", "'grammar'"),
        (responses, {"type": "json_schema", "name": "n"}, "text.format.schema", "required"),
        (responses, {"type": "json_schema", "schema": {}, "strict": "yes"}, "text.format.strict", "a boolean"),
        (messages, {"type": "json_object"}, "output_config.format.type", "'json_schema'"),
        (messages, {"type": "json_schema"}, "output_config.format.schema", "required"),
    ],
)
def test_a_format_that_cannot_be_is_refused_by_its_field(read, given, param, words):
    with pytest.raises(InvalidRequest) as caught:
        read(given)
    assert caught.value.param == param
    assert param in caught.value.message
    assert words in caught.value.message
