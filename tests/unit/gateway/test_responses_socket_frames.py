"""Frames of the Responses socket, without one."""

import json

import pytest

from gateway.errors import InvalidRequest, TooManyTurns
from gateway.protocols.frames import Frame
from gateway.protocols.responses_socket import (
    ConnectionLimitReached,
    LaneFrames,
    ResponseCreate,
    ResponseSteer,
    decode_frame,
    steer_failed,
)


def test_a_create_is_the_body_without_what_belongs_to_the_socket():
    frame = {"type": "response.create", "stream_id": "l", "stream": False, "background": True, "input": "Hi"}
    assert decode_frame(json.dumps(frame)) == ResponseCreate("l", {"input": "Hi", "stream": True})
    assert decode_frame(b'{"type":"response.create"}') == ResponseCreate(None, {"stream": True})


@pytest.mark.parametrize("stream_id", ["a", "A_b.c-9", "x" * 256])
def test_lanes_have_names_of_plain_signs(stream_id):
    frame = decode_frame(json.dumps({"type": "response.create", "stream_id": stream_id}))
    assert frame.stream_id == stream_id


@pytest.mark.parametrize(
    ("frame", "param", "code"),
    [
        ({"type": "response.create", "stream_id": ""}, "stream_id", "invalid_value"),
        ({"type": "response.create", "stream_id": "a b"}, "stream_id", "invalid_value"),
        ({"type": "response.create", "stream_id": "a\n"}, "stream_id", "invalid_value"),
        ({"type": "response.create", "stream_id": "x" * 257}, "stream_id", "invalid_value"),
        ({"type": "response.create", "stream_id": 4}, "stream_id", "invalid_type"),
        ({"type": "response.cancel"}, "type", "invalid_value"),
        ({}, "type", "missing_required_parameter"),
        ([], None, "invalid_type"),
    ],
)
def test_other_frames_are_refused(frame, param, code):
    with pytest.raises(InvalidRequest) as refused:
        decode_frame(json.dumps(frame))
    assert (refused.value.param, refused.value.code) == (param, code)


def test_errors_are_nested_and_carry_what_the_http_headers_would():
    error = json.loads(LaneFrames("l").error(TooManyTurns("full", retry_after_s=1.5)))
    assert (error["type"], error["status"], error["stream_id"]) == ("error", 429, "l")
    assert error["error"]["code"] == "rate_limit_exceeded"
    assert error["error"]["headers"] == {"retry-after": "2", "retry-after-ms": "1500", "x-should-retry": "true"}
    limit = json.loads(LaneFrames(None).error(ConnectionLimitReached()))
    assert (limit["status"], limit["error"]["headers"]) == (400, {"x-should-retry": "true"})


def test_frames_name_their_lane_when_the_client_did():
    frame = Frame(b'{"type":"x"}', "x")
    assert json.loads(LaneFrames('a"').data(frame)) == {"type": "x", "stream_id": 'a"'}
    assert LaneFrames(None).data(frame) == frame.data


def test_a_refused_steer_gives_the_input_back():
    steer = decode_frame('{"type":"response.steer","previous_response_id":"resp_1","input":"left"}')
    assert steer == ResponseSteer("resp_1", "left")
    event = json.loads(steer_failed(steer))
    assert event["type"] == "response.steer.failed"
    assert event["error"]["code"] == "steering_not_supported"
    assert event["steer"] == {"previous_response_id": "resp_1", "input": "left"}
    assert json.loads(steer_failed(ResponseSteer(None, None)))["steer"] == {"previous_response_id": "", "input": []}
