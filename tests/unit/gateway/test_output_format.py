import pytest

from gateway.errors import InvalidRequest
from gateway.protocols.fields import Fields
from gateway.protocols.output_format import chat_format, messages_format, responses_format

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


def chat(given):
    return chat_format(Fields({"response_format": given}))


def responses(given):
    return responses_format(Fields({"text": {"format": given}}))


def messages(given):
    return messages_format(Fields({"format": given}, "output_config"), "format")


def test_what_is_left_out_is_text():
    assert {chat(None), responses(None), messages(None), responses_format(Fields({}))} == {"text"}


@pytest.mark.parametrize("read", [chat, responses])
def test_formats_without_a_schema(read):
    assert read({"type": "text"}) == "text"
    assert read({"type": "json_object"}) == "json_object"


def test_a_schema_stands_where_each_api_has_it():
    assert (
        chat({"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}}) == "json_schema"
    )
    assert responses({"type": "json_schema", "name": "n", "schema": SCHEMA}) == "json_schema"
    assert messages({"type": "json_schema", "schema": SCHEMA}) == "json_schema"


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
