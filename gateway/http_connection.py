"""Connections whose client sends the head of a request for ever, or begins a request and never ends it: bounded.

uvicorn bounds the silence between two requests only, and with httptools not the size of a head; nobody needs a key to
get this far. Bounded here are the bytes of a head, up to one read of the socket above the limit, and the time until it
is whole: from the connection's first moment, and from a later head's first byte. The rest of a body that was answered
before it had come is given the same time. A body that is waited for is its reader's matter (gateway.exchange).
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError:  # pragma: no cover
    # Not a dependency, but faster: uvicorn takes it where it is installed.
    HttpToolsProtocol = None  # type: ignore[assignment, misc]

# Above what common proxies let through: nginx 32 KiB, Node 16 KiB, Apache 8 KiB a line.
MAX_HEAD_BYTES = 64 * 1024


class _Watched(asyncio.Protocol):
    """Mixed into uvicorn's protocols, which have all of these attributes."""

    transport: asyncio.Transport
    cycle: Any  # of the latest request
    _timeout_s = 30.0
    _timer: asyncio.TimerHandle | None = None

    def watch(self, timeout_s: float) -> None:
        """Call before the connection is made."""
        self._timeout_s = timeout_s

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._relax()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        is_ours = self.transport.get_protocol() is self
        if is_ours and (self._has_begun_head() or self.cycle is None or self.cycle.response_complete):
            self._expect()
        else:
            self._relax()

    def _has_begun_head(self) -> bool:
        raise NotImplementedError

    def _expect(self) -> None:
        """Time runs from the first call on: what comes in drops does not begin it anew."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._timeout_s, self._on_timeout)

    def _relax(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timeout(self) -> None:
        if self._has_begun_head():
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)
        self.transport.close()

    def _refuse(self, status: HTTPStatus) -> None:
        if not self.transport.is_closing():
            head = f"HTTP/1.1 {status.value} {status.phrase}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            self.transport.write(head.encode("ascii"))
            self.transport.close()


class H11Connection(_Watched, H11Protocol):
    """h11 bounds the head itself: see uvicorn's h11_max_incomplete_event_size."""

    def _has_begun_head(self) -> bool:
        return self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])


if HttpToolsProtocol is not None:

    class HttpToolsConnection(_Watched, HttpToolsProtocol):
        """The parser keeps what it has of a head, and says nothing of it before a header is whole."""

        _is_in_head = False
        _num_head_bytes = 0

        def data_received(self, data: bytes) -> None:
            began_in_head = self._is_in_head
            self._num_head_bytes += len(data) if began_in_head else 0
            super().data_received(data)
            if self._is_in_head and self._num_head_bytes > MAX_HEAD_BYTES:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

        def on_message_begin(self) -> None:
            self._is_in_head, self._num_head_bytes = True, 0
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._is_in_head = False
            super().on_headers_complete()

        def _has_begun_head(self) -> bool:
            return self._is_in_head


def http_protocol(read_timeout_s: float, *args: Any, **options: Any) -> asyncio.Protocol:
    """uvicorn makes one a connection."""
    kind: Any = H11Connection if HttpToolsProtocol is None else HttpToolsConnection
    connection: _Watched = kind(*args, **options)
    connection.watch(read_timeout_s)
    return connection
