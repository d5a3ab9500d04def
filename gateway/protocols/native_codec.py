"""How the native protocol's frames are spelled: JSON in text frames, or MessagePack in binary ones. Same fields.

The client chooses with a WebSocket subprotocol (RFC 6455, section 1.9); without one it is JSON.
MessagePack: github.com/msgpack/msgpack/blob/master/spec.md. Only what JSON can say is taken: maps with string keys,
no binary, no extension types, no NaN.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import ormsgpack

from gateway.errors import InvalidRequest
from gateway.protocols.fields import type_name
from gateway.protocols.frames import dumps
from gateway.protocols.json_body import check_depth, parse_object

PROTOCOL_NAME = "headrace.v1"


@dataclass(frozen=True, slots=True)
class DeltaHead:
    """What is the same in all deltas of one kind of one turn."""

    kind: str
    turn: str
    field: str
    json: bytes


class Codec(Protocol):
    """is_text: whether its frames are text frames."""

    @property
    def subprotocol(self) -> str: ...

    @property
    def is_text(self) -> bool: ...

    def load(self, data: str | bytes) -> dict[str, Any]:
        """Raises InvalidRequest."""

    def dump(self, fields: Mapping[str, Any]) -> bytes: ...

    def delta(self, head: DeltaHead, seq: int, text: str, index: int | None) -> bytes:
        """A frame that comes once a token."""


class JsonCodec:
    subprotocol = PROTOCOL_NAME
    is_text = True

    def load(self, data: str | bytes) -> dict[str, Any]:
        if isinstance(data, bytes):
            raise InvalidRequest(None, "Frames must be text, got a binary one.", code="invalid_frame")
        return parse_object(data)

    def dump(self, fields: Mapping[str, Any]) -> bytes:
        return dumps(fields)

    def delta(self, head: DeltaHead, seq: int, text: str, index: int | None) -> bytes:
        if index is None:
            return b'%b%d,"text":%b}' % (head.json, seq, dumps(text))
        return b'%b%d,"index":%d,"arguments":%b}' % (head.json, seq, index, dumps(text))


class MsgpackCodec:
    subprotocol = f"{PROTOCOL_NAME}.msgpack"
    is_text = False

    def load(self, data: str | bytes) -> dict[str, Any]:
        if isinstance(data, str):
            raise InvalidRequest(None, "Frames must be binary MessagePack, got a text one.", code="invalid_frame")
        try:
            value = ormsgpack.unpackb(data)
        except ormsgpack.MsgpackDecodeError as error:
            raise InvalidRequest(
                None, f"The frame is not valid MessagePack: {error}.", code="invalid_msgpack"
            ) from None
        if not isinstance(value, dict):
            raise InvalidRequest(None, f"The frame must be a map, got {type_name(value)}.", code="invalid_type")
        check_depth(value)
        _check_json_values(value)
        return value

    def dump(self, fields: Mapping[str, Any]) -> bytes:
        return ormsgpack.packb(fields)

    def delta(self, head: DeltaHead, seq: int, text: str, index: int | None) -> bytes:
        fields: dict[str, Any] = {"type": head.kind, "turn": head.turn, "seq": seq}
        if index is not None:
            fields["index"] = index
        fields[head.field] = text
        return ormsgpack.packb(fields)


JSON = JsonCodec()
MSGPACK = MsgpackCodec()
_BY_SUBPROTOCOL: dict[str, Codec] = {codec.subprotocol: codec for codec in (JSON, MSGPACK)}


def negotiate(offered: Sequence[str]) -> tuple[Codec, str | None]:
    """The codec, and the subprotocol to answer with: the first offered one that is known, else JSON and none."""
    for name in offered:
        if name in _BY_SUBPROTOCOL:
            return _BY_SUBPROTOCOL[name], name
    return JSON, None


def delta_head(kind: str, turn: str, field: str) -> DeltaHead:
    return DeltaHead(kind, turn, field, dumps({"type": kind, "turn": turn, "seq": 0})[:-2])


def _check_json_values(value: object) -> None:
    """Raises InvalidRequest for what JSON could not have said. `value` is not too deep to recurse into."""
    if isinstance(value, dict):
        for item in value.values():
            _check_json_values(item)
    elif isinstance(value, list):
        for item in value:
            _check_json_values(item)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidRequest(None, f"The frame holds {value}, which is no number.", code="invalid_msgpack")
    elif not (value is None or isinstance(value, (str, int))):
        message = f"The frame holds a {type(value).__name__}: only what JSON can say is taken."
        raise InvalidRequest(None, message, code="invalid_msgpack")
