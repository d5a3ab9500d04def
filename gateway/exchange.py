"""One HTTP request and its response over ASGI: bounded reading, one place that starts responses.

Knows nothing of turns. Starlette's own Response classes are not used for streams: see gateway.sse.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from starlette.datastructures import Headers, QueryParams
from starlette.types import Message, Receive, Scope, Send

from gateway.errors import RequestTimeout, RequestTooLarge, UnsupportedEncoding
from gateway.header_text import header_value
from gateway.peer import peer_of

JSON_TYPE = "application/json"
_SHOWN_CHARS = 60
# What a body that is longer than the read timeout has to come with.
_MIN_BYTES_PER_S = 1024


class ClientGone(Exception):
    """The client closed the connection before its request was whole. Nobody is left to answer."""


class Exchange:
    """Owned by the task that serves the request. `on_start` hears of the status once."""

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        request_id: str,
        response_headers: Mapping[str, str],
        on_start: Callable[[int], None],
        read_timeout_s: float = 30.0,
    ) -> None:
        self.path: str = scope["path"]
        self.method: str = scope["method"]
        self.headers = Headers(scope=scope)
        self.query = QueryParams(scope.get("query_string", b""))
        self.request_id = request_id
        self.peer = peer_of(scope)
        self.is_started = False
        self._response_headers = response_headers
        self._receive = receive
        self._send = send
        self._on_start = on_start
        self._read_timeout_s = read_timeout_s

    async def read_body(self, max_bytes: int) -> bytes:
        """Raises UnsupportedEncoding, RequestTooLarge as soon as the limit is known to be passed, RequestTimeout,
        and ClientGone."""
        encoding = self.headers.get("content-encoding", "").strip()
        if encoding.lower() not in ("", "identity"):
            raise UnsupportedEncoding(encoding[:_SHOWN_CHARS])
        length = self.headers.get("content-length", "")
        if length.isdecimal() and int(length) > max_bytes:
            raise _too_large(f"{length} bytes", max_bytes)
        chunks: list[bytes] = []
        num_bytes = 0
        begin_s = asyncio.get_running_loop().time()
        while True:
            message = await self._receive_by(begin_s + self._read_timeout_s + num_bytes / _MIN_BYTES_PER_S, num_bytes)
            if message["type"] == "http.disconnect":
                raise ClientGone
            chunk = message.get("body", b"")
            chunks.append(chunk)
            num_bytes += len(chunk)
            if num_bytes > max_bytes:
                raise _too_large("more", max_bytes)
            if not message.get("more_body", False):
                return b"".join(chunks)

    async def _receive_by(self, deadline_s: float, num_bytes: int) -> Message:
        """Raises RequestTimeout. A body in drops is given no more time than its length deserves."""
        try:
            async with asyncio.timeout_at(deadline_s):
                return await self._receive()
        except TimeoutError:
            message = f"The request's body did not come in time: {num_bytes} bytes of it did (--read-timeout)."
            raise RequestTimeout(message, param="body", retry_after_s=1.0) from None

    async def wait_for_disconnect(self) -> None:
        """Call after the body was read."""
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                return

    async def respond(
        self, status: int, body: bytes, headers: Mapping[str, str] | None = None, content_type: str = JSON_TYPE
    ) -> None:
        fixed = {"content-type": content_type, "content-length": str(len(body))}
        if status == 204:
            # It says that there is no content, and may not say how long it is (RFC 9110, section 8.6).
            fixed = {}
        await self.start(status, {**fixed, **(headers or {})})
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        self.is_started = True
        self._on_start(status)
        merged = {**headers, **self._response_headers}
        raw = [(name.encode("ascii"), header_value(value)) for name, value in merged.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": raw})

    async def write(self, data: bytes) -> None:
        """Waits while the connection's write buffer is full. Data for a client that is gone is dropped."""
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})


def _too_large(size: str, max_bytes: int) -> RequestTooLarge:
    message = f"The request body has {size}, but this server takes {max_bytes} bytes at most (--max-body-bytes)."
    return RequestTooLarge(message, param="body")
