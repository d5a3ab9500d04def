"""OpenAI Responses (streaming reference, 2026-11): turn items to events and to the response object. One encoder serves
event streams, the WebSocket and background responses.

Order: created, (queued,) in_progress; then each output item in the order of `output_index`, from its `added` to its
`done`; then exactly one of completed, incomplete and failed. Sequence numbers count all events from 0, keepalives
included. Item ids derive from the response's. A cancelled response ends with `incomplete` and status `cancelled`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, assert_never

from gateway.errors import GatewayError
from gateway.protocols.frames import Frame, TurnLabels, dumps
from gateway.protocols.responses_logprobs import TextLogprobs
from gateway.protocols.responses_output import (
    CustomCallItem,
    FunctionCallItem,
    ItemStatus,
    MessageItem,
    OpenItem,
    ReasoningItem,
    Unnumbered,
    item_events,
)
from gateway.protocols.responses_request import ID_PREFIX, ResponsesTurn, echoed_fields
from gateway.types import TokenLogprob, TurnDone, TurnEvent, TurnFailed, TurnItem, TurnStarted, TurnText, Usage
from stream_parser.events import ContentDelta, Event, Finish, ReasoningDelta, ToolCallDelta, ToolCallEnd, ToolCallStart

ResponseStatus: TypeAlias = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
_TERMINAL: dict[ResponseStatus, str] = {
    "completed": "response.completed",
    "incomplete": "response.incomplete",
    "cancelled": "response.incomplete",
    "failed": "response.failed",
}
# The codes that clients act on (stop, wait or compact); any other failure may be tried again.
_ERROR_CODES = ("rate_limit_exceeded", "context_length_exceeded", "insufficient_quota", "server_is_overloaded")


def usage_object(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def error_object(error: GatewayError) -> dict[str, str]:
    """What `response.error` says; its codes are fewer than an HTTP body's."""
    fallback = "server_error" if error.status >= 500 else "invalid_prompt"
    return {"code": error.code if error.code in _ERROR_CODES else fallback, "message": error.message}


def keepalive(number: int) -> Frame:
    """Of a response that has no events yet; they are numbered on from there."""
    return _numbered(Unnumbered("keepalive", b""), number)


def _numbered(event: Unnumbered, number: int) -> Frame:
    comma = b"," if event.fields else b""
    kind = event.kind.encode()
    data = b'{"type":"%b","sequence_number":%d%b%b}' % (kind, number, comma, event.fields)
    return Frame(data, event.kind)


