"""Responses over a WebSocket (OpenAI's WebSocket guide, 2026-11): frames of the client, and what only a socket sends.

Server frames are the events of the streaming API, one JSON object each, with the `stream_id` of the request that they
answer. Errors carry their object nested, beside the HTTP status that they would have had.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, assert_never

from gateway.errors import GatewayError, InvalidRequest
from gateway.protocols.fields import Fields, missing, shown
from gateway.protocols.frames import Frame, dumps
from gateway.protocols.json_body import parse_object
from gateway.protocols.responses_request import ResponsesRequest, decode_request

MAX_LANES = 32
MAX_ACTIVE = 16
_STREAM_ID = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_ClientType = Literal["response.create", "response.steer"]
_CLIENT_TYPES: tuple[_ClientType, ...] = ("response.create", "response.steer")
# Of the socket, or without a meaning on it: every response streams and none outlives its connection.
_NOT_OF_THE_REQUEST = ("type", "stream_id", "stream", "background")


@dataclass(frozen=True, slots=True)
class ResponseCreate:
    """stream_id None: the default lane. body: as `POST /v1/responses` takes it. decoded: what decode_create gives,
    where it is known already."""

    stream_id: str | None
    body: Mapping[str, Any]
    decoded: ResponsesRequest | GatewayError | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ResponseSteer:
    previous_response_id: str | None
    input: Any


ClientFrame: TypeAlias = ResponseCreate | ResponseSteer


def decode_frame(data: str | bytes) -> ClientFrame:
    """Raises InvalidRequest when the frame cannot be tied to a lane."""
    fields = Fields(parse_object(data))
    kind = fields.choice("type", _CLIENT_TYPES)
    match kind:
        case "response.create":
            body = {name: value for name, value in fields.raw.items() if name not in _NOT_OF_THE_REQUEST}
            return ResponseCreate(_stream_id(fields), {**body, "stream": True})
        case "response.steer":
            return ResponseSteer(fields.string("previous_response_id"), fields.get("input"))
        case None:
            raise missing("type", "'response.create' or 'response.steer'")
        case _:
            assert_never(kind)


def decode_create(create: ResponseCreate) -> ResponsesRequest:
    """Raises InvalidRequest: an error of this response."""
    if isinstance(create.decoded, GatewayError):
        raise create.decoded
    return create.decoded or decode_request(dict(create.body))


def decode_ahead(data: str | bytes) -> ClientFrame:
    """decode_frame, which does what decode_create will be asked for as well: for other threads than the loop's."""
    frame = decode_frame(data)
    if not isinstance(frame, ResponseCreate):
        return frame
    try:
        return replace(frame, decoded=decode_create(frame))
    except GatewayError as error:
        return replace(frame, decoded=error)


def _stream_id(fields: Fields) -> str | None:
    stream_id = fields.string("stream_id")
    if stream_id is not None and not _STREAM_ID.fullmatch(stream_id):
        message = f"stream_id must be 1 to 256 letters, digits, '_', '.' or '-', got {shown(stream_id)}."
        raise InvalidRequest("stream_id", message)
    return stream_id


class LaneFrames:
    """Frames of one lane: each says which it belongs to, when the client named it."""

    def __init__(self, stream_id: str | None) -> None:
        self._tail = b"}" if stream_id is None else b',"stream_id":' + dumps(stream_id) + b"}"

    def data(self, frame: Frame) -> bytes:
        return frame.data[:-1] + self._tail

    def error(self, error: GatewayError) -> bytes:
        fields: dict[str, Any] = error.body()
        headers = error.headers()
        if headers:
            fields["headers"] = headers
        return self.data(Frame(dumps({"type": "error", "status": error.status, "error": fields})))


class ConnectionLimitReached(InvalidRequest):
    """Clients that see this code open another connection and send everything again, whatever runs on this one."""

    code = "websocket_connection_limit_reached"

    def __init__(self) -> None:
        message = "This connection takes no new responses: it is too old, or the server shuts down. Open another."
        super().__init__(None, message)

    @property
    def should_retry(self) -> bool:
        """Over another connection."""
        return True


def steer_failed(steer: ResponseSteer) -> bytes:
    error = {
        "type": "invalid_request_error",
        "code": "steering_not_supported",
        "message": "A running response cannot be steered here: send the input with the next response.create.",
    }
    given = {"previous_response_id": steer.previous_response_id or "", "input": steer.input or []}
    return dumps({"type": "response.steer.failed", "sequence_number": 0, "error": error, "steer": given})
