"""Log-probabilities beside a message's text: those of its own tokens, however text, markup and steps are cut."""

import json

import pytest

from gateway.generation import Generation, StopStrings
from gateway.pieces import TextPiece
from gateway.protocols.frames import TurnLabels
from gateway.protocols.responses_encoder import ResponsesEncoder
from gateway.protocols.responses_logprobs import TextLogprobs
from gateway.protocols.responses_request import build_turn, decode_request
from gateway.types import SamplingParams, TokenLogprob, TurnDone, TurnStarted, Usage
from tests.testkit.gateway_kit import prepared, weather_tool
from tests.testkit.responses_order import check_order

TEXT = (
    "<think>abc def</think>Hello you "
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Hello"}}\n</tool_call> tail <b>Hello</b>'
)


def entries(*tokens):
    return [TokenLogprob(token, -float(i), (), len(token)) for i, token in enumerate(tokens)]


def response_of(tokens, per_step):
    request = decode_request({"input": "Hi", "include": ["message.output_text.logprobs"]})
    encoder = ResponsesEncoder(TurnLabels("resp_1", "m", 1), build_turn(request, (), request.input), lambda: 2.0)
    generation = Generation(prepared(tools=[weather_tool()], params=SamplingParams(logprobs=0)), StopStrings())
    items = [TurnStarted()]
    for i in range(0, len(tokens), per_step):
        step = tokens[i : i + per_step]
        reason = "stop" if i + per_step >= len(tokens) else None
        items += generation.feed(
            TextPiece(0, "".join(step), logprobs=tuple(entries(*step)), num_tokens=len(step), finish_reason=reason)
        )
    frames = [frame for item in [*items, TurnDone(Usage(1, 1))] for frame in encoder.encode(item)]
    events = [json.loads(frame.data) for frame in frames]
    return events, check_order(events)


@pytest.mark.parametrize("size", [1, 3, 7], ids="tokens of {}".format)
@pytest.mark.parametrize("per_step", [1, 2, 5], ids="{} a step".format)
def test_tokens_of_markup_are_listed_nowhere_and_those_of_the_text_in_order(size, per_step):
    tokens = [TEXT[i : i + size] for i in range(0, len(TEXT), size)]
    events, response = response_of(tokens, per_step)
    parts = [part for item in response["output"] if item["type"] == "message" for part in item["content"]]
    assert [part["text"].strip() for part in parts] == ["Hello you", "tail <b>Hello</b>"]
    for part in parts:
        # Blanks before a call may go out after it, when it is not known any more which tokens they were.
        assert "".join(entry["token"] for entry in part["logprobs"]).strip() == part["text"].strip()
    listed = [entry for event in events if event["type"].endswith("text.delta") for entry in event.get("logprobs", ())]
    assert listed == [entry for part in parts for entry in part["logprobs"]]


def test_a_character_of_several_tokens_has_them_all():
    reader = TextLogprobs()
    smile = [TokenLogprob("\ufffd", -1.0), TokenLogprob("\ufffd", -2.0, (), 1), TokenLogprob("!", -3.0, (), 1)]
    reader.add([*entries("</think>"), *smile])
    assert reader.take("🙂!") == smile


def test_what_is_no_text_of_the_message_does_not_pile_up():
    reader = TextLogprobs()
    for _ in range(1000):
        reader.add(entries("a", "b"))
        reader.skip("something else")
    reader.add(entries("Hello"))
    assert [entry.token for entry in reader.take("Hello")] == ["Hello"]
    assert reader.take("a") == []
