"""The native multiplexed protocol, version 1: many turns on one WebSocket, one object a frame.

The frames and their rules are in docs/protocols.md; native_schema.json beside this file has a JSON Schema for each.
Turn frames carry the client's turn id and a sequence number that counts 0, 1, 2 … within the turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, assert_never

from gateway.errors import FailedDependency, GatewayError, InvalidRequest, NotFound
from gateway.protocols.fields import Fields, missing, shown
from gateway.protocols.frames import Frame, TurnLabels
from gateway.protocols.native_codec import JSON, PROTOCOL_NAME, Codec, DeltaHead, delta_head
from gateway.protocols.openai_chat import decode_chat, usage_object
from gateway.types import ChatTurn, TurnDone, TurnEvent, TurnFailed, TurnItem, TurnStarted, TurnText
from stream_parser.events import ContentDelta, Event, Finish, ReasoningDelta, ToolCallDelta, ToolCallEnd, ToolCallStart

PATH = "/v1/stream"
MAX_ID_CHARS = 128
MAX_CREDIT_CHARS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class TurnCreate:
    """`fields`: what is wrong with them concerns this turn only (see decode_turn). decoded: what that gives, where it
    is known already."""

    turn: str
    lane: str | None
    fields: Mapping[str, Any]
    decoded: NativeTurn | GatewayError | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class TurnCredit:
    """More characters of delta text that the turn may send."""

    turn: str
    credit_chars: int


@dataclass(frozen=True, slots=True)
class TurnCancel:
    turn: str


@dataclass(frozen=True, slots=True)
class Resume:
    """Go on with the turns of a connection that was lost. last_seq: by turn, -1 where no frame of it has come."""

    stream: str
    last_seq: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Ping:
    nonce: str | None


ClientFrame: TypeAlias = TurnCreate | TurnCredit | TurnCancel | Resume | Ping


@dataclass(frozen=True, slots=True)
class NativeTurn:
    """session: what the turn belongs to, None for a turn by itself. is_continued: its messages come after what the
    session has; otherwise they begin it. credit_chars None: the client takes whatever comes."""

    turn: ChatTurn
    session: str | None
    is_continued: bool
    credit_chars: int | None


def decode_frame(data: str | bytes, codec: Codec = JSON) -> ClientFrame:
    """Raises InvalidRequest when the frame cannot be tied to a turn: an error of the connection."""
    fields = Fields(codec.load(data))
    kind = fields.choice("type", tuple(_CLIENT_FRAMES))
    if kind is None:
        raise missing("type", "one of " + ", ".join(repr(name) for name in _CLIENT_FRAMES))
    return _CLIENT_FRAMES[kind](fields)


def decode_ahead(data: str | bytes, codec: Codec = JSON) -> ClientFrame:
    """decode_frame, which does what decode_turn will be asked for as well: for other threads than the event loop's."""
    frame = decode_frame(data, codec)
    if not isinstance(frame, TurnCreate):
        return frame
    try:
        return replace(frame, decoded=decode_turn(frame))
    except GatewayError as error:
        return replace(frame, decoded=error)


def _turn_create(fields: Fields) -> TurnCreate:
    return TurnCreate(_turn_id(fields), fields.string("lane", max_chars=MAX_ID_CHARS), fields.raw)


def _turn_credit(fields: Fields) -> TurnCredit:
    credit_chars = fields.integer("credit", low=1, high=MAX_CREDIT_CHARS)
    if credit_chars is None:
        raise missing("credit", "a number of characters")
    return TurnCredit(_turn_id(fields), credit_chars)


def _turn_cancel(fields: Fields) -> TurnCancel:
    return TurnCancel(_turn_id(fields))


def _resume(fields: Fields) -> Resume:
    stream = fields.required_string("stream", max_chars=MAX_ID_CHARS)
    last_seq = fields.object("last_seq")
    if last_seq is None:
        raise missing("last_seq", "an object with the last seq of each turn")
    numbers = {turn: last_seq.integer(turn, low=-1, high=2**53) for turn in last_seq.raw}
    return Resume(stream, {turn: number for turn, number in numbers.items() if number is not None})


