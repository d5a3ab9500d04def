"""A whole assistant message, and how it is put together from events; knows nothing of transports."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import assert_never

from headrace.errors import HeadraceError
from headrace.events import (
    ContentDelta,
    Event,
    FinishReason,
    Outcome,
    ReasoningDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    TurnDone,
    TurnStarted,
    Usage,
)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a message. `arguments` is JSON text as received; read `outcome` before you trust it."""

    index: int
    id: str
    name: str
    arguments: str
    outcome: Outcome
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """The final message of a turn."""

    content: str
    reasoning: str
    tool_calls: tuple[ToolCall, ...]
    finish_reason: FinishReason
    usage: Usage | None
    model: str
    turn_id: str

    def to_chat(self) -> dict[str, object]:
        """The message as an entry of `messages` for the next turn.

        Reasoning goes back as `reasoning_content`: templates that drop old reasoning do so themselves, and the others
        need it for the prompt to keep its prefix.
        """
        entry: dict[str, object] = {"role": "assistant", "content": self.content}
        if self.reasoning:
            entry["reasoning_content"] = self.reasoning
        if self.tool_calls:
            entry["content"] = self.content or None
            entry["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self.tool_calls
            ]
        return entry


@dataclass(slots=True)
class _OpenCall:
    id: str
    name: str
    pieces: list[str] = field(default_factory=list)
    end: ToolCallEnd | None = None


class MessageBuilder:
    """Adds up the events of one turn. Each `add` is O(1); `message()` is O(text)."""

    def __init__(self) -> None:
        self._started: TurnStarted | None = None
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, _OpenCall] = {}
        self._done: TurnDone | None = None

    def add(self, event: Event) -> None:
        match event:
            case TurnStarted():
                self._started = event
            case ReasoningDelta(text=text):
                self._reasoning.append(text)
            case ContentDelta(text=text):
                self._content.append(text)
            case ToolCallStart(index=index, id=call_id, name=name):
                self._calls[index] = _OpenCall(call_id, name)
            case ToolCallDelta(index=index, arguments=piece):
                self._calls[index].pieces.append(piece)
            case ToolCallEnd(index=index):
                self._calls[index].end = event
            case TurnDone():
                self._done = event
            case _:
                assert_never(event)

    def call(self, index: int) -> ToolCall:
        """The call at `index`; one that has not ended counts as truncated."""
        open_call = self._calls[index]
        end = open_call.end or ToolCallEnd(index, "".join(open_call.pieces), "truncated", "the call did not end")
        return ToolCall(index, open_call.id, open_call.name, end.arguments, end.outcome, end.reason)

    def message(self) -> Message:
        """The whole message. Raises HeadraceError before `TurnDone` was added."""
        if self._done is None:
            raise HeadraceError("the turn has not ended: there is no final message yet", code="turn_running")
        return Message(
            content="".join(self._content),
            reasoning="".join(self._reasoning),
            tool_calls=tuple(self.call(index) for index in sorted(self._calls)),
            finish_reason=self._done.finish_reason,
            usage=self._done.usage,
            model=self._started.model if self._started else "",
            turn_id=self._started.turn_id if self._started else "",
        )
