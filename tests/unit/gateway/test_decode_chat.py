from typing import Any

import pytest

from gateway.errors import InvalidRequest
from gateway.protocols.openai_chat import decode_chat
from gateway.types import ChatMessage, NamedTool, ToolUse
from tests.testkit.gateway_kit import chat_body, weather_tool


def refusal(body: dict[str, Any]) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        decode_chat(body)
    return caught.value


def test_a_minimal_request_has_neutral_defaults():
    turn = decode_chat({"messages": [{"role": "user", "content": "Hi"}]})
    assert turn.model is None
    assert turn.messages == (ChatMessage("user", "Hi"),)
    assert turn.params.temperature == 1.0
    assert turn.params.top_p == 1.0
    assert turn.params.max_tokens is None
    assert turn.params.logprobs is None
    assert (turn.n, turn.stream, turn.stop, turn.tools, turn.tool_choice) == (1, False, (), (), "auto")


def test_null_means_absent_for_every_field_that_has_a_default():
    names = "model temperature top_p n stream stop max_tokens tools tool_choice seed logit_bias logprobs stream_options"
    assert decode_chat(chat_body(**dict.fromkeys(names.split()))) == decode_chat({"messages": chat_body()["messages"]})


def test_unknown_fields_are_accepted():
    body = chat_body(store=False, metadata={"a": "b"}, prompt_cache_key="x", service_tier="auto", brand_new=[1])
    assert decode_chat(body) == decode_chat(chat_body())


@pytest.mark.parametrize("role", ["system", "developer", "user"])
@pytest.mark.parametrize("kind", ["text", "input_text"])
def test_text_parts_give_the_same_message_as_a_string(role, kind):
    parts = [{"type": kind, "text": "one"}, {"type": "text", "text": "two"}]
    from_parts = decode_chat({"messages": [{"role": role, "content": parts}]})
    from_text = decode_chat({"messages": [{"role": role, "content": "one\ntwo"}]})
    assert from_parts.messages == from_text.messages


def test_tool_results_may_be_parts():
    message = {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "4"}]}
    assert decode_chat({"messages": [message]}).messages == (ChatMessage("tool", "4", tool_call_id="c1"),)


def test_calls_of_the_past_come_back_as_they_were():
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    (decoded,) = decode_chat({"messages": [message]}).messages
    assert decoded == ChatMessage("assistant", "", tool_uses=(ToolUse("c1", "f", '{"a": 1}'),))


def test_arguments_that_are_an_object_become_their_json_text():
    call = {"id": "c1", "function": {"name": "f", "arguments": {"a": 1}}}
    (decoded,) = decode_chat({"messages": [{"role": "assistant", "tool_calls": [call]}]}).messages
    assert decoded.tool_uses[0].arguments == '{"a":1}'


@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning_content": "why"},
        {"reasoning": "why"},
        {"reasoning_details": [{"type": "reasoning.text", "text": "w"}, {"type": "reasoning.text", "text": "hy"}]},
        {"reasoning_content": "why", "reasoning": "why"},
        {"reasoning_content": "", "reasoning": "why"},
    ],
)
def test_reasoning_is_accepted_back_under_every_name_that_clients_use(fields):
    (message,) = decode_chat({"messages": [{"role": "assistant", "content": "x", **fields}]}).messages
    assert message.reasoning == "why"


def test_reasoning_of_an_unknown_shape_is_no_error():
    message = {
        "role": "assistant",
        "content": "x",
        "reasoning_details": [{"type": "reasoning.encrypted", "data": "0"}, 3],
    }
    assert decode_chat({"messages": [message]}).messages[0].reasoning is None


def test_sampling_fields_reach_the_engine():
    params = decode_chat(
        chat_body(
            temperature=0,
            top_p=0.5,
            top_k=40,
            min_p=0.1,
            presence_penalty=-1,
            frequency_penalty=2,
            repetition_penalty=1.1,
            logit_bias={"12": -100, "7": 1.5},
            seed=-3,
            max_tokens=10,
            min_tokens=2,
            stop_token_ids=[5, 6],
            ignore_eos=True,
            logprobs=True,
            top_logprobs=3,
        )
    ).params
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0, 0.5, 40, 0.1)
    assert (params.presence_penalty, params.frequency_penalty, params.repetition_penalty) == (-1, 2, 1.1)
    assert params.logit_bias == ((12, -100), (7, 1.5))
    assert (params.seed, params.max_tokens, params.min_tokens) == (-3, 10, 2)
    assert (params.stop_token_ids, params.ignore_eos, params.logprobs) == ((5, 6), True, 3)


def test_max_completion_tokens_goes_before_max_tokens():
    assert decode_chat(chat_body(max_tokens=5, max_completion_tokens=6)).params.max_tokens == 6
    assert decode_chat(chat_body(max_tokens=5.0)).params.max_tokens == 5