def _ping(fields: Fields) -> Ping:
    return Ping(fields.string("nonce", max_chars=MAX_ID_CHARS))


def _turn_id(fields: Fields) -> str:
    return fields.required_string("turn", max_chars=MAX_ID_CHARS)


_CLIENT_FRAMES: Mapping[str, Callable[[Fields], ClientFrame]] = {
    "turn.create": _turn_create,
    "turn.credit": _turn_credit,
    "turn.cancel": _turn_cancel,
    "resume": _resume,
    "ping": _ping,
}


def decode_turn(create: TurnCreate) -> NativeTurn:
    """Raises InvalidRequest: an error of the turn."""
    if isinstance(create.decoded, GatewayError):
        raise create.decoded
    if create.decoded is not None:
        return create.decoded
    fields = Fields(create.fields)
    session = fields.string("session", max_chars=MAX_ID_CHARS)
    is_continued = fields.boolean("continue")
    if is_continued and not session:
        raise missing("session", "the id of the session to continue")
    credit_chars = fields.integer("credit", low=0, high=MAX_CREDIT_CHARS)

    turn = decode_chat(create.fields)
    if turn.n != 1:
        raise InvalidRequest("n", f"n must be 1 on this protocol, got {shown(turn.n)}: open one turn per choice.")
    if turn.params.logprobs is not None:
        raise InvalidRequest("logprobs", "logprobs are not part of this protocol: use /v1/chat/completions.")
    return NativeTurn(turn, session or None, is_continued, credit_chars)


# Frames of the connection, as fields: the connection's codec spells them.


def hello(models: tuple[str, ...], server: str, limits: Mapping[str, int], stream: str | None) -> dict[str, Any]:
    """stream: what `resume` has to name after this connection was lost; None where the server keeps nothing."""
    fields = {"type": "hello", "protocol": PROTOCOL_NAME, "models": models, "server": server, "limits": limits}
    return fields if stream is None else {**fields, "stream": stream}


def connection_error(error: GatewayError, turn: str | None = None) -> dict[str, Any]:
    """An error of the connection; its turns go on. turn: the one that it is about, though it does not end it."""
    scope = {} if turn is None else {"turn": turn}
    return {"type": "error", **scope, "error": error_object(error)}


def turn_error(turn: str, error: GatewayError, seq: int = 0) -> dict[str, Any]:
    return {"type": "turn.error", "turn": turn, "seq": seq, "error": error_object(error)}


def lane_error(lane: str, turns: tuple[str, ...], error: GatewayError) -> dict[str, Any]:
    """An error of the lane, which ends these turns of it. Their last frames follow, and the lane goes on."""
    return {"type": "error", "lane": lane, "turns": turns, "error": error_object(error)}


def previous_turn_failed(turn: str, session: str, error: GatewayError) -> GatewayError:
    message = f"The turn {turn!r} of the session {session!r} failed ({error.code}), so what was to continue it behind "
    message += "that turn in its lane cannot: send that turn again, and then what followed it."
    return FailedDependency(message, param="session")


def pong(ping: Ping) -> dict[str, Any]:
    return {"type": "pong"} if ping.nonce is None else {"type": "pong", "nonce": ping.nonce}


def resumed(stream: str, turns: tuple[str, ...]) -> dict[str, Any]:
    return {"type": "resumed", "stream": stream, "turns": turns}


def goaway(deadline_s: float) -> dict[str, Any]:
    return {"type": "goaway", "deadline_s": deadline_s}


def stream_not_found(stream: str) -> GatewayError:
    message = f"There is no stream {stream!r} to resume: it ended with its connection, or its grace ended long ago."
    return NotFound(message, param="stream", code="stream_not_found")


def stream_expired(stream: str, grace_s: float) -> GatewayError:
    """The same code, since a client does the same: its turns are over, and it begins new ones."""
    message = f"The stream {stream!r} was without a connection for more than {grace_s:g}s (--resume-grace): its turns "
    message += "were cancelled, and what was left of them is gone."
    return NotFound(message, param="stream", code="stream_not_found")


