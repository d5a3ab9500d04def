"""Whatever a model or an upstream writes, the Responses stream keeps its order and loses nothing."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.protocols.frames import TurnLabels
from gateway.protocols.responses_encoder import ResponsesEncoder
from gateway.protocols.responses_request import build_turn, decode_request
from gateway.types import TurnDone, TurnEvent, TurnStarted, Usage
from stream_parser import StreamParser, UpstreamNormalizer, collect
from tests.testkit.responses_order import check_order

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = [{"type": "function", "name": "weather", "parameters": SCHEMA}, {"type": "custom", "name": "note"}]
PIECES = st.sampled_from(
    [
        "<think>",
        "</think>",
        "<tool_call>\n",
        "\n</tool_call>",
        '{"name": "weather", "arguments": {"city": "Oslo"}}',
        '{"name": "note", "arguments": {"input": "a\\n\\u00e9\\"b"}}',
        '{"name": "no',
        "text ",
        "é\n",
        "<",
    ]
)
NAMES = st.sampled_from(["weather", "note"])
ARGUMENTS = st.sampled_from(['{"input"', ': "x"}', "{}"])
FRAGMENTS = st.fixed_dictionaries(
    {"index": st.integers(0, 2)},
    optional={
        "id": st.sampled_from(["call_a", "call_b"]),
        "function": st.fixed_dictionaries({}, optional={"name": NAMES, "arguments": ARGUMENTS}),
    },
)
DELTAS = st.fixed_dictionaries(
    {},
    optional={
        "content": st.sampled_from(["a", "b "]),
        "reasoning_content": st.sampled_from(["r"]),
        "tool_calls": st.lists(FRAGMENTS, max_size=2),
    },
)


def check(events):
    """Encodes a turn's events; what the response says is what the events said."""
    request = decode_request({"input": "Hi", "tools": TOOLS})
    turn = build_turn(request, (), request.input)
    encoder = ResponsesEncoder(TurnLabels("resp_1", "m", 1), turn, lambda: 2.0)
    items = [TurnStarted(), *(TurnEvent(0, event) for event in events), TurnDone(Usage(1, 1))]
    frames = [json.loads(frame.data) for item in items for frame in encoder.encode(item)]
    output = check_order(frames)["output"]

    message = collect(events)
    texts = [item["content"][0]["text"] for item in output if item["type"] == "message"]
    thoughts = [item["content"][0]["text"] for item in output if item["type"] == "reasoning"]
    assert ("".join(texts), "".join(thoughts)) == (message.content, message.reasoning)
    calls = [item for item in output if item["type"].endswith("_call")]
    assert [call["call_id"] for call in calls] == [call.id for call in message.tool_calls]
    for item, call in zip(calls, message.tool_calls, strict=True):
        assert item["type"] == ("custom_tool_call" if call.name == "note" else "function_call")
        assert item["type"] == "custom_tool_call" or item["arguments"] == call.arguments


@settings(max_examples=80, deadline=None)
@given(st.lists(PIECES, max_size=12), st.integers(1, 9), st.sampled_from(["stop", "length", "cancelled"]))
def test_any_text_of_a_model_at_any_cut(pieces, size, reason):
    text = "".join(pieces)
    chat_tools = [{"type": "function", "function": {"name": tool["name"]}} for tool in TOOLS]
    parser = StreamParser("hermes", chat_tools)
    events = [event for i in range(0, len(text), size) for event in parser.feed(text[i : i + size])]
    check([*events, *parser.finish(reason)])


@settings(max_examples=80, deadline=None)
@given(st.lists(DELTAS, max_size=10), st.booleans())
def test_any_chunks_of_an_upstream(deltas, done):
    normalizer = UpstreamNormalizer(tools=[])
    events = [event for delta in deltas for event in normalizer.feed({"choices": [{"index": 0, "delta": delta}]})]
    check([*events, *normalizer.finish(done=done)])
