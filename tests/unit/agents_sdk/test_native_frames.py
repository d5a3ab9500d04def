import contextlib
import json

import pytest
from headrace import ContentDelta, HeadraceError, InvalidRequestError, ProtocolError, TurnDone, TurnStarted
from headrace.native_frames import (
    ErrorFrame,
    GoAway,
    Hello,
    OtherFrame,
    TurnFrame,
    cancel_frame,
    create_frame,
    decode_frame,
)
from headrace.request import turn_request
from hypothesis import given
from hypothesis import strategies as st


def decode(**frame):
    return decode_frame(json.dumps(frame))


def request(**sampling):
    return turn_request("hi", model=None, tools=None, tool_choice=None, lane="left", sampling=sampling)


def test_a_turns_frame_has_its_fields_flat():
    assert json.loads(create_frame("t1", "m", request(seed=1))) == {
        "type": "turn.create",
        "turn": "t1",
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "lane": "left",
        "seed": 1,
    }
    assert json.loads(cancel_frame("t1")) == {"type": "turn.cancel", "turn": "t1"}


def test_extra_fields_can_not_change_what_a_frame_is():
    frame = json.loads(create_frame("t1", "m", request(extra={"type": "ping", "turn": "x", "seed": 2})))
    assert (frame["type"], frame["turn"], frame["seed"]) == ("turn.create", "t1", 2)


def test_what_json_can_not_carry_is_refused():
    with pytest.raises(ValueError, match="JSON"):
        create_frame("t1", "m", request(temperature=float("nan")))
    with pytest.raises(TypeError):
        create_frame("t1", "m", request(extra={"a": object()}))


def test_frames_are_read():
    hello = decode(type="hello", protocol="headrace.v1", models=["a"], server="headrace/1", limits={"new": 1})
    assert hello == Hello(("a",), "headrace/1")
    created = decode(type="turn.created", turn="t", seq=0, id="turn_1", model="m", created=5)
    assert created == TurnFrame("t", 0, TurnStarted("turn_1", "m", 5))
    assert decode(type="content.delta", turn="t", seq=1, text="a") == TurnFrame("t", 1, ContentDelta("a"))
    done = decode(type="turn.done", turn="t", seq=2, finish_reason="stop")
    assert done == TurnFrame("t", 2, TurnDone("stop", None))
    assert decode(type="turn.later", turn="t", seq=3) == TurnFrame("t", 3, None)
    assert decode(type="pong") == OtherFrame()
    assert decode(type="goaway", deadline_s=1.0) == GoAway()
    assert decode(type="later") == OtherFrame()
    error = decode(type="error", error={"status": 400, "message": "m"})
    assert isinstance(error, ErrorFrame)
    assert error.ended == ()
    lane = decode(type="error", lane="l", turns=["a", "b"], error={"status": 424, "message": "m"})
    assert isinstance(lane, ErrorFrame)
    assert lane.ended == ("a", "b")
    assert decode(type="error", lane="l", turns=3, error={"status": 424, "message": "m"}).ended == ()
    assert isinstance(error.error, InvalidRequestError)


@pytest.mark.parametrize(
    "frame",
    [
        {},
        {"type": None},
        {"type": "hello", "protocol": "headrace.v2", "models": []},
        {"type": "hello", "protocol": "headrace.v1", "models": "a"},
        {"type": "content.delta", "turn": "t", "text": "a"},
        {"type": "content.delta", "turn": 1, "seq": 0, "text": "a"},
        {"type": "content.delta", "turn": "t", "seq": 0},
        {"type": "tool_call.start", "turn": "t", "seq": 0, "index": "0", "id": "i", "name": "n"},
        {"type": "tool_call.end", "turn": "t", "seq": 0, "index": 0, "arguments": "{}", "outcome": "fine"},
        {"type": "turn.done", "turn": "t", "seq": 0, "finish_reason": "bored"},
        {"type": "turn.done", "turn": "t", "seq": 0, "finish_reason": {}},
    ],
)
def test_a_frame_against_the_protocol_raises(frame):
    with pytest.raises(ProtocolError):
        decode(**frame)


@given(
    st.dictionaries(
        st.sampled_from(["turn", "seq", "text", "index", "outcome", "error", "usage", "finish_reason", "models"]),
        st.none() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2) | st.just({}),
    ),
    st.sampled_from(
        ["hello", "error", "turn.created", "turn.done", "turn.error", "content.delta", "tool_call.end", "x"]
    ),
)
def test_no_frame_whatever_raises_anything_but_errors_of_ours(fields, kind):
    with contextlib.suppress(HeadraceError):
        decode(type=kind, **fields)
