import json

import pytest

from gateway.protocols.anthropic_decode import decode_messages_request
from gateway.protocols.openai_chat import decode_chat
from gateway.protocols.responses_request import build_turn, decode_request
from gateway.types import ChatMessage, ChatTurn, SamplingParams, ToolUse
from gateway.upstream_request import RequestStyle, chat_request

USER = {"role": "user", "content": "Hello"}


def sent(turn, **style):
    return chat_request(turn, "m", RequestStyle(**style))


def sent_messages(*messages, **style):
    return sent(decode_chat({"messages": list(messages)}), **style)["messages"]


def messages_turn(**fields):
    return decode_messages_request({"model": "m", "max_tokens": 5, "messages": [USER], **fields})


def responses_turn(**fields):
    request = decode_request({"model": "m", "input": "Hello", **fields})
    return build_turn(request, (), request.input).chat


def test_leading_system_messages_are_one_and_later_ones_are_the_users():
    found = sent_messages(
        {"role": "system", "content": "A"},
        {"role": "developer", "content": "B"},
        USER,
        {"role": "system", "content": "C"},
    )
    assert found == [{"role": "system", "content": "A\n\nB"}, {"role": "user", "content": "Hello\nC"}]


def test_past_calls_go_out_with_null_content_and_arguments_that_are_an_object():
    def call(number, arguments):
        return {"id": f"c{number}", "type": "function", "function": {"name": "f", "arguments": arguments}}

    given = ['{"a": 1}', '{"a": ', "[1]", "[" * 100_000]
    message = {"role": "assistant", "content": None, "tool_calls": [call(i, text) for i, text in enumerate(given)]}
    results = [{"role": "tool", "tool_call_id": f"c{i}", "content": "ok"} for i in range(len(given))]
    found = sent_messages(USER, message, *results)
    assert found[1]["content"] is None
    arguments = [json.loads(entry["function"]["arguments"]) for entry in found[1]["tool_calls"]]
    assert arguments == [{"a": 1}, *({"INVALID_JSON": text} for text in given[1:])]
    assert found[1]["tool_calls"][0]["function"]["arguments"] == given[0]
    assert found[2] == {"role": "tool", "tool_call_id": "c0", "content": "ok"}


def test_past_reasoning_goes_out_under_the_upstreams_own_name_or_not_at_all():
    past = {"role": "assistant", "content": "Hi", "reasoning_content": "Hm."}
    assert sent_messages(USER, past, USER)[1] == {"role": "assistant", "content": "Hi"}
    assert sent_messages(USER, past, USER, past_reasoning_field="reasoning")[1]["reasoning"] == "Hm."


def test_an_answer_that_has_begun_is_to_be_continued():
    body = sent(messages_turn(messages=[USER, {"role": "assistant", "content": "Once"}]))
    assert body["messages"][-1] == {"role": "assistant", "content": "Once"}
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_the_limit_is_spelled_as_the_client_did_or_as_the_upstream_wants_it(field):
    chat = sent(decode_chat({"messages": [USER], field: 7}), max_tokens_field="max_completion_tokens")
    assert {name: value for name, value in chat.items() if name.startswith("max_")} == {field: 7}
    other = sent(messages_turn(), max_tokens_field=field)
    assert {name: value for name, value in other.items() if name.startswith("max_")} == {field: 5}


def test_reasoning_of_other_protocols_is_put_as_the_upstream_takes_it():
    turns = [messages_turn(output_config={"effort": "low"}), responses_turn(reasoning={"effort": "low"})]
    for turn in turns:
        assert sent(turn)["reasoning_effort"] == "low"
        assert sent(turn, reasoning="template")["chat_template_kwargs"]["reasoning_effort"] == "low"
        assert not {"reasoning_effort", "chat_template_kwargs"} & sent(turn, reasoning="none").keys()
    off = messages_turn(thinking={"type": "disabled"}, output_config={"effort": "low"})
    assert "reasoning_effort" not in sent(off)
    assert sent(off, reasoning="template")["chat_template_kwargs"]["enable_thinking"] is False


def test_what_a_client_of_chat_asks_for_itself_goes_on_whatever_the_style():
    given = {"reasoning_effort": "high", "chat_template_kwargs": {"enable_thinking": False}, "thinking": {"type": "on"}}
    body = sent(decode_chat({"messages": [USER], **given}), reasoning="none")
    assert {name: body[name] for name in given} == given


def test_formats_of_other_protocols_become_response_format():
    schema = {"type": "object"}
    wanted = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    assert sent(messages_turn(output_config={"format": {"type": "json_schema", "schema": schema}})) | {} == {
        **sent(messages_turn()),
        "response_format": wanted,
    }
    given = {"type": "json_schema", "name": "city", "schema": schema, "strict": True}
    found = sent(responses_turn(text={"format": given}))["response_format"]
    assert found["json_schema"] == {"name": "city", "schema": schema, "strict": True}
    assert "response_format" not in sent(responses_turn(text={"format": {"type": "text"}}))


def test_tools_that_may_not_be_called_stay_in_the_prompt():
    tool = {"type": "function", "function": {"name": "f"}}
    body = sent(decode_chat({"messages": [USER], "tools": [tool], "tool_choice": "none"}))
    assert (body["tools"], body["tool_choice"]) == ([tool], "none")


def test_choices_of_tools_without_tools_go_nowhere():
    body = sent(decode_chat({"messages": [USER], "tool_choice": "none", "parallel_tool_calls": False}))
    assert body.keys() == {"model", "messages", "stream", "stream_options"}


def test_a_client_cannot_turn_the_stream_off_or_take_the_usage_away():
    body = sent(decode_chat({"messages": [USER], "stream": False, "stream_options": {"include_usage": False}}))
    assert (body["stream"], body["stream_options"]) == (True, {"include_usage": True})


def test_a_session_that_a_model_began_goes_out_whole():
    past = (ChatMessage("user", "a"), ChatMessage("assistant", "", tool_uses=(ToolUse("c", "f", "{}"),)))
    turn = ChatTurn(None, (*past, ChatMessage("tool", "ok", tool_call_id="c")), SamplingParams())
    assert [message["role"] for message in sent(turn)["messages"]] == ["user", "assistant", "tool"]
