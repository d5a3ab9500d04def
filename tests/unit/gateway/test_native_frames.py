"""Client frames of the native protocol, decoded without a socket."""

import json

import pytest

from gateway.errors import InvalidRequest
from gateway.protocols import native
from gateway.protocols.json_body import check_depth
from gateway.replay import ReplayLog
from tests.testkit.native_schema import check_client_frame


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
