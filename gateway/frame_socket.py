"""The server's end of a WebSocket: uvicorn's, with what token streams need beside it.

uvicorn writes each frame by itself, one system call a token; here all that is ready goes out in one. A socket that is
lost without a Close frame is told from one that was closed; one whose peer is dead is dropped with what waits in it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Protocol, cast

from starlette.types import Scope, Send
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode

from gateway.peer import BarePeer, Peer, num_unread_bytes

log = logging.getLogger("headrace.frame_socket")

EXTENSION = "headrace.socket"
LOST = 1006

_TEXT, _BINARY = 0x81, 0x82  # FIN and the opcode, RFC 6455 section 5.2


class FrameSocket(Peer, Protocol):
    async def send_frames(self, payloads: Sequence[bytes], is_text: bool) -> None:
        """Each payload as one message. Waits while the write buffer is full. Raises OSError when the client is gone."""

    async def close(self, code: int) -> None:
        """Raises OSError when the client is gone."""


def frame_socket(scope: Scope, send: Send) -> FrameSocket:
    socket: FrameSocket | None = scope.get("extensions", {}).get(EXTENSION)
    return socket or _PlainSocket(send)


class _PlainSocket(BarePeer):
    """Over bare ASGI, whatever server runs it."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def send_frames(self, payloads: Sequence[bytes], is_text: bool) -> None:
        for payload in payloads:
            fields: dict[str, Any] = {"text": payload.decode()} if is_text else {"bytes": payload}
            await self._send({"type": "websocket.send", **fields})

    async def close(self, code: int) -> None:
        await self._send({"type": "websocket.close", "code": code})


class UvicornSocket(WebSocketsSansIOProtocol):
    """uvicorn makes one a connection. Its own `send` still works, also between calls of ours: a frame is whole before
    the next begins, and no extension is negotiated."""

    _num_written_bytes = 0
    _num_acked_bytes = 0

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        if hasattr(self, "scope"):
            cast("dict[str, object]", self.scope["extensions"])[EXTENSION] = self

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            # A refusal ends the handshake as well; uvicorn would log an error that it did not.
            self.handshake_complete = True

    async def send_frames(self, payloads: Sequence[bytes], is_text: bool) -> None:
        await self.writable.wait()
        if self.disconnected or self.close_sent or self.transport.is_closing():
            raise ClientDisconnected
        data = join_frames(payloads, is_text)
        self._num_written_bytes += len(data)
        self.transport.write(data)

    async def close(self, code: int) -> None:
        await self.send({"type": "websocket.close", "code": code, "reason": ""})

    def num_unread_bytes(self) -> int:
        return num_unread_bytes(self.transport)

    def let_out(self) -> bool:
        # The transport says only once that it is full.
        self.writable.set()
        return True

    def abort(self) -> None:
        self.transport.abort()

    def send_receive_event_to_app(self) -> None:
        """uvicorn logs a fault of the server, with its traceback, for text that is not UTF-8: it is the client's."""
        if self.curr_msg_data_type == "text" and not self.close_sent:
            data = b"".join(self.frames)
            self.frames = [data]
            if not _is_utf8(data):
                log.info("a client of a WebSocket sent text that is not UTF-8; connection closed")
                self.conn.send_close(CloseCode.INVALID_DATA)
                self.handle_parser_exception()
                return
        super().send_receive_event_to_app()

    def connection_lost(self, exc: Exception | None) -> None:
        # Read before what uvicorn queues, which says 1005: a Close frame without a code would say the same.
        self.queue.put_nowait({"type": "websocket.disconnect", "code": LOST, "reason": ""})
        super().connection_lost(exc)

    def send_keepalive_ping(self) -> None:
        super().send_keepalive_ping()
        self._num_acked_bytes = self._acked_bytes()

    def keepalive_timeout(self) -> None:
        """A slow reader gets the ping behind all that it has not read yet: as long as it takes any of that it lives.
        For one that does not, uvicorn would still wait until its buffer is flushed, which never happens."""
        acked = self._acked_bytes()
        if acked > self._num_acked_bytes and self.ping_timeout is not None:
            self._num_acked_bytes = acked
            self.pong_timer = self.loop.call_later(self.ping_timeout, self.keepalive_timeout)
            return
        super().keepalive_timeout()
        self.transport.abort()

    def _acked_bytes(self) -> int:
        """Of the frames written, how many bytes the peer's machine has taken."""
        return self._num_written_bytes - self.num_unread_bytes()


def _is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def join_frames(payloads: Sequence[bytes], is_text: bool) -> bytes:
    first = _TEXT if is_text else _BINARY
    short = _SHORT_HEADS[first]
    parts: list[bytes] = []
    for payload in payloads:
        num_bytes = len(payload)
        if num_bytes < 126:
            parts.append(short[num_bytes])
        elif num_bytes < 65536:
            parts.append(b"%c\x7e%b" % (first, num_bytes.to_bytes(2)))
        else:
            parts.append(b"%c\x7f%b" % (first, num_bytes.to_bytes(8)))
        parts.append(payload)
    return b"".join(parts)


_SHORT_HEADS = {first: [bytes((first, num_bytes)) for num_bytes in range(126)] for first in (_TEXT, _BINARY)}
