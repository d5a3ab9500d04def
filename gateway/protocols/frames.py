"""What every protocol offers: the contract of one file in this package, and frames as bytes.

Knows nothing of sockets: a driver writes the bytes that `sse` returns, or sends `Frame.data` as one WebSocket message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from gateway.errors import GatewayError
from gateway.types import Turn, TurnItem

Json = Mapping[str, Any]

_ESCAPED_BREAKS = {"\u0085".encode(): rb"\u0085", "\u2028".encode(): rb"\u2028", "\u2029".encode(): rb"\u2029"}
_UNICODE_BREAKS = re.compile(b"|".join(_ESCAPED_BREAKS))


@dataclass(frozen=True, slots=True)
class Frame:
    """One message to the client. `event` is the SSE event name, absent where the protocol has none."""

    data: bytes
    event: str | None = None


@dataclass(frozen=True, slots=True)
class TurnLabels:
    """What identifies a turn to its client. created_s: Unix time in whole seconds. request_id: the HTTP request's."""

    turn_id: str
    model: str
    created_s: int
    request_id: str = ""


class Encoder(Protocol):
    """Turn items in stream order in, frames out. The last item (TurnDone, TurnFailed) gives the protocol's end."""

    def encode(self, item: TurnItem) -> list[Frame]: ...


class Collector(Protocol):
    """The same items, gathered into the one body of a response that is not streamed."""

    def add(self, item: TurnItem) -> None: ...

    def body(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class HttpProtocol:
    """One row of the table of protocols that ask for turns over HTTP POST.

    decode raises InvalidRequest. param_names: how this protocol calls fields that the engine names differently.
    keepalive: bytes that are safe to send between frames when nothing else was sent for a while.
    request_id_headers: under which names responses carry the request's id.
    """

    name: str
    path: str
    id_prefix: str
    decode: Callable[[Json], Turn]
    encoder: Callable[[TurnLabels, Turn], Encoder]
    collector: Callable[[TurnLabels, Turn], Collector]
    error_body: Callable[[GatewayError, str], bytes]
    param_names: Mapping[str, str]
    keepalive: bytes = b": keepalive\n\n"
    request_id_headers: tuple[str, ...] = ("x-request-id",)


def dumps(value: Any) -> bytes:
    return orjson.dumps(value)


def sse(frame: Frame) -> bytes:
    """The frame on an event stream (WHATWG HTML, section 9.2). JSON has no raw line breaks, so one data line does."""
    data = frame.data
    if not data.isascii():
        # Not line breaks by the standard, but str.splitlines, which many Python clients read streams with, cuts there.
        data = _UNICODE_BREAKS.sub(lambda match: _ESCAPED_BREAKS[match[0]], data)
    if frame.event is None:
        return b"data: " + data + b"\n\n"
    return b"event: " + frame.event.encode() + b"\ndata: " + data + b"\n\n"


def openai_error_body(error: GatewayError, request_id: str) -> bytes:
    """OpenAI's body. The request id travels in its header, and in the words where the fault is ours."""
    return dumps({"error": error.body()})