class ResponsesEncoder:
    """wall_clock: Unix time in seconds, for `completed_at`. first_number: of the first event."""

    def __init__(
        self, labels: TurnLabels, turn: ResponsesTurn, wall_clock: Callable[[], float], first_number: int = 0
    ) -> None:
        self._turn = turn
        self._wall_clock = wall_clock
        self._item_suffix = labels.turn_id.removeprefix(ID_PREFIX)
        head = {"id": labels.turn_id, "object": "response", "created_at": labels.created_s}
        # Tools can be long and are the same in every event: they are laid down as bytes once.
        self._head = dumps({**head, **echoed_fields(turn, labels.model)})[:-1]
        self._next_number = first_number
        self._has_begun = False
        self._open: OpenItem | None = None
        self._open_call: int | None = None
        self._deferred: list[Event] = []
        self._logprobs = TextLogprobs()
        self._finish_reason: str | None = None
        self._state: dict[str, Any] = {"completed_at": None, "error": None, "incomplete_details": None}
        self._usage: dict[str, Any] | None = None
        self.status: ResponseStatus = "in_progress"
        self.output: list[dict[str, Any]] = []

    def encode(self, item: TurnItem) -> list[Frame]:
        return [self._frame(event) for event in self._events(item)]

    def keepalive(self) -> Frame:
        return self._frame(Unnumbered("keepalive", b""))

    def add_whole(self, opened: dict[str, Any], closed: dict[str, Any]) -> list[Frame]:
        """An output item that is not the model's, such as a compaction."""
        events = item_events(len(self.output), opened, closed)
        self.output.append(closed)
        return [self._frame(event) for event in events]

    def body(self) -> bytes:
        """The response as it stands now."""
        state = {"status": self.status, **self._state, "output": self.output, "usage": self._usage}
        return self._head + b"," + dumps(state)[1:]

    def _frame(self, event: Unnumbered) -> Frame:
        frame = _numbered(event, self._next_number)
        self._next_number += 1
        return frame

    def _events(self, item: TurnItem) -> list[Unnumbered]:
        match item:
            case TurnEvent(event=event, logprobs=logprobs):
                return self._on_event(event, logprobs)
            case TurnStarted():
                return self._begin()
            case TurnDone(usage=usage):
                return self._end_done(usage)
            case TurnFailed(error=error):
                return self._end_failed(error)
            case TurnText():
                raise AssertionError("responses are parsed")
            case _:
                assert_never(item)

    def _begin(self) -> list[Unnumbered]:
        self._has_begun = True
        if not self._turn.request.background:
            return [self._response("response.created"), self._response("response.in_progress")]
        self.status = "queued"
        events = [self._response("response.created"), self._response("response.queued")]
        self.status = "in_progress"
        return [*events, self._response("response.in_progress")]

    def _response(self, kind: str) -> Unnumbered:
        return Unnumbered(kind, b'"response":' + self.body())

    # The model's events

    def _on_event(self, event: Event, logprobs: tuple[TokenLogprob, ...]) -> list[Unnumbered]:
        self._logprobs.add(logprobs)
        return self._place(event)

    def _place(self, event: Event) -> list[Unnumbered]:
        if self._open_call is not None and self._belongs_to_later_item(event):
            # Items follow each other on the wire, also when an upstream writes two calls at once.
            self._deferred.append(event)
            return []
        match event:
            case ContentDelta(text=text):
                message, events = self._message()
                return [*events, *message.write(text, self._logprobs.take(text))]
            case ReasoningDelta(text=text):
                reasoning, events = self._reasoning()
                self._logprobs.skip(text)
                return [*events, *reasoning.write(text)]
            case ToolCallStart(index=index, id=call_id, name=name):
                return self._open_new_call(index, call_id, name)
            case ToolCallDelta(arguments=arguments):
                assert isinstance(self._open, (FunctionCallItem, CustomCallItem))
                self._logprobs.skip(arguments)
                return self._open.write(arguments)
            case ToolCallEnd(arguments=arguments, outcome=outcome):
                events = self._close_call(arguments, "incomplete" if outcome == "truncated" else "completed")
                return [*events, *self._replay_deferred()]
            case Finish(reason=reason):
                return self._finish(reason)
            case _:
                assert_never(event)

    def _belongs_to_later_item(self, event: Event) -> bool:
        if isinstance(event, (ToolCallDelta, ToolCallEnd)):
            return event.index != self._open_call
        return not isinstance(event, Finish)

    def _replay_deferred(self) -> list[Unnumbered]:
        waiting, self._deferred = self._deferred, []
        return [out for event in waiting for out in self._place(event)]

    def _message(self) -> tuple[MessageItem, list[Unnumbered]]:
        if isinstance(self._open, MessageItem):
            return self._open, []
        events = self._close_text("completed")
        message = MessageItem(self._next_id("msg"), len(self.output))
        self._open = message
        return message, [*events, *message.open()]

    def _reasoning(self) -> tuple[ReasoningItem, list[Unnumbered]]:
        if isinstance(self._open, ReasoningItem):
            return self._open, []
        events = self._close_text("completed")
        request = self._turn.request
        index = len(self.output)
        item = ReasoningItem(self._next_id("rs"), index, summarises=request.summarises, seals=request.seals)
        self._open = item
        return item, [*events, *item.open()]

    def _open_new_call(self, index: int, call_id: str, called: str) -> list[Unnumbered]:
        events = self._close_text("completed")
        name = self._turn.tools.find(called)
        kind = CustomCallItem if name.is_custom else FunctionCallItem
        call = kind(self._next_id("ctc" if name.is_custom else "fc"), len(self.output), call_id, name)
        self._open, self._open_call = call, index
        return [*events, *call.open()]

    def _next_id(self, prefix: str) -> str:
        return f"{prefix}_{self._item_suffix}{len(self.output):02x}"

    def _close_text(self, status: ItemStatus) -> list[Unnumbered]:
        if self._open is None:
            return []
        assert isinstance(self._open, (MessageItem, ReasoningItem))
        events, item = self._open.close(status)
        self._open = None
        self.output.append(item)
        return events

    def _close_call(self, arguments: str, status: ItemStatus) -> list[Unnumbered]:
        assert isinstance(self._open, (FunctionCallItem, CustomCallItem))
        events, item = self._open.close(arguments, status)
        self._open = self._open_call = None
        self.output.append(item)
        return events

    # The end

    def _finish(self, reason: str) -> list[Unnumbered]:
        self._finish_reason = reason
        events = self._close_text("completed" if reason in ("stop", "tool_calls") else "incomplete")
        if not self.output and reason in ("stop", "length"):
            # A model that says nothing has still answered; clients look for a message.
            _, opening = self._message()
            events += [*opening, *self._close_text("completed")]
        return events

    def _end_done(self, usage: Usage) -> list[Unnumbered]:
        self._usage = usage_object(usage)
        match self._finish_reason:
            case "length":
                self._state["incomplete_details"] = {"reason": "max_output_tokens"}
                return self._end("incomplete")
            case "cancelled":
                return self._end("cancelled")
            case "error":
                self._state["error"] = {"code": "server_error", "message": "The model's output broke off."}
                return self._end("failed")
            case _:
                return self._end("completed")

    def _end_failed(self, error: GatewayError) -> list[Unnumbered]:
        self._state["error"] = error_object(error)
        events: list[Unnumbered] = []
        if not self._has_begun:
            events = self._begin()
        self._open = None
        return [*events, *self._end("failed")]

    def _end(self, status: ResponseStatus) -> list[Unnumbered]:
        self.status = status
        if status == "completed":
            self._state["completed_at"] = int(self._wall_clock())
        return [self._response(_TERMINAL[status])]
