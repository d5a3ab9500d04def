"""What the server writes, byte for byte, is what the SDK reads: the fixtures of the gateway's encoders, decoded."""

import json
from pathlib import Path

import pytest
from headrace import (
    APIError,
    ContentDelta,
    ReasoningDelta,
    ServerError,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    TurnDone,
    TurnStarted,
)
from headrace.chat_chunks import DONE, ChatChunkDecoder, SSEData
from headrace.message import MessageBuilder
from headrace.native_frames import cancel_frame, create_frame, decode_frame
from headrace.request import turn_request

from tests.testkit.native_schema import check_client_frame

FIXTURES = Path(__file__).parents[2] / "fixtures" / "protocols"


def cases(name):
    lines = (FIXTURES / f"{name}.jsonl").read_text().rstrip("\n").split("\n")
    return [pytest.param(case, id=case["name"]) for case in map(json.loads, lines)]


def expected_events(items):
    """The events of a turn, as the fixture tells them; usage aside."""
    reason = next((item["reason"] for item in items if item["item"] == "finish"), "cancelled")
    for item in items:
        if item.get("choice", 0) != 0:
            continue
        match item["item"]:
            case "started":
                yield TurnStarted
            case "content":
                yield ContentDelta(item["text"])
            case "reasoning":
                yield ReasoningDelta(item["text"])
            case "call":
                yield ToolCallStart(item["index"], item["id"], item["name"])
            case "arguments":
                yield ToolCallDelta(item["index"], item["text"])
            case "call_end":
                yield ToolCallEnd(item["index"], item["text"], item.get("outcome", "ok"), item.get("reason"))
            case "done":
                yield (TurnDone, reason, tuple(item["usage"][:2]))
            case "failed":
                yield (ServerError, item["message"])


def comparable(event):
    match event:
        case TurnStarted():
            return TurnStarted
        case TurnDone(finish_reason=reason, usage=usage):
            return (TurnDone, reason, (usage.prompt_tokens, usage.completion_tokens))
        case APIError():
            return (type(event), event.message)
        case _:
            return event


@pytest.mark.parametrize("case", cases("native"))
def test_native_frames_are_the_events_they_were_made_of(case):
    frames = [decode_frame(text) for text in case["frames"]]
    assert [frame.seq for frame in frames] == list(range(len(frames)))
    assert [comparable(frame.body) for frame in frames] == list(expected_events(case["items"]))


def read_sse(case):
    """The events, and the error at their end where there is one."""
    parser, decoder, events = SSEData(), ChatChunkDecoder(), []
    data = [data for text in case["sse"] for data in parser.feed(text.encode())]
    for line in data:
        if line == DONE:
            return events + list(decoder.finish())
        try:
            events += decoder.feed(line)
        except APIError as error:
            return [*events, error]
    raise AssertionError("the stream ends without [DONE] and without an error")


@pytest.mark.parametrize("case", cases("openai_chat"))
def test_chat_completion_streams_are_the_message_they_were_made_of(case):
    events = read_sse(case)
    expected = list(expected_events(case["items"]))
    if isinstance(events[-1], APIError):
        assert comparable(events[-1]) == expected[-1]
        return
    read, meant = MessageBuilder(), MessageBuilder()
    for event in events:
        read.add(event)
    for event in expected:
        if isinstance(event, ContentDelta | ReasoningDelta | ToolCallStart | ToolCallDelta | ToolCallEnd):
            meant.add(event)
    meant.add(events[-1])
    got, wanted = read.message(), meant.message()
    assert (got.content, got.reasoning) == (wanted.content, wanted.reasoning)
    # Chunks say nothing of why a call is cut; that it is cut they show.
    calls = [(call.id, call.name, call.arguments, call.outcome) for call in got.tool_calls]
    assert calls == [(call.id, call.name, call.arguments, call.outcome) for call in wanted.tool_calls]


def test_the_frames_that_the_sdk_sends_are_frames_of_the_protocol():
    request = turn_request(
        "hi",
        model=None,
        tools=[{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
        tool_choice="auto",
        lane="left",
        sampling={"temperature": 0.5, "max_tokens": 5, "stop": ["x"], "seed": 1, "logit_bias": {"5": 1.0}},
    )
    check_client_frame(json.loads(create_frame("t1", "m", request)))
    check_client_frame(json.loads(cancel_frame("t1")))
