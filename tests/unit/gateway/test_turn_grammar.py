"""Which turns are held to a grammar, and to which: on the bundled tokenizer, without a model."""

from __future__ import annotations

import pytest

from gateway.errors import InvalidRequest
from gateway.protocols.anthropic_decode import decode_messages_request
from gateway.protocols.completions import decode_completion
from gateway.protocols.openai_chat import decode_chat
from gateway.protocols.responses_request import build_turn, decode_request
from gateway.turn_grammar import GrammarSettings, TurnGrammars
from gateway.types import EngineInfo
from inference.grammar.compile import GrammarCompiler
from inference.models import resolve
from inference.tokenizer import CheckpointTokenizer
from stream_parser import DIALECTS

CITY = {
    "type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"],
    "additionalProperties": False,
}  # fmt: skip
ROME = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
NOWHERE = ROME.replace("Rome", "Nowhere")
PING = '<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>'


def _tool(name="weather", parameters=CITY, **options):
    return {"type": "function", "function": {"name": name, "parameters": parameters, **options}}


def _messages(**fields):
    return decode_messages_request({"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], **fields})


TOOLS = [_tool(), _tool("ping", {"type": "object", "properties": {}})]


@pytest.fixture(scope="module")
def tokenizer():
    return CheckpointTokenizer.from_folder(resolve(None).folder)


@pytest.fixture(scope="module")
def info(tokenizer):
    end = tokenizer.special_tokens["<|im_end|>"]
    return EngineInfo("m", "a", "cpu", "fp32", "torch", 2048, 49152, (end,), 16, 10, 10, 10, "model")


@pytest.fixture(scope="module")
def takes(tokenizer, info):
    compiler = GrammarCompiler.from_folder(resolve(None).folder, info.vocab_size, info.eos_token_ids)

    def whether(source, text):
        matcher = compiler.matcher(source)
        return all(matcher.accept(i) for i in [*tokenizer.encode(text), *info.eos_token_ids[:1]])

    return whether


def _grammars(template="", **settings):
    return TurnGrammars(resolve(None).folder, DIALECTS["hermes"], template, GrammarSettings(**settings))


@pytest.fixture(scope="module")
def grammars():
    return _grammars()


def chat(**fields):
    return decode_chat({"messages": [{"role": "user", "content": "Hi"}], **fields})


def test_a_turn_that_demands_nothing_is_free(grammars, info):
    for turn in (chat(), chat(tools=TOOLS), chat(tools=TOOLS, tool_choice="auto", parallel_tool_calls=False)):
        assert not grammars.is_needed(turn)
        assert grammars.of(turn, info) is None


def test_required_and_named_calls_must_come_and_keep_to_their_schemas(grammars, info, takes):
    required = grammars.of(chat(tools=TOOLS, tool_choice="required"), info)
    assert takes(required, ROME)
    assert takes(required, f"{PING}\n{ROME}")
    assert not takes(required, "It is sunny.")
    assert not takes(required, NOWHERE)
    named = {"type": "function", "function": {"name": "weather"}}
    source = grammars.of(chat(tools=TOOLS, tool_choice=named), info)
    assert takes(source, ROME)
    assert not takes(source, PING)
    assert not takes(source, f"{ROME}\n{ROME}"), "a named tool is called once"


def test_without_calls_none_can_begin(grammars, info, takes):
    source = grammars.of(chat(tools=TOOLS, tool_choice="none"), info)
    assert takes(source, "It is sunny.")
    assert not takes(source, ROME)


@pytest.mark.parametrize(("strict_tools", "tool"), [(False, _tool(strict=True)), (True, _tool())])
def test_strict_calls_keep_to_their_schemas_and_text_stays_free(info, takes, strict_tools, tool):
    source = _grammars(strict_tools=strict_tools).of(chat(tools=[tool]), info)
    assert takes(source, "It is sunny.")
    assert takes(source, f"Let me look. {ROME}")
    assert not takes(source, f"Let me look. {NOWHERE}")


def test_formats_hold_on_every_protocol(grammars, info, takes):
    schema = {"type": "json_schema", "json_schema": {"name": "n", "schema": CITY}}
    messages = _messages(output_config={"format": {"type": "json_schema", "schema": CITY}})
    raw = decode_completion({"prompt": "Hi", "structured_outputs": {"json": CITY}})
    for turn in (chat(response_format=schema), chat(structured_outputs={"json": CITY}), messages, raw):
        assert grammars.is_needed(turn)
        source = grammars.of(turn, info)
        assert takes(source, '{"city": "Oslo"}')
        assert not takes(source, '{"city": "Nowhere"}')
        assert not takes(source, "Oslo")


def test_a_budget_of_reasoning_starts_where_the_prompt_has_left_the_model(info):
    turn, grammars = chat(max_reasoning_tokens=5), _grammars("{% if thinks %}<think>{% endif %}")
    inside = grammars.of(turn, info, "<|im_start|>assistant\n<think>\n")
    outside = grammars.of(turn, info, "<|im_start|>assistant\n")
    assert inside.reasoning.inside
    assert not outside.reasoning.inside
    assert inside.reasoning.max_tokens == outside.reasoning.max_tokens == 5


def test_a_model_that_reasons_may_do_so_before_a_call_that_must_come_but_leaves_room_for_it(grammars, info, takes):
    turn = chat(tools=TOOLS, tool_choice="required", max_tokens=60)
    thought = f"<think>\nHm.\n</think>\n\n{ROME}"
    source = _grammars("<think>").of(turn, info)
    assert takes(source, thought)
    assert source.reasoning.max_tokens == 30
    assert not takes(grammars.of(turn, info), thought), "this one does not reason"


@pytest.mark.parametrize(
    ("turn", "param", "words"),
    [
        (chat(response_format={"type": "json_schema", "json_schema": {"schema": {"$ref": "http://a/b"}}}),
         "response_format.json_schema.schema", "may only lead into this schema"),
        (chat(structured_outputs={"regex": "(a"}), "structured_outputs.regex", "regex"),
        (chat(guided_regex="(a"), "guided_regex", "regex"),
        (chat(guided_grammar="root ::= a"), "guided_grammar", "no rule 'a'"),
        (chat(response_format={"type": "json_object", "schema": {"type": "frob"}}), "response_format.schema", "frob"),
        (chat(tools=[_tool(parameters={"type": "object", "properties": {"a": {"pattern": "("}}})],
              tool_choice="required"), "tools[0].", "pattern"),
        (chat(tools=[_tool("ping"), _tool(parameters={"type": "object", "properties": {"a": {"type": "text!"}}})],
              tool_choice={"type": "function", "function": {"name": "weather"}}),
         "tools[1].function.parameters.properties.a", r"tools\[1\].*\(tool 'weather'\)"),
        (chat(tools=[_tool(parameters={"type": "object", "properties": {
            f"p{i}": {"enum": [f"{i} {j} {'x' * 90}" for j in range(300)]} for i in range(200)}})],
              tool_choice="required"), "tools", "too large a grammar"),
    ],
)  # fmt: skip
def test_what_cannot_be_constrained_is_the_clients_to_mend(grammars, info, turn, param, words):
    with pytest.raises(InvalidRequest, match=words) as caught:
        grammars.of(turn, info)
    assert caught.value.param.startswith(param)


@pytest.mark.parametrize("make", [
    lambda schema: (chat(response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}),
                    "response_format.json_schema.schema"),
    lambda schema: (chat(structured_outputs={"json": schema}), "structured_outputs.json"),
    lambda schema: (chat(guided_json=schema), "guided_json"),
    lambda schema: (_messages(output_config={"format": {"type": "json_schema", "schema": schema}}),
                    "output_config.format.schema"),
    lambda schema: (_messages(output_format={"type": "json_schema", "schema": schema}), "output_format.schema"),
    lambda schema: (decode_completion({"prompt": "Hi", "structured_outputs": {"json": schema}}),
                    "structured_outputs.json"),
])  # fmt: skip
def test_a_refused_schema_is_named_by_the_field_that_it_came_in(grammars, info, make):
    turn, field = make({"type": "object", "properties": {"a": {"type": "nothing"}}})
    with pytest.raises(InvalidRequest) as caught:
        grammars.of(turn, info)
    assert caught.value.param == f"{field}.properties.a"
    assert str(caught.value).startswith(f"{field}.properties.a: ")


def test_a_tokenizer_that_cannot_be_read_is_known_at_the_start(info, tmp_path):
    assert not TurnGrammars(tmp_path, DIALECTS["hermes"], "", GrammarSettings()).warm(info)
    (tmp_path / "tokenizer.json").write_text("{}")
    assert not TurnGrammars(tmp_path, DIALECTS["hermes"], "", GrammarSettings()).warm(info)


def test_the_vocabulary_is_read_once(grammars, info):
    assert grammars.warm(info)
    assert grammars.warm(info)


_NOTHING = {"type": "object", "properties": {"a": {"type": "nothing"}}}


def _responses(**fields):
    request = decode_request({"input": "Hi", **fields})
    return build_turn(request, (), request.input).chat


@pytest.mark.parametrize(("turn", "place"), [
    (lambda schema: chat(tools=[_tool(parameters=schema)], tool_choice="required"), "tools[0].function.parameters"),
    (lambda schema: _messages(tools=[{"name": "weather", "input_schema": schema}], tool_choice={"type": "any"}),
     "tools[0].input_schema"),
    (lambda schema: _responses(tools=[{"type": "function", "name": "weather", "parameters": schema}],
                               tool_choice="required"), "tools[0].parameters"),
])  # fmt: skip
def test_a_refused_schema_of_a_tool_is_named_as_its_protocol_spells_it(grammars, info, turn, place):
    with pytest.raises(InvalidRequest) as caught:
        grammars.of(turn(_NOTHING), info)
    assert caught.value.param.startswith(f"{place}.properties.a")
    assert caught.value.param in str(caught.value)
