"""The encoder beyond its fixtures: items that an upstream writes at once, sealed reasoning, errors, compaction."""

import json

import pytest

from gateway.errors import EngineDown, GatewayError, InvalidRequest, Overloaded, TooManyTurns
from gateway.protocols.frames import TurnLabels
from gateway.protocols.responses_compact import compacted, compaction_body
from gateway.protocols.responses_encoder import ResponsesEncoder, error_object, keepalive
from gateway.protocols.responses_opaque import Unsealer, seal
from gateway.protocols.responses_request import build_turn, decode_request
from gateway.types import TurnFailed, TurnText
from tests.testkit.responses_order import check_order
from tests.testkit.turn_items import turn_items


def encoder_for(**body):
    request = decode_request({"input": "Hi", **body})
    return ResponsesEncoder(TurnLabels("resp_7", "m", 1), build_turn(request, (), request.input), lambda: 2.0)


def events_of(encoder, specs):
    return [json.loads(frame.data) for item in turn_items(specs) for frame in encoder.encode(item)]


def call(index, call_id="", name="f"):
    return {"item": "call", "index": index, "id": call_id or f"call_{index}", "name": name}


def test_calls_that_an_upstream_writes_at_once_follow_each_other_whole():
    specs = [
        {"item": "started"},
        call(0),
        call(1),
        {"item": "arguments", "index": 1, "text": '{"b":'},
        {"item": "arguments", "index": 0, "text": '{"a":1}'},
        {"item": "content", "text": "between"},
        {"item": "call_end", "index": 0, "text": '{"a":1}'},
        {"item": "arguments", "index": 1, "text": "2}"},
        {"item": "reasoning", "text": "late"},
        {"item": "call_end", "index": 1, "text": '{"b":2}'},
        {"item": "finish", "reason": "tool_calls"},
        {"item": "done", "usage": [1, 1]},
    ]
    response = check_order(events_of(encoder_for(), specs))
    kinds = [(item["type"], item.get("arguments")) for item in response["output"]]
    assert kinds == [
        ("function_call", '{"a":1}'),
        ("function_call", '{"b":2}'),
        ("message", None),
        ("reasoning", None),
    ]


def test_sealed_reasoning_holds_what_the_summary_says():
    encoder = encoder_for(include=["reasoning.encrypted_content"], reasoning={"summary": "auto"})
    specs = [{"item": "started"}, {"item": "reasoning", "text": "a"}, {"item": "reasoning", "text": "b"}]
    events = events_of(encoder, [*specs, {"item": "finish", "reason": "stop"}, {"item": "done", "usage": [1, 1]}])
    [item] = check_order(events)["output"]
    assert item["summary"][0]["text"] == Unsealer().open(item["encrypted_content"]) == "ab"


def test_events_are_numbered_on_from_what_was_sent_before_the_response_was_opened():
    request = decode_request({"input": "Hi"})
    turn = build_turn(request, (), request.input)
    opened = ResponsesEncoder(TurnLabels("resp_7", "m", 1), turn, lambda: 2.0, first_number=2)
    frames = [keepalive(0), keepalive(1), *opened.encode(TurnFailed(EngineDown("gone"))), opened.keepalive()]
    events = [json.loads(frame.data) for frame in frames]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events[:3]] == ["keepalive", "keepalive", "response.created"]


def test_a_failure_before_anything_still_opens_the_response():
    encoder = encoder_for()
    frames = encoder.encode(TurnFailed(EngineDown("gone")))
    response = check_order([json.loads(frame.data) for frame in frames])
    assert response["error"] == {"code": "server_error", "message": "gone"}


def test_an_item_that_was_open_at_a_failure_is_not_presented_as_done():
    specs = [{"item": "started"}, call(0), {"item": "arguments", "index": 0, "text": "{"}]
    events = events_of(encoder_for(), [*specs, {"item": "failed", "message": "gone"}])
    assert check_order(events)["output"] == []


