"""What ends a turn beside the model, and how it says so: the stop string that matched, the first call."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.generation import Generation, StopStrings
from gateway.pieces import TextPiece
from gateway.types import Prepared, TurnEvent
from stream_parser import collect
from stream_parser.events import Finish
from tests.testkit.gateway_kit import prepared, weather_tool
from tests.testkit.parser_streams import tool

FIXTURES = Path(__file__).parents[3] / "fixtures" / "parser"
CALL = '<tool_call>\n{{"name": "weather", "arguments": {{"city": "{}"}}}}\n</tool_call>'
TWO_CALLS = f"Both.\n{CALL.format('Oslo')}\n{CALL.format('Rome')}\nDone."


def run(text: str, stop: StopStrings, num_chars: int, prompt: Prepared | None = None) -> list[TurnEvent]:
    """All items of one choice, fed in pieces of so many characters until it is done."""
    generation = Generation(prompt or prepared(tools=[weather_tool()]), stop)
    pieces = [text[i : i + num_chars] for i in range(0, len(text), num_chars)]
    items = []
    for i, piece in enumerate(pieces):
        if generation.is_done:
            break
        reason = "stop" if i == len(pieces) - 1 else None
        items += generation.feed(TextPiece(0, piece, finish_reason=reason))
    assert generation.is_done
    return items


@pytest.mark.parametrize("num_chars", [1, 3, 1000])
def test_the_stop_string_that_matched_is_on_the_finish_and_nowhere_else(num_chars):
    items = run("One. Two. END Three.", StopStrings(("XX", "END")), num_chars)
    assert [item.stop for item in items] == [None] * (len(items) - 1) + ["END"]
    assert items[-1].event == Finish("stop")


@pytest.mark.parametrize("num_chars", [1, 3, 1000])
def test_without_a_match_no_stop_string_is_named(num_chars):
    assert {item.stop for item in run("One.", StopStrings(("END",)), num_chars)} == {None}


@pytest.mark.parametrize("num_chars", [1, 3, 1000])
def test_a_turn_can_end_with_its_first_call(num_chars):
    events = [item.event for item in run(TWO_CALLS, StopStrings(after_call=True), num_chars)]
    message = collect(events)
    assert [call.arguments for call in message.tool_calls] == ['{"city": "Oslo"}']
    assert (message.content, message.finish_reason) == ("Both.", "tool_calls")
    assert [event for event in events if isinstance(event, Finish)] == [events[-1]]


@pytest.mark.parametrize("dialect", ["deepseek_v3", "hermes", "kimi_k2", "llama3_json", "pythonic", "qwen3_coder"])
@pytest.mark.parametrize("num_chars", [5, 100_000])
def test_no_dialect_lets_a_second_call_out(dialect, num_chars):
    """Of the parser's own fixtures, those with several calls."""
    cases = map(json.loads, (FIXTURES / dialect / "cases.jsonl").read_text().splitlines())
    several = [case for case in cases if len(case.get("calls", ())) > 1]
    assert several
    for case in several:
        tools = [tool(call["name"], **{name: {} for name in call["arguments"]}) for call in case["calls"]]
        prompt = replace(prepared(dialect=dialect, tools=tools), prompt_tail=case.get("prompt_tail", ""))
        events = [item.event for item in run(case["text"], StopStrings(after_call=True), num_chars, prompt)]
        message = collect(events)
        assert [call.name for call in message.tool_calls] == [case["calls"][0]["name"]], case["what"]
        assert events[-1] == Finish("tool_calls")


@pytest.mark.parametrize("num_chars", [1, 1000])
def test_a_turn_without_a_call_ends_by_itself(num_chars):
    events = [item.event for item in run("Just text.", StopStrings(after_call=True), num_chars)]
    assert (collect(events).content, events[-1]) == ("Just text.", Finish("stop"))


def test_a_call_that_was_cut_off_says_length():
    generation = Generation(prepared(tools=[weather_tool()]), StopStrings(after_call=True))
    items = generation.feed(TextPiece(0, CALL.format("Oslo")[:50], finish_reason="length"))
    assert collect([item.event for item in items]).finish_reason == "length"
