"""The frames of the native WebSocket protocol, version 1: JSON text in, values out; knows nothing of sockets.

The protocol is specified in docs/protocols.md ("The native protocol"). Unknown fields and unknown frame types are
accepted, so that a newer server can talk to an older SDK; a field that is missing or of the wrong type is an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, cast

from headrace.errors import APIError, ProtocolError, api_error
from headrace.events import (
    OUTCOMES,
    ContentDelta,
    Event,
    Outcome,
    ReasoningDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    TurnDone,
    TurnStarted,
)
from headrace.request import TurnRequest
from headrace.wire_fields import Fields, finish_reason, int_field, text_field, usage

PROTOCOL = "headrace.v1"
PATH = "/v1/stream"


@dataclass(frozen=True, slots=True)
class Hello:
    """First frame of a connection. `stream` names it, for a client that loses the socket and comes back."""

    models: tuple[str, ...]
    server: str
    stream: str | None = None


@dataclass(frozen=True, slots=True)
class GoAway:
    """The server ends soon and takes no new turns; those that run may end."""


@dataclass(frozen=True, slots=True)
class TurnFrame:
    """A frame of one turn. `body` None: a frame type that this version does not know, but which counts in `seq`."""

    turn: str
    seq: int
    body: Event | APIError | None


@dataclass(frozen=True, slots=True)
class ErrorFrame:
    """An error of the connection, or of a lane; then `ended` are the turns that it ends."""

    error: APIError
    ended: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OtherFrame:
    """A pong, or a connection-level frame that this version does not know."""


Frame: TypeAlias = Hello | GoAway | TurnFrame | ErrorFrame | OtherFrame


def create_frame(turn: str, model: str, request: TurnRequest) -> str:
    """Raises TypeError or ValueError where the request holds something that JSON can't carry."""
    lane = {} if request.lane is None else {"lane": request.lane}
    credit = {} if request.credit is None else {"credit": request.credit}
    frame = {**request.fields, **lane, **credit, "type": "turn.create", "turn": turn, "model": model}
    return json.dumps(frame, allow_nan=False)


def cancel_frame(turn: str) -> str:
    return json.dumps({"type": "turn.cancel", "turn": turn})


def credit_frame(turn: str, credit: int) -> str:
    return json.dumps({"type": "turn.credit", "turn": turn, "credit": credit})


def resume_frame(stream: str, last_seq: Mapping[str, int]) -> str:
    return json.dumps({"type": "resume", "stream": stream, "last_seq": last_seq})


def decode_frame(text: str) -> Frame:
    """Raises ProtocolError for what is no frame of the protocol."""
    try:
        frame = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a frame is no JSON: {error}") from error
    if not isinstance(frame, dict):
        raise ProtocolError("a frame is no JSON object")

    kind = text_field(frame, "type")
    if kind == "hello":
        return _hello(frame)
    if kind == "goaway":
        return GoAway()
    if kind == "error":
        ended = frame.get("turns") if "lane" in frame else None
        turns = tuple(turn for turn in ended if isinstance(turn, str)) if isinstance(ended, list) else ()
        return ErrorFrame(api_error(frame.get("error")), turns)
    if "turn" not in frame:
        return OtherFrame()
    return TurnFrame(text_field(frame, "turn"), int_field(frame, "seq"), _turn_body(kind, frame))


def _hello(frame: Fields) -> Hello:
    if frame.get("protocol") != PROTOCOL:
        raise ProtocolError(f"the server speaks {frame.get('protocol')!r}; this SDK speaks {PROTOCOL!r}")
    models = frame.get("models")
    if not isinstance(models, list):
        raise ProtocolError("hello: models is no list")
    stream = frame.get("stream")
    return Hello(
        tuple(str(model) for model in models), str(frame.get("server", "")), stream if isinstance(stream, str) else None
    )


def _turn_body(kind: str, frame: Fields) -> Event | APIError | None:
    match kind:
        case "content.delta":
            return ContentDelta(text_field(frame, "text"))
        case "reasoning.delta":
            return ReasoningDelta(text_field(frame, "text"))
        case "tool_call.start":
            return ToolCallStart(int_field(frame, "index"), text_field(frame, "id"), text_field(frame, "name"))
        case "tool_call.delta":
            return ToolCallDelta(int_field(frame, "index"), text_field(frame, "arguments"))
        case "tool_call.end":
            return _tool_call_end(frame)
        case "turn.created":
            return TurnStarted(text_field(frame, "id"), text_field(frame, "model"), int_field(frame, "created"))
        case "turn.done":
            return TurnDone(finish_reason(frame.get("finish_reason")), usage(frame.get("usage")))
        case "turn.error":
            return api_error(frame.get("error"))
        case _:
            return None


def _tool_call_end(frame: Fields) -> ToolCallEnd:
    outcome = text_field(frame, "outcome")
    if outcome not in OUTCOMES:
        raise ProtocolError(f"tool_call.end: unknown outcome {outcome!r}")
    reason = None if frame.get("reason") is None else text_field(frame, "reason")
    return ToolCallEnd(int_field(frame, "index"), text_field(frame, "arguments"), cast(Outcome, outcome), reason)
