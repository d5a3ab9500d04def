"""One connection of the native protocol: many turns over one WebSocket; knows nothing of reconnecting.

All methods belong to the event loop that opened the connection. One task reads the socket and hands each frame to its
turn; nothing a turn's reader does or leaves undone can stop that task.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import itertools

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from headrace.config import ClientConfig
from headrace.errors import APIError, ConnectionFailed, ConnectionLost, HeadraceError, ProtocolError
from headrace.events import Event, TurnDone
from headrace.http_requests import answer_error
from headrace.native_frames import (
    PATH,
    ErrorFrame,
    Hello,
    OtherFrame,
    TurnFrame,
    cancel_frame,
    create_frame,
    decode_frame,
)
from headrace.request import TurnRequest
from headrace.turn_source import EventQueue

_MAX_FRAME_BYTES = 16 * 2**20
# RFC 6455 section 7.4.1. Of the others a new connection would meet the same end: policy, a frame too big, bad data.
_RETRYABLE_CLOSE_CODES = frozenset({1000, 1001, 1005, 1006, 1011, 1012, 1013, 1014, 1015})
_PROTOCOL_ERROR = 1002


async def open_connection(config: ClientConfig) -> NativeConnection:
    """Connect and read the hello. Raises ConnectionFailed, APIError (the handshake was refused) or ProtocolError."""
    url = config.ws_url + PATH
    try:
        async with asyncio.timeout(config.connect_timeout_s):
            socket = await connect(
                url,
                additional_headers=config.headers,
                proxy=True if config.use_proxy else None,
                # Token frames are small: compressing each costs more time than it saves.
                compression=None,
                max_size=_MAX_FRAME_BYTES,
                open_timeout=None,
            )
            try:
                hello = decode_frame(await socket.recv(decode=True))
            except BaseException:
                await socket.close()
                raise
    except InvalidStatus as error:
        headers = {name.lower(): value for name, value in error.response.headers.raw_items()}
        raise answer_error(error.response.status_code, bytes(error.response.body or b""), headers) from error
    except TimeoutError as error:
        raise ConnectionFailed(f"no answer from {url} within {config.connect_timeout_s} s") from error
    except ConnectionClosed as closed:
        message = f"{url} ended the connection at once: {closed}"
        raise ConnectionFailed(message, retryable=_retryable(closed)) from closed
    except (OSError, InvalidHandshake, InvalidURI) as error:
        raise ConnectionFailed(f"can't connect to {url}: {error}") from error

    if not isinstance(hello, Hello):
        await socket.close(_PROTOCOL_ERROR)
        raise hello.error if isinstance(hello, ErrorFrame) else ProtocolError("the first frame is no hello")
    return NativeConnection(socket, hello, config.idle_timeout_s)


class NativeConnection:
    def __init__(self, socket: ClientConnection, hello: Hello, idle_timeout_s: float | None) -> None:
        self.hello = hello
        self._socket = socket
        self._idle_timeout_s = idle_timeout_s
        self._turns: dict[str, NativeTurn] = {}
        self._turn_numbers = itertools.count(1)
        self._end: HeadraceError | None = None
        self._reader = asyncio.create_task(self._read(), name="headrace: read the socket")

    @property
    def is_open(self) -> bool:
        """False once the end is known here; the other side may be gone a while before."""
        return self._end is None

    async def create(self, request: TurnRequest) -> NativeTurn:
        """Send a turn and wait for its first frame. Raises what that frame says, or ConnectionLost.

        A cancellation while waiting cancels the turn.
        """
        model = request.model or next(iter(self.hello.models), None)
        if model is None:
            raise HeadraceError("the server offers no model", code="model_not_found")
        turn_id = f"t{next(self._turn_numbers)}"
        frame = create_frame(turn_id, model, request)
        turn = NativeTurn(turn_id, self, EventQueue(self._idle_timeout_s))
        self._turns[turn_id] = turn
        try:
            await self._send(frame)
            await turn.wait_until_answered()
        except BaseException:
            await turn.aclose()
            raise
        return turn

    async def cancel(self, turn_id: str) -> None:
        """Ask the server to end a turn, where it still runs and the connection stands."""
        if turn_id in self._turns and self._end is None:
            with contextlib.suppress(ConnectionLost):
                await self._send(cancel_frame(turn_id))

    def forget(self, turn_id: str) -> None:
        """Drop what still comes for this turn."""
        self._turns.pop(turn_id, None)

    async def aclose(self) -> None:
        self._finish(ConnectionLost("the client was closed"))
        await self._socket.close()
        await asyncio.gather(self._reader, return_exceptions=True)

    async def _send(self, frame: str) -> None:
        try:
            await self._socket.send(frame)
        except ConnectionClosed as closed:
            raise copy.copy(self._end) or _lost(closed) from closed

    async def _read(self) -> None:
        try:
            while True:
                self._dispatch(await self._socket.recv(decode=True))
        except ConnectionClosed as closed:
            self._finish(_lost(closed))
        except ProtocolError as error:
            self._finish(error)
            await self._socket.close(_PROTOCOL_ERROR)
        finally:
            # Whatever ends this task (the loop's end, a bug), no turn may be left waiting and no socket open.
            self._finish(ConnectionLost("the connection is not read any more"))
            self._socket.transport.abort()

    def _dispatch(self, text: str) -> None:
        match decode_frame(text):
            case TurnFrame() as frame:
                # Absent: a turn that was given up here and whose last frames were on their way.
                if (turn := self._turns.get(frame.turn)) is not None and not turn.accept(frame):
                    self.forget(frame.turn)
            case ErrorFrame(error=error):
                self._refuse_unanswered(error)
            case Hello() | OtherFrame():
                pass

    def _refuse_unanswered(self, error: APIError) -> None:
        """An error that names no turn can only be about a turn that has had no frame yet."""
        for turn in self._turns.values():
            if not turn.is_answered:
                turn.fail(copy.copy(error))

    def _finish(self, error: HeadraceError) -> None:
        if self._end is None:
            self._end = error
            turns, self._turns = self._turns, {}
            for turn in turns.values():
                turn.fail(copy.copy(error))


class NativeTurn:
    """One turn's receiving end (a `TurnSource`)."""

    def __init__(self, turn_id: str, connection: NativeConnection, events: EventQueue) -> None:
        self._id = turn_id
        self._connection = connection
        self._events = events
        self._first: Event | None = None
        self._next_seq = 0
        self._cancelled = False

    @property
    def is_answered(self) -> bool:
        return self._next_seq > 0

    def accept(self, frame: TurnFrame) -> bool:
        """Take the turn's next frame; return whether more may follow."""
        if frame.seq != self._next_seq:
            self.fail(ProtocolError(f"turn {self._id}: frame {frame.seq} came where {self._next_seq} was due"))
            return True
        self._next_seq += 1
        if frame.body is not None:
            self._events.put(frame.body)
        return not isinstance(frame.body, TurnDone | HeadraceError)

    def fail(self, error: HeadraceError) -> None:
        self._events.put(error)

    async def wait_until_answered(self) -> None:
        self._first = await self._events.get()

    async def next_event(self) -> Event:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        return await self._events.get()

    async def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            await self._connection.cancel(self._id)

    async def aclose(self) -> None:
        try:
            await self.cancel()
        finally:
            self._connection.forget(self._id)


def _lost(closed: ConnectionClosed) -> ConnectionLost:
    return ConnectionLost(f"the connection ended before the turn did: {closed}", retryable=_retryable(closed))


def _retryable(closed: ConnectionClosed) -> bool:
    return closed.rcvd is None or closed.rcvd.code in _RETRYABLE_CLOSE_CODES
