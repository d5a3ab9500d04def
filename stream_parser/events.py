"""The events a parser emits and the message they add up to.

Knows nothing of dialects, wire formats or clocks. Events are values in stream order: the text of all
`ReasoningDelta`s joined is the reasoning, that of all `ContentDelta`s the visible answer, and the deltas of one call
joined are its arguments. Nothing an event has said is taken back by a later one, and exactly one `Finish` is the last.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias, assert_never

Outcome: TypeAlias = Literal["ok", "repaired", "invalid", "truncated"]
FinishReason: TypeAlias = Literal["stop", "length", "tool_calls", "cancelled", "error"]


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ContentDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    """Once a call, with the whole name; `index` counts 0, 1, 2 … within the message."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of JSON text; never half an escape and never a lone surrogate."""

    index: int
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolCallEnd:
    """At the call's own end. `arguments` equals the call's deltas joined; `reason` is "" when `outcome` is "ok"."""

    index: int
    arguments: str
    outcome: Outcome
    reason: str


@dataclass(frozen=True, slots=True)
class Finish:
    reason: FinishReason


Event: TypeAlias = ReasoningDelta | ContentDelta | ToolCallStart | ToolCallDelta | ToolCallEnd | Finish


@dataclass(frozen=True, slots=True)
class ToolCall:
    index: int
    id: str
    name: str
    arguments: str
    outcome: Outcome
    reason: str


@dataclass(frozen=True, slots=True)
class Message:
    reasoning: str
    content: str
    tool_calls: tuple[ToolCall, ...]
    finish_reason: FinishReason | None


class _OpenCall:
    __slots__ = ("arguments", "id", "name", "outcome", "reason")

    def __init__(self, call_id: str, name: str) -> None:
        self.id = call_id
        self.name = name
        self.arguments: list[str] = []
        self.outcome: Outcome = "truncated"  # until its end arrives
        self.reason = ""


def collect(events: Iterable[Event]) -> Message:
    """Add events up; a stream that is still running gives what is known so far. O(total text)."""
    reasoning: list[str] = []
    content: list[str] = []
    calls: list[_OpenCall] = []
    finish_reason: FinishReason | None = None

    for event in events:
        match event:
            case ReasoningDelta(text=text):
                reasoning.append(text)
            case ContentDelta(text=text):
                content.append(text)
            case ToolCallStart(id=call_id, name=name):
                calls.append(_OpenCall(call_id, name))
            case ToolCallDelta(index=index, arguments=piece):
                calls[index].arguments.append(piece)
            case ToolCallEnd(index=index, arguments=whole, outcome=outcome, reason=reason):
                calls[index].arguments = [whole]
                calls[index].outcome, calls[index].reason = outcome, reason
            case Finish(reason=finish):
                finish_reason = finish
            case _:
                assert_never(event)

    tool_calls = tuple(
        ToolCall(index, call.id, call.name, "".join(call.arguments), call.outcome, call.reason)
        for index, call in enumerate(calls)
    )
    return Message("".join(reasoning), "".join(content), tool_calls, finish_reason)
