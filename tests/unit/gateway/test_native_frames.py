"""Client frames of the native protocol, decoded without a socket."""

import json

import pytest
from jsonschema import ValidationError

from gateway.errors import FailedDependency, InvalidRequest, TooManyTurns
from gateway.protocols import native
from gateway.protocols.json_body import check_depth
from gateway.protocols.native_codec import JSON, MSGPACK
from gateway.replay import ReplayLog
from tests.testkit.native_schema import check_client_frame, check_server_frame


def decoded(**fields):
    check_client_frame(fields)
    return native.decode_frame(json.dumps(fields))


def test_each_frame_has_its_value():
    messages = [{"role": "user", "content": "x"}]
    create = decoded(type="turn.create", turn="t", lane="l", messages=messages)
    assert (create.turn, create.lane) == ("t", "l")
    assert decoded(type="turn.credit", turn="t", credit=5) == native.TurnCredit("t", 5)
    assert decoded(type="turn.cancel", turn="t") == native.TurnCancel("t")
    assert decoded(type="resume", stream="s", last_seq={"a": -1, "b": 7}) == native.Resume("s", {"a": -1, "b": 7})
    assert decoded(type="ping", nonce="n") == native.Ping("n")


def test_a_turn_without_a_number_is_not_resumed():
    frame = native.decode_frame('{"type": "resume", "stream": "s", "last_seq": {"a": null, "b": 1.0}}')
    assert frame == native.Resume("s", {"b": 1})


def turn_of(**fields):
    create = decoded(type="turn.create", turn="t", messages=[{"role": "user", "content": "x"}], **fields)
    return native.decode_turn(create)


def test_credit_and_session_are_the_turns_own():
    plain = turn_of()
    assert (plain.session, plain.is_continued, plain.credit_chars) == (None, False, None)
    rich = turn_of(credit=0, session="s", **{"continue": True})
    assert (rich.session, rich.is_continued, rich.credit_chars) == ("s", True, 0)
    assert turn_of(session="").session is None


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"credit": -1}, "credit"),
        ({"credit": "1"}, "credit"),
        ({"credit": 2**31}, "credit"),
        ({"session": 1}, "session"),
        ({"session": "x" * 129}, "session"),
        ({"continue": 1, "session": "s"}, "continue"),
        ({"continue": True}, "session"),
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
    ],
)
def test_what_is_wrong_is_named(fields, param):
    raw = {"messages": [{"role": "user", "content": "x"}], **fields}
    with pytest.raises(InvalidRequest) as refused:
        native.decode_turn(native.TurnCreate("t", None, raw))
    assert refused.value.param == param


def test_a_replay_log_gives_what_came_after_and_says_when_it_cannot():
    log = ReplayLog(400)
    assert log.after(-1) == []
    assert log.after(0) is None
    for number in range(10):
        log.append(b"%d" % number)
    # Each costs 49 bytes, so eight stay.
    assert log.after(9) == []
    assert log.after(7) == [b"8", b"9"]
    assert log.after(1) == [b"%d" % number for number in range(2, 10)]
    assert log.after(0) is None
    assert log.after(10) is None
    log.append(b"x" * 1000)
    assert log.after(9) is None
    assert log.after(10) == []


def test_what_holds_nothing_is_not_deep():
    check_depth("x" * 1000)
    check_depth({})