@pytest.mark.parametrize(("top_k", "expected"), [(-1, 0), (0, 0), (None, 0), (3, 3)])
def test_top_k_minus_one_is_off(top_k, expected):
    assert decode_chat(chat_body(top_k=top_k)).params.top_k == expected


def test_top_p_zero_is_the_likeliest_token_and_in_the_engines_range():
    assert 0 < decode_chat(chat_body(top_p=0)).params.top_p < 1e-3


@pytest.mark.parametrize(("stop", "expected"), [("a", ("a",)), (["a", "b"], ("a", "b")), ([], ())])
def test_stop_is_a_string_or_a_list(stop, expected):
    assert decode_chat(chat_body(stop=stop)).stop == expected


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        ({"type": "function", "function": {"name": "weather"}}, NamedTool("weather")),
        ({"type": "function", "name": "weather"}, NamedTool("weather")),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}}, "required"),
    ],
)
def test_tool_choice_in_every_spelling(choice, expected):
    assert decode_chat(chat_body(tools=[weather_tool()], tool_choice=choice)).tool_choice == expected


def test_what_decoding_cannot_force_yet_is_said_in_a_warning():
    turn = decode_chat(chat_body(tools=[weather_tool()], tool_choice="required"))
    assert "tool_choice" in turn.warnings[0]
    turn = decode_chat(chat_body(functions=[{"name": "f"}], tools=[weather_tool()]))
    assert [warning.split()[0] for warning in turn.warnings] == ["functions"]
    turn = decode_chat(chat_body(response_format={"type": "json_object"}))
    assert "response_format" in turn.warnings[0]
    assert decode_chat(chat_body(response_format={"type": "text"}, tool_choice="auto")).warnings == ()


@pytest.mark.parametrize(("given", "expected"), [(False, False), (True, True), (None, True)])
def test_parallel_calls_can_be_switched_off(given, expected):
    turn = decode_chat(chat_body(parallel_tool_calls=given))
    assert (turn.parallel_calls, turn.warnings) == (expected, ())


def test_tools_keep_the_clients_keys_in_their_order():
    tool = {"function": {"parameters": {}, "name": "f", "x": 1}, "type": "function"}
    (decoded,) = decode_chat(chat_body(tools=[tool])).tools
    assert list(decoded) == ["function", "type"]
    assert list(decoded["function"]) == ["parameters", "name", "x"]


def test_reasoning_effort_and_template_arguments_reach_the_template():
    assert decode_chat(chat_body(reasoning_effort="none")).template_kwargs == {
        "reasoning_effort": "none",
        "enable_thinking": False,
    }
    kwargs = decode_chat(
        chat_body(reasoning_effort="low", chat_template_kwargs={"enable_thinking": True})
    ).template_kwargs
    assert kwargs == {"enable_thinking": True, "reasoning_effort": "low"}


