"""The events of a turn and of an agent's run: frozen values in closed unions; knows nothing of wire formats.

A turn's events come in stream order and nothing is retracted: the `ContentDelta` texts joined are the visible text, the
`ToolCallDelta` pieces of one index joined are that call's arguments. `TurnStarted` is always first, `TurnDone` last; a
turn that fails raises instead of ending.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

FinishReason: TypeAlias = Literal["stop", "length", "tool_calls", "cancelled"]
Outcome: TypeAlias = Literal["ok", "repaired", "invalid", "truncated"]

FINISH_REASONS: frozenset[str] = frozenset(get_args(FinishReason))
OUTCOMES: frozenset[str] = frozenset(get_args(Outcome))


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a turn; `cached_tokens` is the part of the prompt that was not computed again."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.total_tokens + other.total_tokens,
            self.cached_tokens + other.cached_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
        )


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """The server accepted the turn. `created_s`: wall clock of the server, Unix seconds."""

    turn_id: str
    model: str
    created_s: int


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ContentDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    """Once a call, with its whole name; indexes count 0, 1, 2 within the turn."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of JSON text."""

    index: int
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolCallEnd:
    """The call is whole: `arguments` is all of its text. It comes at the call's own end, not at the turn's.

    `outcome` says how far to trust it: "ok" and "repaired" (`reason` says how) are JSON objects; "invalid" and
    "truncated" are passed on as the model left them and are not to be executed.
    """

    index: int
    arguments: str
    outcome: Outcome
    reason: str | None


@dataclass(frozen=True, slots=True)
class TurnDone:
    """The turn ended. `usage` is None where the server did not tell it (a turn cancelled over SSE)."""

    finish_reason: FinishReason
    usage: Usage | None


Event: TypeAlias = TurnStarted | ReasoningDelta | ContentDelta | ToolCallStart | ToolCallDelta | ToolCallEnd | TurnDone
