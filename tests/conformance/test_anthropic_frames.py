"""Turn items to the events of a Messages stream, byte for byte, and to the body of an answer that is not streamed."""

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.protocols.anthropic_messages import ANTHROPIC_MESSAGES
from gateway.protocols.frames import TurnLabels, sse
from tests.testkit.anthropic_order import check_message, check_messages_stream
from tests.testkit.turn_items import turn_items

LABELS = TurnLabels("msg_1", "m", 1700000000, "req_1")
LINES = (Path(__file__).parents[2] / "fixtures" / "protocols" / "anthropic_messages.jsonl").read_text().splitlines()
CASES = [pytest.param(case, id=case["name"]) for case in map(json.loads, LINES)]
WHOLE_CASES = [case for case in CASES if "body" in case.values[0]]


def frames_of(case: dict[str, Any]) -> list[str]:
    encoder = ANTHROPIC_MESSAGES.encoder(LABELS, ANTHROPIC_MESSAGES.decode(case["request"]))
    return [sse(frame).decode() for item in turn_items(case["items"]) for frame in encoder.encode(item)]


@pytest.mark.parametrize("case", CASES)
def test_streamed_frames_are_byte_exact(case):
    assert frames_of(case) == case["sse"]


@pytest.mark.parametrize("case", CASES)
def test_a_frame_is_an_event_line_and_a_data_line(case):
    for frame in frames_of(case):
        assert len(frame.splitlines()) == 3
        assert frame.startswith("event: ")
        assert frame.endswith("\n\n")


@pytest.mark.parametrize("case", CASES)
def test_the_stream_keeps_the_order_rules(case):
    end = check_messages_stream("".join(case["sse"]))
    assert (end["type"] == "error") == ("body" not in case)


@pytest.mark.parametrize("case", WHOLE_CASES)
def test_the_gathered_body_is_exact(case):
    collector = ANTHROPIC_MESSAGES.collector(LABELS, ANTHROPIC_MESSAGES.decode(case["request"]))
    for item in turn_items(case["items"]):
        collector.add(item)
    body = json.loads(collector.body())
    assert body == case["body"]
    check_message(body)


@pytest.mark.parametrize("case", [case for case in WHOLE_CASES if "no object" not in case.values[0]["name"]])
def test_streamed_and_whole_answers_are_the_same_message(case):
    streamed = check_messages_stream("".join(case["sse"]))
    for block, whole in zip(streamed["content"], case["body"]["content"], strict=True):
        if block["type"] == "tool_use" and isinstance(block["input"], str):
            # Cut off: the stream has what came, the body what can be read of it.
            block["input"] = whole["input"]
    assert streamed == case["body"]


GOOD = next(case.values[0]["sse"] for case in CASES if case.id == "text, then two parallel calls")


@pytest.mark.parametrize("left_out", range(len(GOOD)), ids=lambda i: f"{i} {GOOD[i].splitlines()[0]}")
def test_the_order_rules_miss_any_event_that_is_left_out(left_out):
    with pytest.raises((AssertionError, ValueError)):
        check_messages_stream("".join(GOOD[:left_out] + GOOD[left_out + 1 :]))


@pytest.mark.parametrize("again", [i for i, frame in enumerate(GOOD) if "text_delta" not in frame])
def test_the_order_rules_see_any_event_that_comes_twice(again):
    with pytest.raises((AssertionError, ValueError, IndexError)):
        check_messages_stream("".join(GOOD[: again + 1] + GOOD[again:]))


def test_a_ping_may_come_anywhere_but_after_the_end():
    ping = 'event: ping\ndata: {"type": "ping"}\n\n'
    for i in range(len(GOOD)):
        check_messages_stream("".join([*GOOD[:i], ping, *GOOD[i:]]))
    with pytest.raises(AssertionError, match="after the end"):
        check_messages_stream("".join([*GOOD, ping]))
