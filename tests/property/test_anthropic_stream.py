"""Whatever a model writes and however it is cut, the Messages stream keeps its order and equals the whole answer."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.generation import Generation, StopStrings
from gateway.pieces import TextPiece
from gateway.protocols.anthropic_messages import ANTHROPIC_MESSAGES
from gateway.protocols.frames import TurnLabels, sse
from gateway.types import ChatTurn, SamplingParams, TurnDone, TurnItem, TurnStarted
from tests.testkit.anthropic_order import check_message, check_messages_stream
from tests.testkit.gateway_kit import prepared, weather_tool

LABELS = TurnLabels("msg_1", "m", 0, "req_1")
TURN = ChatTurn("m", (), SamplingParams())
PARTS = (
    "<think>",
    "</think>",
    "<tool_call>\n",
    '{"name": "weather", "arguments": ',
    '{"city": "Os\\u00f8lo"}}',
    "\n</tool_call>",
    "[1, 2]}",
    '"',
    "{",
    "}",
    "\n",
    "Hello ",
    "END",
    "ä\u2028",
)


def turn_items(parts: list[str], num_chars: int, reason: str, after_call: bool) -> list[TurnItem]:
    text = "".join(parts)
    generation = Generation(prepared(tools=[weather_tool()]), StopStrings(("END",), after_call=after_call))
    items: list[TurnItem] = [TurnStarted(7)]
    pieces = [text[i : i + num_chars] for i in range(0, len(text), num_chars)] or [""]
    for i, piece in enumerate(pieces):
        if not generation.is_done:
            items += generation.feed(TextPiece(0, piece, finish_reason=reason if i == len(pieces) - 1 else None))
    return [*items, TurnDone(generation.usage)]


@settings(max_examples=100, deadline=None)
@given(
    parts=st.lists(st.sampled_from(PARTS) | st.text(max_size=5), max_size=14),
    num_chars=st.integers(1, 40),
    reason=st.sampled_from(["stop", "length"]),
    after_call=st.booleans(),
)
def test_any_output_gives_an_ordered_stream_and_the_same_message_whole(parts, num_chars, reason, after_call):
    encoder = ANTHROPIC_MESSAGES.encoder(LABELS, TURN)
    collector = ANTHROPIC_MESSAGES.collector(LABELS, TURN)
    frames = []
    for item in turn_items(parts, num_chars, reason, after_call):
        frames += [sse(frame).decode() for frame in encoder.encode(item)]
        collector.add(item)
    streamed, whole = check_messages_stream("".join(frames)), json.loads(collector.body())
    check_message(whole)
    assert whole["usage"] == streamed["usage"]
    assert (whole["stop_reason"], whole["stop_sequence"]) == (streamed["stop_reason"], streamed["stop_sequence"])
    for block, again in zip(streamed["content"], whole["content"], strict=True):
        if block["type"] != "tool_use":
            assert block == again
