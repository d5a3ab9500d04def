"""One connection of the native protocol: many turns over one WebSocket, and over the next one when that is lost.

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
from headrace.http_requests import answer_error
from headrace.native_frames import (
    PATH,
    ErrorFrame,
    GoAway,
    Hello,
    OtherFrame,
    TurnFrame,
    cancel_frame,
    create_frame,
    credit_frame,
    decode_frame,
    resume_frame,
)
from headrace.native_turn import NativeTurn
from headrace.request import TurnRequest
from headrace.turn_source import EventQueue

_MAX_FRAME_BYTES = 16 * 2**20
# RFC 6455 section 7.4.1. Of the others a new connection would meet the same end: policy, a frame too big, bad data.
_RETRYABLE_CLOSE_CODES = frozenset({1000, 1001, 1005, 1006, 1011, 1012, 1013, 1014, 1015})
_PROTOCOL_ERROR = 1002
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0


async def open_connection(config: ClientConfig) -> NativeConnection:
    """Connect and read the hello. Raises ConnectionFailed, APIError (the handshake was refused) or ProtocolError."""
    socket, hello = await _open_socket(config)
    return NativeConnection(config, socket, hello)


async def _open_socket(config: ClientConfig) -> tuple[ClientConnection, Hello]:
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
    return socket, hello


class NativeConnection:
    """A socket that is lost without a Close frame is opened anew, where the server keeps the turns for that."""

    def __init__(self, config: ClientConfig, socket: ClientConnection, hello: Hello) -> None:
        self.hello = hello
        self._config = config
        self._socket = socket
        # What to resume; the socket's own stream takes its place when that is gone.
        self._stream = self._own_stream = hello.stream
        self._turns: dict[str, NativeTurn] = {}
        self._turn_numbers = itertools.count(1)
        self._end: HeadraceError | None = None
        self._is_going_away = False
        # Cleared while there is no socket; set for good at the end.
        self._usable = asyncio.Event()
        self._usable.set()
        self._reader = asyncio.create_task(self._read(), name="headrace: read the socket")

    @property
    def is_open(self) -> bool:
        """False once the end is known here; the other side may be gone a while before."""
        return self._end is None

    @property
    def takes_turns(self) -> bool:
        """False as well when the server has said that it ends soon: what runs may end, new turns go elsewhere."""
        return self._end is None and not self._is_going_away

    async def create(self, request: TurnRequest) -> NativeTurn:
        """Send a turn and wait for its first frame. Raises what that frame says, or ConnectionLost.

        A cancellation while waiting cancels the turn.
        """
        model = request.model or next(iter(self.hello.models), None)
        if model is None:
            raise HeadraceError("the server offers no model", code="model_not_found")
        turn_id = f"t{next(self._turn_numbers)}"
        frame = create_frame(turn_id, model, request)
        turn = NativeTurn(turn_id, self, EventQueue(self._config.idle_timeout_s), frame, request.credit)
        self._turns[turn_id] = turn
        try:
            await self._send(frame)
            turn.is_sent = True
            await turn.wait_until_answered()
        except BaseException:
            await turn.aclose()
            raise
        return turn

    async def cancel(self, turn_id: str) -> None:
        """Ask the server to end a turn, where it still runs and the connection stands."""
        # Without a socket there is no need: a turn that was cancelled meanwhile is not taken up as one that runs.
        if turn_id in self._turns and self._end is None and self._usable.is_set():
            with contextlib.suppress(ConnectionClosed):
                await self._socket.send(cancel_frame(turn_id))

    async def grant(self, turn_id: str, credit: int) -> None:
        if turn_id in self._turns:
            with contextlib.suppress(ConnectionLost):
                await self._send(credit_frame(turn_id, credit))

    def forget(self, turn_id: str) -> None:
        """Drop what still comes for this turn."""
        self._turns.pop(turn_id, None)

    async def aclose(self) -> None:
        self._finish(ConnectionLost("the client was closed"))
        await self._socket.close()
        await asyncio.gather(self._reader, return_exceptions=True)

    async def _send(self, frame: str) -> None:
        """Over the next socket, where this one turns out to be lost."""
        while True:
            await self._usable.wait()
            if self._end is not None:
                raise copy.copy(self._end)
            socket = self._socket
            try:
                await socket.send(frame)
                return
            except ConnectionClosed:
                # The reader hears of it as well, and finds a new socket or ends everything.
                if socket is self._socket and self._end is None:
                    self._usable.clear()

    async def _read(self) -> None:
        try:
            while True:
                try:
                    await self._dispatch(await self._socket.recv(decode=True))
                except ConnectionClosed as closed:
                    if not await self._resume(closed):
                        self._finish(_lost(closed))
                        return
        except ProtocolError as error:
            self._finish(error)
            await self._socket.close(_PROTOCOL_ERROR)
        finally:
            # Whatever ends this task (the loop's end, a bug), no turn may be left waiting and no socket open.
            self._finish(ConnectionLost("the connection is not read any more"))
            self._socket.transport.abort()

    async def _dispatch(self, text: str) -> None:
        match decode_frame(text):
            case TurnFrame() as frame:
                # Absent: a turn that was given up here and whose last frames were on their way.
                turn = self._turns.get(frame.turn)
                if turn is None:
                    return
                if turn.is_to_be_sent_again(frame):
                    await self._socket.send(turn.create_frame)
                elif not turn.accept(frame):
                    self.forget(frame.turn)
            case ErrorFrame(error=error, ended=ended) if ended:
                for turn_id in ended:
                    self._end_turn(turn_id, error)
            case ErrorFrame(error=error):
                # A stream that could not be resumed is followed by an error for each of its turns.
                if error.code == "stream_not_found":
                    self._stream = self._own_stream
                else:
                    self._refuse_unanswered(error)
            case GoAway():
                self._is_going_away = True
            case Hello() | OtherFrame():
                pass

    def _end_turn(self, turn_id: str, error: APIError) -> None:
        """Also where the turn's own last frame, which says the same, is lost with the socket."""
        turn = self._turns.get(turn_id)
        if turn is not None:
            turn.fail(copy.copy(error))
            self.forget(turn_id)

    def _refuse_unanswered(self, error: APIError) -> None:
        """An error that names no turn can only be about a turn that has had no frame yet."""
        for turn in self._turns.values():
            if not turn.is_answered:
                turn.fail(copy.copy(error))

    async def _resume(self, closed: ConnectionClosed) -> bool:
        """Take up the turns on a new socket. A Close frame says that the server has ended them; without turns there is
        nothing to take up."""
        turns = {turn_id: turn for turn_id, turn in self._turns.items() if turn.is_sent}
        if closed.rcvd is not None or self._stream is None or not turns or self._end is not None:
            return False
        self._usable.clear()
        opened = await self._open_again()
        if opened is None or self._end is not None:
            return False
        self._socket, hello = opened
        self._own_stream = hello.stream
        last_seq = {turn_id: turn.last_seq for turn_id, turn in turns.items() if turn_id in self._turns}
        try:
            await self._socket.send(resume_frame(self._stream, last_seq))
            for turn_id in last_seq:
                if self._turns[turn_id].is_cancelled:
                    await self._socket.send(cancel_frame(turn_id))
        except ConnectionClosed:
            # The reader's next attempt to receive tells, and comes back here.
            pass
        self._usable.set()
        return True

    async def _open_again(self) -> tuple[ClientConnection, Hello] | None:
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + self._config.resume_timeout_s
        pause_s = _FIRST_PAUSE_S
        while loop.time() < give_up_s:
            try:
                async with asyncio.timeout_at(give_up_s):
                    return await _open_socket(self._config)
            except TimeoutError:
                return None
            except HeadraceError as error:
                if not error.retryable:
                    return None
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        return None

    def _finish(self, error: HeadraceError) -> None:
        if self._end is None:
            self._end = error
            turns, self._turns = self._turns, {}
            for turn in turns.values():
                turn.fail(copy.copy(error))
        self._usable.set()


def _lost(closed: ConnectionClosed) -> ConnectionLost:
    return ConnectionLost(f"the connection ended before the turn did: {closed}", retryable=_retryable(closed))


def _retryable(closed: ConnectionClosed) -> bool:
    return closed.rcvd is None or closed.rcvd.code in _RETRYABLE_CLOSE_CODES