USER = {"role": "user", "content": "Hi"}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:"}}


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"messages": None}, "messages", "required"),
        ({"messages": []}, "messages", "at least one"),
        ({"messages": {}}, "messages", "an array"),
        ({"messages": ["Hi"]}, "messages[0]", "an object"),
        ({"messages": [{"content": "Hi"}]}, "messages[0].role", "required"),
        ({"messages": [{"role": "robot", "content": "Hi"}]}, "messages[0].role", "'robot'"),
        ({"messages": [{"role": 3, "content": "Hi"}]}, "messages[0].role", "a string"),
        ({"messages": [USER, {"role": "user"}]}, "messages[1].content", "required"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "an integer"),
        ({"messages": [{"role": "user", "content": [IMAGE]}]}, "messages[0].content[0].type", "'image_url'"),
        ({"messages": [{"role": "user", "content": [{"text": "a"}]}]}, "messages[0].content[0].type", "required"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text", "required"),
        ({"messages": [{"role": "user", "content": ["a"]}]}, "messages[0].content[0]", "an object"),
        ({"messages": [{"role": "tool", "content": "4"}]}, "messages[0].tool_call_id", "required"),
        ({"messages": [{"role": "tool", "content": "4", "tool_call_id": ""}]}, "messages[0].tool_call_id", "empty"),
        ({"messages": [{"role": "tool", "tool_call_id": "c"}]}, "messages[0].content", "required"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages[0].tool_calls[0].id", "required"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "c"}]}]}, "messages[0].tool_calls[0].function", ""),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "function": {}}]}]},
            "messages[0].tool_calls[0].function.name",
            "required",
        ),
        (
            {
                "messages": [
                    {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": 1}}]}
                ]
            },
            "messages[0].tool_calls[0].function.arguments",
            "a string of JSON",
        ),
        ({"model": 7}, "model", "a string"),
        ({"temperature": "hot"}, "temperature", "'hot'"),
        ({"temperature": True}, "temperature", "a boolean"),
        ({"temperature": -0.1}, "temperature", "between 0 and 2"),
        ({"temperature": 2.1}, "temperature", "2.1"),
        ({"top_p": 1.5}, "top_p", "between 0 and 1"),
        ({"top_k": -2}, "top_k", "at least -1"),
        ({"min_p": 2}, "min_p", "between 0 and 1"),
        ({"presence_penalty": 3}, "presence_penalty", "between -2 and 2"),
        ({"frequency_penalty": []}, "frequency_penalty", "an array"),
        ({"repetition_penalty": 0}, "repetition_penalty", "above 0"),
        ({"max_tokens": -1}, "max_tokens", "at least 1, got -1"),
        ({"max_tokens": 0}, "max_tokens", "at least 1"),
        ({"max_tokens": 1.5}, "max_tokens", "an integer"),
        ({"max_tokens": "10"}, "max_tokens", "an integer"),
        ({"max_tokens": 10**30}, "max_tokens", "at most"),
        ({"max_tokens": 1.2e29}, "max_tokens", "at most"),
        ({"max_completion_tokens": -5}, "max_completion_tokens", "at least 1"),
        ({"max_tokens": 3, "min_tokens": 4}, "min_tokens", "4 and 3"),
        ({"n": 0}, "n", "between 1 and 128"),
        ({"n": 1000}, "n", "1000"),
        ({"seed": 2**64}, "seed", "at most"),
        ({"seed": "x"}, "seed", "an integer"),
        ({"stream": "yes"}, "stream", "a boolean"),
        ({"stream": 1}, "stream", "a boolean"),
        ({"stream_options": True}, "stream_options", "an object"),
        ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage", "a boolean"),
        ({"stop": 5}, "stop", "a string or an array"),
        ({"stop": ""}, "stop", "1 to 256"),
        ({"stop": ["a", ""]}, "stop[1]", "1 to 256"),
        ({"stop": ["a", 2]}, "stop[1]", "a string"),
        ({"stop": ["a"] * 17}, "stop", "16"),
        ({"logit_bias": []}, "logit_bias", "an object"),
        ({"logit_bias": {"a": 1}}, "logit_bias", "token ids"),
        ({"logit_bias": {"-1": 1}}, "logit_bias", "token ids"),
        ({"logit_bias": {"²": 1}}, "logit_bias", "token ids"),
        ({"logit_bias": {"5": 101}}, "logit_bias.5", "between -100 and 100"),
        ({"logit_bias": {"5": "1"}}, "logit_bias.5", "a number"),
        ({"logprobs": 3}, "logprobs", "a boolean"),
        ({"top_logprobs": 3}, "top_logprobs", "logprobs: true"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "between 0 and 20"),
        ({"stop_token_ids": [1, None]}, "stop_token_ids[1]", "null"),
        ({"stop_token_ids": [-1]}, "stop_token_ids[0]", "between"),
        ({"tools": {}}, "tools", "an array"),
        ({"tools": ["f"]}, "tools[0]", "an object"),
        ({"tools": [{"function": {"name": "f"}}]}, "tools[0].type", "required"),
        ({"tools": [{"type": "custom", "custom": {}}]}, "tools[0].type", "'custom'"),
        ({"tools": [{"type": "function"}]}, "tools[0].function", "required"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name", "required"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].function.name", "empty"),
        ({"tools": [{"type": "function", "function": {"name": 1}}]}, "tools[0].function.name", "a string"),
        (
            {"tools": [weather_tool(), {"type": "function", "function": {"name": "f", "parameters": []}}]},
            "tools[1].function.parameters",
            "an object",
        ),
        ({"tool_choice": "maybe"}, "tool_choice", "'maybe'"),
        ({"tool_choice": 1}, "tool_choice", "a string"),
        ({"tool_choice": "required"}, "tool_choice", "no tools"),
        ({"tool_choice": {}}, "tool_choice.type", "required"),
        ({"tool_choice": {"type": "function"}}, "tool_choice.name", "required"),
        (
            {"tools": [weather_tool()], "tool_choice": {"type": "function", "function": {"name": "g"}}},
            "tool_choice.function.name",
            "'g'",
        ),
        ({"modalities": ["text", "audio"]}, "modalities", "text"),
        ({"response_format": "json"}, "response_format", "an object"),
        ({"response_format": {}}, "response_format.type", "required"),
        ({"reasoning_effort": 3}, "reasoning_effort", "a string"),
        ({"chat_template_kwargs": []}, "chat_template_kwargs", "an object"),
        ({"cache_salt": "x" * 257}, "cache_salt", "256"),
    ],
)
def test_a_refusal_names_the_field_and_what_is_wrong(fields, param, words):
    error = refusal({**chat_body(), **fields})
    assert error.param == param
    assert param in error.message
    assert words in error.message
    assert (error.status, error.type) == (400, "invalid_request_error")


def test_a_long_value_is_cut_in_the_message():
    assert len(refusal(chat_body(tool_choice="x" * 5000)).message) < 300