def turn_not_found(turn: str) -> GatewayError:
    message = f"The stream has no turn {turn!r}: its turn.create never came, or it ended long ago."
    return NotFound(message, param="last_seq", code="turn_not_found")


def replay_gap(turn: str, seq: int) -> GatewayError:
    message = f"The frames of the turn {turn!r} after {seq} are not kept any more: the turn was cancelled."
    return NotFound(message, param="last_seq", code="replay_gap")


def error_object(error: GatewayError) -> dict[str, Any]:
    fields: dict[str, Any] = {"status": error.status, **error.body()}
    if error.retry_after_s is not None:
        fields["retry_after_s"] = error.retry_after_s
    return fields


class NativeEncoder:
    """Frames of one turn, under the id the client chose for it. `seq` is the next frame's."""

    def __init__(self, turn: str, labels: TurnLabels, warnings: tuple[str, ...] = (), codec: Codec = JSON) -> None:
        self._turn = turn
        self._warnings = {"warnings": warnings} if warnings else {}
        self._labels = labels
        self._codec = codec
        self._heads = {kind: delta_head(name, turn, field) for kind, (name, field) in _DELTAS.items()}
        self._finish_reason = "cancelled"
        self.seq = 0

    def encode(self, item: TurnItem) -> list[Frame]:
        data = self.data(item)
        return [] if data is None else [Frame(data)]

    def data(self, item: TurnItem) -> bytes | None:
        """The bytes of the one frame that an item makes, if it makes any."""
        match item:
            case TurnEvent(event=event):
                return self._event(event)
            case TurnStarted():
                return self._created()
            case TurnDone(usage=usage, warnings=warnings):
                told = {"warnings": warnings} if warnings else {}
                return self._frame("turn.done", finish_reason=self._finish_reason, usage=usage_object(usage), **told)
            case TurnFailed(error=error):
                return self._frame("turn.error", error=error_object(error))
            case TurnText():
                raise AssertionError("native turns are parsed")
            case _:
                assert_never(item)

    def _created(self) -> bytes:
        labels = self._labels
        named = {"id": labels.turn_id, "model": labels.model, "created": labels.created_s}
        return self._frame("turn.created", **named, **self._warnings)

    def _event(self, event: Event) -> bytes | None:
        match event:
            case ContentDelta(text=text):
                return self._delta(self._heads[ContentDelta], text)
            case ReasoningDelta(text=text):
                return self._delta(self._heads[ReasoningDelta], text)
            case ToolCallStart(index=index, id=call_id, name=name):
                return self._frame("tool_call.start", index=index, id=call_id, name=name)
            case ToolCallDelta(index=index, arguments=arguments):
                return self._delta(self._heads[ToolCallDelta], arguments, index)
            case ToolCallEnd(index=index, arguments=arguments, outcome=outcome, reason=reason):
                end = {"index": index, "arguments": arguments, "outcome": outcome, "reason": reason or None}
                return self._frame("tool_call.end", **end)
            case Finish(reason=reason):
                # Goes out with the usage, in turn.done.
                self._finish_reason = reason
                return None
            case _:
                assert_never(event)

    def _frame(self, kind: str, **fields: Any) -> bytes:
        data = self._codec.dump({"type": kind, "turn": self._turn, "seq": self.seq, **fields})
        self.seq += 1
        return data

    def _delta(self, head: DeltaHead, text: str, index: int | None = None) -> bytes:
        """The frames that come once a token."""
        data = self._codec.delta(head, self.seq, text, index)
        self.seq += 1
        return data


_DELTAS: Mapping[type[ContentDelta | ReasoningDelta | ToolCallDelta], tuple[str, str]] = {
    ContentDelta: ("content.delta", "text"),
    ReasoningDelta: ("reasoning.delta", "text"),
    ToolCallDelta: ("tool_call.delta", "arguments"),
}
