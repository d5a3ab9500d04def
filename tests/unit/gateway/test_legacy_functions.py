"""Chat Completions before tools, calls of tools with free text, and choices among some of the tools."""

import json

import pytest

from gateway.errors import InvalidRequest
from gateway.protocols.frames import TurnLabels
from gateway.protocols.openai_chat import ChatCollector, ChatEncoder, decode_chat
from gateway.protocols.responses_request import build_turn, decode_request
from gateway.types import NamedTool, ToolUse, TurnDone, TurnEvent, TurnStarted, Usage
from stream_parser.events import Finish, ToolCallDelta, ToolCallEnd, ToolCallStart
from tests.testkit.gateway_kit import chat_body, weather_tool

WEATHER, TIME = weather_tool()["function"], {"name": "time", "parameters": {"type": "object"}}
LABELS = TurnLabels("chatcmpl-1", "m", 1)
CALL = [
    TurnStarted(3),
    TurnEvent(0, ToolCallStart(0, "call_x", "weather")),
    TurnEvent(0, ToolCallDelta(0, '{"city":"Oslo"}')),
    TurnEvent(0, ToolCallEnd(0, '{"city":"Oslo"}', "ok", "")),
    TurnEvent(0, Finish("tool_calls")),
    TurnDone(Usage(3, 5)),
]


def legacy(**fields):
    return decode_chat(chat_body(functions=[WEATHER, TIME], **fields))


def test_functions_are_tools_and_one_call_an_answer():
    turn = legacy()
    assert [tool["function"] for tool in turn.tools] == [WEATHER, TIME]
    assert (turn.tool_choice, turn.parallel_calls, turn.legacy_calls, turn.warnings) == ("auto", False, True, ())
    assert legacy(function_call="none").tool_choice == "none"
    assert legacy(function_call={"name": "time"}).tool_choice == NamedTool("time")
    assert not decode_chat(chat_body(functions=[])).legacy_calls


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"functions": [7]}, "functions[0]"),
        ({"functions": [{}]}, "functions[0].name"),
        ({"functions": [TIME], "function_call": {"name": "other"}}, "function_call.name"),
        ({"functions": [TIME], "function_call": "required"}, "function_call"),
    ],
)
def test_what_is_wrong_with_them_is_named_as_it_was_sent(fields, param):
    with pytest.raises(InvalidRequest) as refused:
        decode_chat(chat_body(**fields))
    assert refused.value.param == param


def test_a_legacy_call_and_its_result_are_those_of_a_tool():
    messages = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "function_call": {"name": "weather", "arguments": '{"city":"Oslo"}'}},
        {"role": "function", "name": "weather", "content": "4 degrees"},
        {"role": "function", "name": "unasked", "content": None},
    ]
    turn = decode_chat({"messages": messages})
    assert turn.messages[1].tool_uses == (ToolUse("call_1", "weather", '{"city":"Oslo"}'),)
    results = [(message.role, message.tool_call_id, message.content) for message in turn.messages[2:]]
    assert results == [("tool", "call_1", "4 degrees"), ("tool", "call_3", "")]


@pytest.mark.parametrize("call", [{"arguments": "{}"}, {"name": "weather", "arguments": 7}, "weather"])
def test_a_legacy_call_that_is_none_is_refused(call):
    with pytest.raises(InvalidRequest) as refused:
        decode_chat({"messages": [{"role": "assistant", "function_call": call}]})
    assert refused.value.param.startswith("messages[0].function_call")


def test_the_answer_has_the_call_as_such_clients_read_it():
    turn = legacy()
    encoder = ChatEncoder(LABELS, turn)
    frames = [frame.data for item in CALL for frame in encoder.encode(item)]
    choices = [json.loads(data)["choices"][0] for data in frames[:-1]]
    assert [choice["delta"] for choice in choices] == [
        {"role": "assistant", "content": ""},
        {"function_call": {"name": "weather", "arguments": ""}},
        {"function_call": {"arguments": '{"city":"Oslo"}'}},
        {},
    ]
    assert choices[-1]["finish_reason"] == "function_call"

    collector = ChatCollector(LABELS, turn)
    for item in CALL:
        collector.add(item)
    [choice] = json.loads(collector.body())["choices"]
    assert choice["message"]["function_call"] == {"name": "weather", "arguments": '{"city":"Oslo"}'}
    assert (choice["finish_reason"], "tool_calls" in choice["message"]) == ("function_call", False)


def test_a_custom_call_of_the_past_is_a_call_with_one_text():
    custom = {"id": "c", "type": "custom", "custom": {"name": "patch", "input": 'a "b"'}}
    turn = decode_chat({"messages": [{"role": "assistant", "tool_calls": [custom]}]})
    assert turn.messages[0].tool_uses == (ToolUse("c", "patch", '{"input":"a \\"b\\""}'),)
    with pytest.raises(InvalidRequest) as refused:
        decode_chat({"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "type": "custom"}]}]})
    assert refused.value.param == "messages[0].tool_calls[0].custom"


# Some of the tools

TOOLS = [weather_tool("weather"), weather_tool("time")]


def chat_choosing(mode, *names):
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}
    return decode_chat(chat_body(tools=TOOLS, tool_choice=choice))


def responses_choosing(mode, *names):
    tools = [{"type": "function", "name": name} for name in names]
    choice = {"type": "allowed_tools", "mode": mode, "tools": tools}
    flat = [{"type": "function", **tool["function"]} for tool in TOOLS]
    request = decode_request({"input": "Hi", "tools": flat, "tool_choice": choice})
    return build_turn(request, (), request.input).chat


@pytest.mark.parametrize("choosing", [chat_choosing, responses_choosing])
@pytest.mark.parametrize("mode", ["auto", "required"])
def test_tools_that_are_not_allowed_are_not_offered(choosing, mode):
    turn = choosing(mode, "time")
    assert [tool["function"]["name"] for tool in turn.tools] == ["time"]
    assert turn.tool_choice == mode
    assert not any("allowed_tools" in warning for warning in turn.warnings)
    with pytest.raises(InvalidRequest) as refused:
        choosing(mode, "time", "other")
    assert "other" in refused.value.message
