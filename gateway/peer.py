"""The client's end of a connection, as far as the server can tell: whether it still takes what is written to it.

A client that reads slowly is waited for as long as it takes anything at all; one that takes nothing for a while has
stopped. What it still gets then is written without waiting for it, so that its stream ends as the protocol says, and
the connection is dropped when it does not take that either. Knows nothing of turns.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Protocol, cast

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.http_connection import http_protocol

if sys.platform == "win32":  # pragma: no cover
    fcntl = None
else:
    import fcntl
    import termios

EXTENSION = "headrace.peer"

# As often is progress looked for within the patience. Looks are counted and not seconds: while this process stands
# still, nobody reads or writes.
_NUM_LOOKS = 4


class Peer(Protocol):
    def num_unread_bytes(self) -> int:
        """Of what was written, how many bytes the client's machine has not taken; 0 where that cannot be told."""

    def let_out(self) -> bool:
        """What is being written, and all that follows, waits for the client no more. False where that cannot be."""

    def abort(self) -> None:
        """Drops the connection and what waits in it, at once."""


class BarePeer:
    """Over bare ASGI, whatever server runs it."""

    def num_unread_bytes(self) -> int:
        return 0

    def let_out(self) -> bool:
        return False

    def abort(self) -> None:
        pass


class _HttpPeer:
    """Of a connection of uvicorn's, whichever of its HTTP protocols that has."""

    def __init__(self, protocol: Any) -> None:
        self._protocol = protocol

    def num_unread_bytes(self) -> int:
        return num_unread_bytes(self._protocol.transport)

    def let_out(self) -> bool:
        # Whoever waits in uvicorn's `send` goes on. The transport says only once that it is full.
        self._protocol.flow.resume_writing()
        return True

    def abort(self) -> None:
        self._protocol.transport.abort()


def http_connection(read_timeout_s: float, *args: Any, **options: Any) -> asyncio.Protocol:
    """uvicorn makes one a connection. Its requests have their peer in the scope's extensions."""
    protocol: Any = http_protocol(read_timeout_s, *args, **options)
    app: ASGIApp = protocol.app
    extension = {EXTENSION: _HttpPeer(protocol)}

    def with_peer(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        scope["extensions"] = {**scope.get("extensions", {}), **extension}
        return app(scope, receive, send)

    protocol.app = with_peer
    return cast(asyncio.Protocol, protocol)


def peer_of(scope: Scope) -> Peer:
    return cast(Peer, scope.get("extensions", {}).get(EXTENSION) or BarePeer())


def num_unread_bytes(transport: asyncio.Transport) -> int:
    return transport.get_write_buffer_size() + num_queued_bytes(transport)


def num_queued_bytes(transport: asyncio.Transport) -> int:
    """Bytes in the kernel that the peer has not acknowledged (tcp(7), SIOCOUTQ); 0 where that cannot be asked."""
    socket = transport.get_extra_info("socket")
    if fcntl is None or socket is None or socket.fileno() < 0:
        return 0
    try:
        return int.from_bytes(fcntl.ioctl(socket.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)
    except OSError:
        return 0


class WriteWatch:
    """Looks on while a stream is written: `with watch: await write(data)`. One timer a stream, none a write.

    on_progress: the client has taken something of what is being written. on_stuck: it has taken nothing for
    `patience_s` and up to a quarter more; what is written is then let out, or the writing task cancelled (is_cut) where
    the server cannot do that. None: whoever is stuck is waited for. Make it in the writing task, and close it.
    """

    def __init__(
        self,
        peer: Peer,
        patience_s: float,
        on_progress: Callable[[], object],
        on_stuck: Callable[[], object] | None,
    ) -> None:
        self.is_stuck = False
        self.is_cut = False
        self._peer = peer
        self._patience_s = patience_s
        self._on_progress = on_progress
        self._on_stuck = on_stuck
        self._task = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        self._is_writing = False
        self._num_vain_looks = 0
        self._num_unread_bytes = 0
        self._timer = self._loop.call_later(patience_s / _NUM_LOOKS, self._look)

    def __enter__(self) -> None:
        self._is_writing, self._num_vain_looks = True, 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_writing = False

    def close(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        before, self._num_unread_bytes = self._num_unread_bytes, self._peer.num_unread_bytes()
        if self._is_writing and self._num_unread_bytes < before:
            self._num_vain_looks = 0
            self._on_progress()
        elif self._is_writing and self._on_stuck is not None:
            self._num_vain_looks += 1
            if self._num_vain_looks > _NUM_LOOKS:
                self._give_up(self._on_stuck)
                return
        self._timer = self._loop.call_later(self._patience_s / _NUM_LOOKS, self._look)

    def _give_up(self, on_stuck: Callable[[], object]) -> None:
        self.is_stuck = True
        on_stuck()
        if not self._peer.let_out():
            self.is_cut = True
            assert self._task is not None
            self._task.cancel()


async def part_from(peer: Peer, patience_s: float) -> None:
    """After the last write to a client that was stuck: returns when it has taken everything. Its connection is dropped
    when it takes nothing for `patience_s`."""
    num_bytes = peer.num_unread_bytes()
    while num_bytes > 0:
        await asyncio.sleep(patience_s)
        num_left = peer.num_unread_bytes()
        if num_left >= num_bytes:
            peer.abort()
            return
        num_bytes = num_left