def test_a_models_output_that_broke_off_is_a_failure():
    specs = [{"item": "started"}, {"item": "content", "text": "x"}, {"item": "finish", "reason": "error"}]
    response = check_order(events_of(encoder_for(), [*specs, {"item": "done", "usage": [1, 1]}]))
    assert (response["status"], response["error"]["code"]) == ("failed", "server_error")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TooManyTurns("try again in 1s"), "rate_limit_exceeded"),
        (InvalidRequest("input", "too long", code="context_length_exceeded"), "context_length_exceeded"),
        (InvalidRequest("input", "bad"), "invalid_prompt"),
        (Overloaded("slow", code="slow_reader"), "server_error"),
        (Overloaded("busy"), "server_is_overloaded"),
        (EngineDown("gone"), "server_error"),
        (GatewayError("ours"), "server_error"),
    ],
)
def test_codes_tell_clients_whether_to_stop_or_to_try_again(error, code):
    assert error_object(error)["code"] == code


def test_text_that_is_not_parsed_is_a_bug_of_ours():
    with pytest.raises(AssertionError):
        encoder_for().encode(TurnText(0, "x"))


def test_a_compaction_keeps_what_people_said_and_cuts_what_tools_said():
    long = "a" * 1000 + "b" * 5000 + "c" * 400
    items = [
        {"role": "user", "content": long},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "function_call_output", "call_id": "1", "output": long},
        {"type": "function_call_output", "call_id": "2", "output": [{"type": "input_text", "text": long}, "odd"]},
        {"type": "function_call_output", "call_id": "3", "output": "short"},
        *({"role": "user", "content": str(i)} for i in range(5)),
        {"type": "function_call_output", "call_id": "4", "output": long},
    ]
    kept = compacted(items)
    assert kept[0]["content"] == long
    cut = "a" * 1000 + "\n[5000 characters left out]\n" + "c" * 400
    assert [kept[1]["output"], kept[2]["output"][0]["text"], kept[3]["output"]] == [cut, cut, "short"]
    assert kept[-1]["output"] == long, "the latest items stay as they are"
    assert not [item for item in kept if item.get("type") == "reasoning"]


def test_a_compaction_of_a_compaction_has_none_inside():
    first = {"type": "compaction", "encrypted_content": seal([{"role": "user", "content": "old"}])}
    foreign = {"type": "compaction", "encrypted_content": "gAAA"}
    again = compacted([first, {"role": "user", "content": "new"}, {"type": "compaction_trigger"}, foreign])
    assert again == [{"role": "user", "content": "old"}, {"role": "user", "content": "new"}, foreign]
    body = json.loads(compaction_body(TurnLabels("resp_7", "m", 1), again[:2]))
    [item] = body["output"]
    assert (body["object"], item["type"], item["id"]) == ("response.compaction", "compaction", "cmp_700")
    assert Unsealer().open(item["encrypted_content"]) == again[:2]


def echoed(**body):
    return json.loads(encoder_for(**body).body())


def test_what_the_request_said_is_repeated_as_it_was_said():
    """Audit of 2026-11-30: top_p 0 came back as 1e-06, which is what the sampler makes of it."""
    assert (echoed(top_p=0)["top_p"], echoed(top_p=0.5)["top_p"], echoed()["top_p"]) == (0, 0.5, 1.0)
    assert (echoed(temperature=0)["temperature"], echoed()["temperature"]) == (0.0, 1.0)
    assert echoed(metadata={"a": "1", "b": None})["metadata"] == {"a": "1"}


def test_warnings_take_no_place_of_the_client_in_its_metadata():
    hosted = [{"type": "web_search"}]
    assert "web_search" in echoed(tools=hosted, metadata={"a": "1"})["metadata"]["headrace_warnings"]
    assert echoed(tools=hosted, metadata={"headrace_warnings": "mine"})["metadata"] == {"headrace_warnings": "mine"}
    full = {f"key {i}": "x" for i in range(16)}
    assert echoed(tools=hosted, metadata=full)["metadata"] == full
