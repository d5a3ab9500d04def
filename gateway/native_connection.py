"""One socket of the native protocol: a reader, a writer, and the stream they carry.

The writer sends what each turn has, turn by turn and many frames at once, so a turn with much to say does not hold
back the others; a client that reads slowly fills only its own outboxes. Errors stay as narrow as they can: a turn's,
a lane's, else the connection's, and the connection stays open.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from starlette.types import Message, Receive, Scope, Send

from gateway import __version__
from gateway.errors import GatewayError, InvalidRequest, RequestTooLarge
from gateway.frame_socket import LOST, FrameSocket, frame_socket
from gateway.mux import Stream
from gateway.peer import WriteWatch
from gateway.protocols import native
from gateway.protocols.native_codec import Codec, negotiate
from gateway.request_body import INLINE_BYTES
from gateway.service import Service

log = logging.getLogger("headrace.native")

_MAX_CONTROL_FRAMES = 256
# One write to the socket; what is larger goes in several, so that what comes meanwhile is sent in turn.
_BATCH_BYTES = 64 * 1024
# RFC 6455, section 7.4.2: 4000 to 4999 are for private use.
SUPERSEDED = 4001
# Without a Close frame; and with the one that a client sends whose pings were not answered.
_LOST_CODES = frozenset({LOST, 1011})
_CLOSE_TIMEOUT_S = 1.0
# A system call a write costs as much as ten tokens. One stream alone never waits for this.
_WRITE_INTERVAL_S = 0.001


async def serve_native(service: Service, owner: str, scope: Scope, receive: Receive, send: Send) -> None:
    codec, subprotocol = negotiate(scope.get("subprotocols", ()))
    await send({"type": "websocket.accept", "subprotocol": subprotocol})
    await NativeConnection(service, owner, codec, frame_socket(scope, send), receive).run()


class NativeConnection:
    """Runs in one task (the reader's) plus the writer's; `run` returns when the client is gone. Its turns are over
    then, or wait in the hub for the client to come back."""

    def __init__(self, service: Service, owner: str, codec: Codec, socket: FrameSocket, receive: Receive) -> None:
        self.config = service.config
        self._service = service
        self._owner = owner
        self._codec = codec
        self._socket = socket
        self._receive = receive
        self._control: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._control_room = asyncio.Event()
        self._is_deaf = False  # nothing that is written reaches the client any more
        self._is_writing = False
        self._reader = asyncio.current_task()
        self._is_superseded = False
        self._may_resume = True
        self._stream = service.streams.open(owner, codec, self)

    async def run(self) -> None:
        self._carry(self._stream)
        self._put(self._hello())
        writer = asyncio.create_task(self._write(), name="websocket writer")
        code = None
        try:
            code = await self._read()
        except asyncio.CancelledError:
            if not self._is_superseded:
                raise
        finally:
            writer.cancel()
            await asyncio.wait([writer])
            await self._end(code)

    async def _end(self, code: int | None) -> None:
        if self._is_superseded:
            await self._close(SUPERSEDED)
            return
        self._stream.on_wake = None
        if code in _LOST_CODES:
            self._service.streams.lose(self._stream)
            return
        live_turns = self._service.streams.close(self._stream)
        await asyncio.gather(*(live.join() for live in live_turns))

    def supersede(self) -> None:
        self._is_superseded = True
        assert self._reader is not None
        self._reader.cancel()

    def go_away(self, deadline_s: float) -> None:
        self._put(native.goaway(deadline_s))

    async def flush(self) -> None:
        # Polled, since only the server's end asks: the writer need not tell anybody for each batch.
        while not self._is_deaf and (self._is_writing or self._control or self._stream.has_frames):  # noqa: ASYNC110
            await asyncio.sleep(_WRITE_INTERVAL_S)

    async def _close(self, code: int) -> None:
        """A client that does not even read this is cut off."""
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._socket.close(code)
        except (OSError, TimeoutError):
            self._socket.abort()

    def _hello(self) -> dict[str, object]:
        limits = {"max_turns": self.config.max_connection_turns, "max_frame_bytes": self.config.max_body_bytes}
        max_model_len = self._service.backend.max_model_len
        if max_model_len is not None:
            limits["max_model_len"] = max_model_len
        token = self._stream.token if self.config.resume_grace_s > 0 else None
        return native.hello(self._service.runner.models.names, f"headrace/{__version__}", limits, token)

    def _carry(self, stream: Stream) -> None:
        self._stream = stream
        stream.on_wake = self._wake.set

    # Reading

    async def _read(self) -> int:
        """Returns the code that the connection ended with."""
        while True:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                return int(message.get("code", LOST))
            try:
                data = self._data(message)
                if len(data) > INLINE_BYTES:
                    frame = await asyncio.to_thread(native.decode_ahead, data, self._codec)
                else:
                    frame = native.decode_frame(data, self._codec)
                self._handle(frame, len(data))
            except GatewayError as error:
                self._put(native.connection_error(error))
            # A client that sends without reading is not read either.
            while len(self._control) > _MAX_CONTROL_FRAMES and not self._is_deaf:
                self._control_room.clear()
                await self._control_room.wait()

    def _data(self, message: Message) -> str | bytes:
        data: str | bytes | None = message.get("text")
        if data is None:
            data = message["bytes"]
        if len(data) > self.config.max_body_bytes:
            limit, unit = self.config.max_body_bytes, "characters" if isinstance(data, str) else "bytes"
            message_text = f"The frame has {len(data)} {unit}, but this server takes {limit} (--max-body-bytes)."
            raise RequestTooLarge(message_text, code="frame_too_large")
        return data

    def _handle(self, frame: native.ClientFrame, num_bytes: int) -> None:
        match frame:
            case native.TurnCreate():
                self._may_resume = False
                self._create(frame, num_bytes)
            case native.TurnCancel(turn=turn):
                self._stream.cancel(turn)
            case native.TurnCredit():
                self._stream.grant(frame)
            case native.Resume():
                self._resume(frame)
            case native.Ping():
                self._put(native.pong(frame))

    def _create(self, create: native.TurnCreate, num_bytes: int) -> None:
        try:
            refusal = self._stream.create(create, num_bytes)
        except GatewayError as error:
            self._put(native.connection_error(error, create.turn))
            return
        if refusal is not None:
            self._put_raw(refusal)

    def _resume(self, resume: native.Resume) -> None:
        if not self._may_resume:
            message = "resume must come before the connection's first turn.create, and once."
            raise InvalidRequest("type", message, code="resume_too_late")
        self._may_resume = False
        if resume.stream == self._stream.token:
            raise InvalidRequest("stream", "This is the stream of this connection: name that of the one that was lost.")
        try:
            stream = self._service.streams.take_over(resume.stream, self._owner, self._codec, self)
        except GatewayError as error:
            self._put(native.connection_error(error))
            for turn, seq in resume.last_seq.items():
                self._put(native.turn_error(turn, error, seq + 1))
            return
        self._service.streams.close(self._stream)
        for frame in stream.resume(resume.last_seq):
            self._put_raw(frame)
        self._carry(stream)

    # Writing

    def _put(self, fields: dict[str, object]) -> None:
        self._put_raw(self._codec.dump(fields))

    def _put_raw(self, frame: bytes) -> None:
        self._control.append(frame)
        self._wake.set()

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        patience_s = self.config.slow_reader_timeout_s
        watch = WriteWatch(self._socket, patience_s, lambda: self._stream.reader_moved(), None)
        try:
            written_s = 0.0
            while True:
                await self._wake.wait()
                early_s = written_s + _WRITE_INTERVAL_S - loop.time()
                if early_s > 0:
                    await asyncio.sleep(early_s)
                self._wake.clear()
                while frames := self._next_batch():
                    self._is_writing = True
                    with watch:
                        await self._socket.send_frames(frames, self._codec.is_text)
                    self._is_writing = False
                written_s = loop.time()
        except OSError:
            # The client is gone; the reader hears of it as well and ends the connection.
            pass
        except Exception:
            log.exception("the writer of a connection failed")
            await self._close(1011)
        finally:
            watch.close()
            self._is_deaf = True
            self._control_room.set()

    def _next_batch(self) -> list[bytes]:
        """What waits, control frames first. Empty when nothing does."""
        if self._is_superseded:
            # The stream is another socket's; what is taken from it here would be lost.
            return []
        batch = list(self._control)
        self._control.clear()
        self._control_room.set()
        num_bytes = sum(map(len, batch))
        while num_bytes < _BATCH_BYTES:
            frames = self._stream.next_frames()
            if frames is None:
                break
            batch += frames
            num_bytes += sum(map(len, frames))
        return batch
