"""Events are values, and add up to a message at any time."""

from __future__ import annotations

import dataclasses
import itertools
from typing import get_args

import pytest

from stream_parser import collect
from stream_parser.events import (
    ContentDelta,
    Event,
    Finish,
    Message,
    ReasoningDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)

STREAM: list[Event] = [
    ReasoningDelta("I "),
    ReasoningDelta("see."),
    ContentDelta("Both"),
    ToolCallStart(0, "a", "ping"),
    ToolCallStart(1, "b", "pong"),
    ToolCallDelta(1, '{"n":'),
    ToolCallDelta(0, "{"),
    ToolCallDelta(1, " 1}"),
    ToolCallEnd(1, '{"n": 1}', "repaired", "quotes"),
    ContentDelta("."),
    ToolCallDelta(0, "}"),
    ToolCallEnd(0, "{}", "ok", ""),
    Finish("tool_calls"),
]


def test_events_add_up_to_the_message() -> None:
    assert collect(STREAM) == Message(
        reasoning="I see.",
        content="Both.",
        tool_calls=(
            ToolCall(0, "a", "ping", "{}", "ok", ""),
            ToolCall(1, "b", "pong", '{"n": 1}', "repaired", "quotes"),
        ),
        finish_reason="tool_calls",
    )


def test_a_stream_without_events_is_an_empty_message() -> None:
    assert collect([]) == Message("", "", (), None)


def test_a_stream_that_still_runs_gives_what_is_known_so_far() -> None:
    assert collect(STREAM[:7]).tool_calls == (
        ToolCall(0, "a", "ping", "{", "truncated", ""),
        ToolCall(1, "b", "pong", '{"n":', "truncated", ""),
    )
    messages = [collect(STREAM[:end]) for end in range(len(STREAM) + 1)]
    for before, after in itertools.pairwise(messages):
        assert after.content.startswith(before.content)
        assert after.reasoning.startswith(before.reasoning)
        assert [call.id for call in after.tool_calls][: len(before.tool_calls)] == [c.id for c in before.tool_calls]
    assert [m.finish_reason for m in messages[:-1]] == [None] * len(STREAM)


def test_the_end_of_a_call_has_the_last_word_on_its_arguments() -> None:
    message = collect([ToolCallStart(0, "a", "f"), ToolCallEnd(0, '{"a": 1}', "ok", "")])
    assert message.tool_calls[0].arguments == '{"a": 1}'


def test_something_else_than_an_event_is_a_bug_of_the_caller() -> None:
    with pytest.raises(AssertionError):
        collect([ContentDelta("a"), "b"])  # type: ignore[list-item]


@pytest.mark.parametrize("event", STREAM, ids=lambda e: type(e).__name__)
def test_events_are_values_that_nobody_can_change(event: Event) -> None:
    assert isinstance(event, get_args(Event))
    assert event == dataclasses.replace(event)
    assert hash(event) == hash(dataclasses.replace(event))
    for field in dataclasses.fields(event):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(event, field.name, None)
    assert not hasattr(event, "__dict__")
