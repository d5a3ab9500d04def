"""The native protocol's connection: one reader, one writer, and a task a turn.

Turns run in parallel; those that name a lane run one after the other within it. The writer sends what each turn has,
turn by turn, so a turn with much to say does not hold back the others; a client that reads slowly fills only its own
outboxes. Errors stay as narrow as they can: a turn's, else the connection's, and the connection stays open.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from gateway import __version__
from gateway.auth import Authenticator, check_origin
from gateway.errors import GatewayError, InvalidRequest, NotFound, TooManyTurns
from gateway.outbox import Outbox
from gateway.protocols import native
from gateway.protocols.frames import Frame, TurnLabels, openai_error_body
from gateway.service import Service
from gateway.turn import LiveTurn
from gateway.types import ChatTurn, TurnDone, TurnFailed, Usage

log = logging.getLogger("headrace.websocket")

_MAX_CONTROL_FRAMES = 256


async def serve_websocket(
    service: Service, authenticator: Authenticator, scope: Scope, receive: Receive, send: Send
) -> None:
    await receive()  # websocket.connect
    headers = Headers(scope=scope)
    try:
        authenticator.check(headers)
        check_origin(headers, service.config.allowed_origins)
        if scope["path"].rstrip("/") != native.PATH:
            raise NotFound(f"There is no WebSocket at {scope['path']}: connect to {native.PATH}.")
    except GatewayError as error:
        await _refuse(scope, send, error)
        return
    await send({"type": "websocket.accept"})
    with service.metrics.open_stream("websocket"):
        await Connection(service, receive, send).run()


async def _refuse(scope: Scope, send: Send, error: GatewayError) -> None:
    """As an HTTP response where the server can send one before the upgrade; as a close code otherwise."""
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008, "reason": error.code})
        return
    body = openai_error_body(error, "")
    headers = {"content-type": "application/json", "content-length": str(len(body)), **error.headers()}
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "websocket.http.response.start", "status": error.status, "headers": raw})
    await send({"type": "websocket.http.response.body", "body": body, "more_body": False})


class _Channel:
    """One turn on this connection, from its turn.create to its last frame."""

    def __init__(self, connection: Connection, create: native.TurnCreate, turn: ChatTurn, labels: TurnLabels) -> None:
        self.id = create.turn
        self.lane = create.lane
        self.turn = turn
        self.labels = labels
        self.encoder = native.NativeEncoder(create.turn, labels, turn.warnings)
        self.outbox = Outbox(connection.config.max_pending_chars, lambda: connection.wake(self))
        self.live: LiveTurn | None = None


class Connection:
    """Runs in one task (the reader's) plus the writer's; `run` returns when the client is gone and nothing is left."""

    def __init__(self, service: Service, receive: Receive, send: Send) -> None:
        self.config = service.config
        self._service = service
        self._receive = receive
        self._send = send
        self._channels: dict[str, _Channel] = {}
        self._lanes: dict[str, deque[_Channel]] = {}
        self._control: deque[Frame] = deque()
        self._ready: deque[_Channel] = deque()
        self._wake = asyncio.Event()
        self._control_room = asyncio.Event()
        self._is_deaf = False  # nothing that is written reaches the client any more

    def wake(self, channel: _Channel) -> None:
        self._ready.append(channel)
        self._wake.set()

    async def run(self) -> None:
        limits = {"max_turns": self.config.max_connection_turns, "max_frame_bytes": self.config.max_body_bytes}
        max_model_len = self._service.backend.max_model_len
        if max_model_len is not None:
            limits["max_model_len"] = max_model_len
        self._put_control(native.hello_frame(self.config.served_names, f"headrace/{__version__}", limits))
        writer = asyncio.create_task(self._write(), name="websocket writer")
        try:
            await self._read()
        finally:
            writer.cancel()
            live_turns = [channel.live for channel in self._channels.values() if channel.live is not None]
            for live in live_turns:
                live.stop()
            await asyncio.wait([writer])
            await asyncio.gather(*(live.join() for live in live_turns))

    # Reading

    async def _read(self) -> None:
        while True:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                return
            try:
                self._handle(native.decode_frame(self._text(message)))
            except GatewayError as error:
                self._put_control(native.error_frame(error))
            # A client that sends without reading is not read either.
            while len(self._control) > _MAX_CONTROL_FRAMES and not self._is_deaf:
                self._control_room.clear()
                await self._control_room.wait()

    def _text(self, message: Message) -> str:
        text: str | None = message.get("text")
        if text is None:
            raise InvalidRequest(None, "Frames must be text, got a binary one.", code="invalid_frame")
        if len(text) > self.config.max_body_bytes:
            limit = self.config.max_body_bytes
            message_text = f"The frame has {len(text)} characters, but this server takes {limit} (--max-body-bytes)."
            raise InvalidRequest(None, message_text, code="frame_too_large")
        return text

    def _handle(self, frame: native.ClientFrame) -> None:
        match frame:
            case native.TurnCreate():
                self._create(frame)
            case native.TurnCancel(turn=turn):
                self._cancel(turn)
            case native.Ping():
                self._put_control(native.pong_frame(frame))

    def _create(self, create: native.TurnCreate) -> None:
        if create.turn in self._channels:
            message = f"The turn {create.turn!r} is still running on this connection: choose another id."
            raise InvalidRequest("turn", message, code="turn_in_use")
        try:
            if len(self._channels) >= self.config.max_connection_turns:
                limit = self.config.max_connection_turns
                message = f"This connection has {limit} turns, as many as it takes (--max-connection-turns)."
                raise TooManyTurns(message, retry_after_s=1.0)
            turn = native.decode_turn(create)
            channel = _Channel(self, create, turn, self._service.runner.labels(turn, "turn_"))
        except GatewayError as error:
            self._put_control(native.turn_error_frame(create.turn, error))
            return
        self._channels[channel.id] = channel
        self._enter_lane(channel)

    def _cancel(self, turn: str) -> None:
        """An id without a turn is no error: the cancel and the turn's end may have crossed."""
        channel = self._channels.get(turn)
        if channel is None:
            return
        if channel.live is not None:
            channel.live.stop()
        elif not channel.outbox.is_closed:
            channel.outbox.put(TurnDone(Usage(0, 0)))

    # Lanes

    def _enter_lane(self, channel: _Channel) -> None:
        if channel.lane is not None:
            lane = self._lanes.setdefault(channel.lane, deque())
            lane.append(channel)
            if len(lane) > 1:
                return
        self._start(channel)

    def _start(self, channel: _Channel) -> None:
        channel.live = self._service.runner.start(channel.turn, channel.labels, channel.outbox)

    def _leave(self, channel: _Channel) -> None:
        """Frees the id, and starts the lane's next turn if this one was its first."""
        del self._channels[channel.id]
        if channel.lane is None:
            return
        lane = self._lanes[channel.lane]
        was_first = lane[0] is channel
        lane.remove(channel)
        if not lane:
            del self._lanes[channel.lane]
        elif was_first and not lane[0].outbox.is_closed:
            self._start(lane[0])

    # Writing

    def _put_control(self, frame: Frame) -> None:
        self._control.append(frame)
        self._wake.set()

    async def _write(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                await self._write_waiting()
        except OSError:
            # The client is gone; the reader hears of it as well and ends the connection.
            pass
        except Exception:
            log.exception("the writer of a connection failed")
            await self._send({"type": "websocket.close", "code": 1011})
        finally:
            self._is_deaf = True
            self._control_room.set()

    async def _write_waiting(self) -> None:
        while self._control or self._ready:
            while self._control:
                await self._send_frame(self._control.popleft())
            self._control_room.set()
            if self._ready:
                await self._write_channel(self._ready.popleft())

    async def _write_channel(self, channel: _Channel) -> None:
        for item in channel.outbox.take():
            frames = channel.encoder.encode(item)
            if isinstance(item, (TurnDone, TurnFailed)):
                # Before the last frame is out: who reads it may use the id again.
                self._leave(channel)
            for frame in frames:
                await self._send_frame(frame)

    async def _send_frame(self, frame: Frame) -> None:
        await self._send({"type": "websocket.send", "text": frame.data.decode()})
