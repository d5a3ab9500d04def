"""The native multiplexed protocol, version 1: many turns on one WebSocket, one JSON object a text frame.

The frames and their rules are in docs/protocols.md; native_schema.json beside this file has a JSON Schema for each.
Turn frames carry the client's turn id and a sequence number that counts 0, 1, 2 … within the turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, assert_never

from gateway.errors import GatewayError, InvalidRequest
from gateway.protocols.fields import Fields, missing, shown
from gateway.protocols.frames import Frame, TurnLabels, dumps
from gateway.protocols.json_body import parse_object
from gateway.protocols.openai_chat import decode_chat, usage_object
from gateway.types import ChatTurn, TurnDone, TurnEvent, TurnFailed, TurnItem, TurnStarted, TurnText
from stream_parser.events import ContentDelta, Event, Finish, ReasoningDelta, ToolCallDelta, ToolCallEnd, ToolCallStart

PROTOCOL_NAME = "headrace.v1"
PATH = "/v1/stream"
MAX_ID_CHARS = 128
_ClientType = Literal["turn.create", "turn.cancel", "ping"]
_CLIENT_TYPES: tuple[_ClientType, ...] = ("turn.create", "turn.cancel", "ping")


@dataclass(frozen=True, slots=True)
class TurnCreate:
    """`fields` are not decoded yet: what is wrong with them concerns this turn only (see decode_turn)."""

    turn: str
    lane: str | None
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TurnCancel:
    turn: str


@dataclass(frozen=True, slots=True)
class Ping:
    nonce: str | None


ClientFrame: TypeAlias = TurnCreate | TurnCancel | Ping


def decode_frame(text: str) -> ClientFrame:
    """Raises InvalidRequest when the frame cannot be tied to a turn: an error of the connection."""
    fields = Fields(parse_object(text))
    kind = fields.choice("type", _CLIENT_TYPES)
    match kind:
        case "turn.create":
            turn = fields.required_string("turn", max_chars=MAX_ID_CHARS)
            return TurnCreate(turn, fields.string("lane", max_chars=MAX_ID_CHARS), fields.raw)
        case "turn.cancel":
            return TurnCancel(fields.required_string("turn", max_chars=MAX_ID_CHARS))
        case "ping":
            return Ping(fields.string("nonce", max_chars=MAX_ID_CHARS))
        case None:
            raise missing("type", "'turn.create', 'turn.cancel' or 'ping'")
        case _:
            assert_never(kind)


def decode_turn(create: TurnCreate) -> ChatTurn:
    """Raises InvalidRequest: an error of the turn."""
    turn = decode_chat(create.fields)
    if turn.n != 1:
        raise InvalidRequest("n", f"n must be 1 on this protocol, got {shown(turn.n)}: open one turn per choice.")
    if turn.params.logprobs is not None:
        raise InvalidRequest("logprobs", "logprobs are not part of this protocol: use /v1/chat/completions.")
    return turn


def hello_frame(models: tuple[str, ...], server: str, limits: Mapping[str, int]) -> Frame:
    fields = {"type": "hello", "protocol": PROTOCOL_NAME, "models": models, "server": server, "limits": limits}
    return Frame(dumps(fields))


def error_frame(error: GatewayError) -> Frame:
    """An error of the connection; its turns go on."""
    return Frame(dumps({"type": "error", "error": error_object(error)}))


def turn_error_frame(turn: str, error: GatewayError, seq: int = 0) -> Frame:
    return Frame(dumps({"type": "turn.error", "turn": turn, "seq": seq, "error": error_object(error)}))


def pong_frame(ping: Ping) -> Frame:
    return Frame(dumps({"type": "pong"} if ping.nonce is None else {"type": "pong", "nonce": ping.nonce}))


def error_object(error: GatewayError) -> dict[str, Any]:
    fields: dict[str, Any] = {"status": error.status, **error.body()}
    if error.retry_after_s is not None:
        fields["retry_after_s"] = error.retry_after_s
    return fields


class NativeEncoder:
    """Frames of one turn, under the id the client chose for it."""

    def __init__(self, turn: str, labels: TurnLabels, warnings: tuple[str, ...] = ()) -> None:
        self._turn = turn
        self._warnings = {"warnings": warnings} if warnings else {}
        self._labels = labels
        self._turn_json = dumps(turn)
        self._seq = 0
        self._finish_reason = "cancelled"

    def encode(self, item: TurnItem) -> list[Frame]:
        match item:
            case TurnEvent(event=event):
                return self._encode_event(event)
            case TurnStarted():
                return [self._created()]
            case TurnDone(usage=usage):
                return [self._frame("turn.done", finish_reason=self._finish_reason, usage=usage_object(usage))]
            case TurnFailed(error=error):
                return [self._frame("turn.error", error=error_object(error))]
            case TurnText():
                raise AssertionError("native turns are parsed")
            case _:
                assert_never(item)

    def _created(self) -> Frame:
        labels = self._labels
        named = {"id": labels.turn_id, "model": labels.model, "created": labels.created_s}
        return self._frame("turn.created", **named, **self._warnings)

    def _encode_event(self, event: Event) -> list[Frame]:
        match event:
            case ContentDelta(text=text):
                return [self._delta(b"content.delta", b'"text":' + dumps(text))]
            case ReasoningDelta(text=text):
                return [self._delta(b"reasoning.delta", b'"text":' + dumps(text))]
            case ToolCallStart(index=index, id=call_id, name=name):
                return [self._frame("tool_call.start", index=index, id=call_id, name=name)]
            case ToolCallDelta(index=index, arguments=arguments):
                return [self._delta(b"tool_call.delta", b'"index":%d,"arguments":%b' % (index, dumps(arguments)))]
            case ToolCallEnd(index=index, arguments=arguments, outcome=outcome, reason=reason):
                end = {"index": index, "arguments": arguments, "outcome": outcome, "reason": reason or None}
                return [self._frame("tool_call.end", **end)]
            case Finish(reason=reason):
                # Goes out with the usage, in turn.done.
                self._finish_reason = reason
                return []
            case _:
                assert_never(event)

    def _frame(self, kind: str, **fields: Any) -> Frame:
        frame = Frame(dumps({"type": kind, "turn": self._turn, "seq": self._seq, **fields}))
        self._seq += 1
        return frame

    def _delta(self, kind: bytes, rest: bytes) -> Frame:
        """The frames that come once a token, without building a dict for each."""
        frame = Frame(b'{"type":"%b","turn":%b,"seq":%d,%b}' % (kind, self._turn_json, self._seq, rest))
        self._seq += 1
        return frame