LIMITS = {"max_turns": 2, "max_frame_bytes": 9}
REFUSED = InvalidRequest("turn", "No.", code="turn_in_use")
SERVER_FRAMES = [
    (
        native.hello(("m",), "headrace/1", LIMITS, "s"),
        '{"type":"hello","protocol":"headrace.v1","models":["m"],"server":"headrace/1",'
        '"limits":{"max_turns":2,"max_frame_bytes":9},"stream":"s"}',
    ),
    (
        native.hello(("m",), "headrace/1", LIMITS, None),
        '{"type":"hello","protocol":"headrace.v1","models":["m"],"server":"headrace/1",'
        '"limits":{"max_turns":2,"max_frame_bytes":9}}',
    ),
    (native.resumed("s", ("a", "b")), '{"type":"resumed","stream":"s","turns":["a","b"]}'),
    (native.goaway(1.5), '{"type":"goaway","deadline_s":1.5}'),
    (native.pong(native.Ping(None)), '{"type":"pong"}'),
    (native.pong(native.Ping("n")), '{"type":"pong","nonce":"n"}'),
    (
        native.connection_error(REFUSED, "a"),
        '{"type":"error","turn":"a","error":{"status":400,"message":"No.","type":"invalid_request_error",'
        '"param":"turn","code":"turn_in_use"}}',
    ),
    (
        native.lane_error("l", ("a", "b"), FailedDependency("No.")),
        '{"type":"error","lane":"l","turns":["a","b"],"error":{"status":424,"message":"No.",'
        '"type":"invalid_request_error","param":null,"code":"previous_turn_failed"}}',
    ),
    (
        native.turn_error("a", TooManyTurns("Full.", retry_after_s=2.5), 3),
        '{"type":"turn.error","turn":"a","seq":3,"error":{"status":429,"message":"Full.","type":"rate_limit_error",'
        '"param":null,"code":"rate_limit_exceeded","retry_after_s":2.5}}',
    ),
]


@pytest.mark.parametrize(("fields", "expected"), SERVER_FRAMES, ids=lambda value: str(value)[:30])
def test_frames_of_the_connection_are_byte_exact_and_the_same_in_msgpack(fields, expected):
    assert JSON.dump(fields).decode() == expected
    check_server_frame(json.loads(expected))
    assert MSGPACK.load(MSGPACK.dump(fields)) == json.loads(expected)


@pytest.mark.parametrize("error", [native.stream_not_found("s"), native.turn_not_found("t"), native.replay_gap("t", 4)])
def test_what_cannot_be_resumed_names_itself(error):
    assert error.status == 404
    assert ("'s'" in error.message) or ("'t'" in error.message)
    check_server_frame(json.loads(JSON.dump(native.turn_error("t", error))))


@pytest.mark.parametrize(
    "frame",
    [
        {"type": "resume", "stream": "s"},
        {"type": "resume", "stream": "s", "last_seq": {"t": -2}},
        {"type": "turn.credit", "turn": "t", "credit": 0},
        {"type": "turn.create", "turn": "t", "messages": [{"role": "user"}], "credit": -1},
        {"type": "turn.credit", "credit": 1},
    ],
)
def test_the_schema_refuses_what_the_server_does(frame):
    with pytest.raises(ValidationError):
        check_client_frame(frame)


@pytest.mark.parametrize(
    "scope", [{"lane": "l"}, {"turns": ["a"]}, {"lane": "l", "turns": []}, {"turn": "a", "lane": "l", "turns": ["a"]}]
)
def test_an_error_of_a_lane_names_the_lane_and_the_turns_that_it_ends(scope):
    frame = json.loads(JSON.dump(native.lane_error("l", ("a",), REFUSED)))
    check_server_frame(frame)
    with pytest.raises(ValidationError):
        check_server_frame({"type": "error", "error": frame["error"], **scope})


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "type"),
        ({"type": "turn.credit", "turn": "t"}, "credit"),
        ({"type": "resume", "stream": "s"}, "last_seq"),
        ({"type": "turn.cancel"}, "turn"),
    ],
)
def test_what_a_frame_lacks_is_named(fields, param):
    with pytest.raises(InvalidRequest) as refused:
        native.decode_frame(json.dumps(fields))
    assert refused.value.param == param


def test_a_binary_frame_is_none_of_json():
    with pytest.raises(InvalidRequest) as refused:
        native.decode_frame(b"{}")
    assert refused.value.code == "invalid_frame"
