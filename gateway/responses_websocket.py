"""Responses on a WebSocket: lanes side by side, the responses of one lane one after the other.

One reader, one writer, and a task a turn. What a client does not want stored lives as long as its connection: the
latest response of each lane, from which any lane may go on. Every response.create is answered by a terminal event or
by an error frame, in the order of its lane; closing the socket ends them all.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from starlette.types import Message, Receive, Scope, Send

from gateway.errors import GatewayError, InvalidRequest, NotFound, RequestTooLarge, ShuttingDown
from gateway.frame_socket import FrameSocket, frame_socket
from gateway.outbox import Outbox
from gateway.peer import WriteWatch, part_from
from gateway.protocols.responses_request import ResponsesRequest
from gateway.protocols.responses_socket import (
    ConnectionLimitReached,
    ResponseCreate,
    decode_ahead,
    decode_create,
    decode_frame,
    steer_failed,
)
from gateway.request_body import INLINE_BYTES
from gateway.responses_lanes import Job, LaneTable
from gateway.responses_store import Context, parent_not_found
from gateway.responses_turns import (
    OpenResponse,
    Recorder,
    as_responses_error,
    context_of,
    open_response,
    remember,
    whole_answer,
)
from gateway.service import Service
from gateway.turn import slow_reader
from gateway.types import TurnFailed, TurnItem

log = logging.getLogger("headrace.responses")

_BATCH_BYTES = 64 * 1024
# Answers that need no turn, waiting for a client that does not read.
_MAX_CONTROL_BYTES = 1024 * 1024
# Errors waiting for their place behind what runs.
_MAX_REFUSED = 1024
_CLOSE_FAULT = 1011
_CLOSE_TRY_LATER = 1013


async def serve_responses(service: Service, owner: str, scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "websocket.accept"})
    await ResponsesConnection(service, owner, frame_socket(scope, send), receive).run()


class ResponsesConnection:
    """Runs in one task (the reader's) plus the writer's and the keepalives'; `run` returns when nothing is left."""

    def __init__(self, service: Service, owner: str, socket: FrameSocket, receive: Receive) -> None:
        self._service = service
        self._config = service.config
        self._owner = owner
        self._socket = socket
        self._receive = receive
        self._lanes = LaneTable(self._config.max_connection_turns, self._config.max_body_bytes)
        self._control: deque[bytes] = deque()
        self._num_control_bytes = 0
        self._ready: deque[Job] = deque()
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._is_deaf = False  # nothing that is written reaches the client any more
        self._is_leaving = False  # the client has stopped reading: it gets the ends of what runs, and a Close frame
        self._loop = asyncio.get_running_loop()
        self._opened_s = self._loop.time()

    async def run(self) -> None:
        helpers = [
            asyncio.create_task(self._write(), name="websocket writer"),
            asyncio.create_task(self._keep_alive(), name="websocket writer keepalives"),
        ]
        try:
            await self._read()
        finally:
            for helper in helpers:
                helper.cancel()
            live_turns = [job.live for job in self._lanes.active if job.live is not None]
            for live in live_turns:
                live.stop()
            await asyncio.wait(helpers)
            await asyncio.gather(*(live.join() for live in live_turns))
        if self._is_leaving:
            await part_from(self._socket, self._config.slow_reader_timeout_s)

    # Reading

    async def _read(self) -> None:
        while True:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                return
            await self._handle(message)
            self._start_next()
            # A client that sends without reading is not read either.
            while self._has_much_to_say and not self._is_deaf:
                self._room.clear()
                await self._room.wait()

    @property
    def _has_much_to_say(self) -> bool:
        return self._num_control_bytes > _MAX_CONTROL_BYTES or self._lanes.num_refused > _MAX_REFUSED

    async def _handle(self, message: Message) -> None:
        data: str | bytes | None = message.get("text")
        if data is None:
            data = message["bytes"]
        # What has no stream_id belongs to the default lane, so what cannot be read is answered in its order.
        stream_id: str | None = None
        now_s = self._loop.time()
        try:
            # Of a frame that is too large only its lane is wanted.
            decode = decode_ahead if len(data) <= self._config.max_body_bytes else decode_frame
            frame = await asyncio.to_thread(decode, data) if len(data) > INLINE_BYTES else decode_frame(data)
            if not isinstance(frame, ResponseCreate):
                self._put(steer_failed(frame))
                return
            stream_id = frame.stream_id
            self._check_create(len(data), now_s)
            self._lanes.add(frame, len(data), now_s)
        except GatewayError as error:
            self._lanes.refuse(stream_id, error, now_s)

    def _check_create(self, num_chars: int, now_s: float) -> None:
        """Raises RequestTooLarge, ConnectionLimitReached."""
        limit = self._config.max_body_bytes
        if num_chars > limit:
            text = f"The frame has {num_chars} characters, but this server takes {limit} (--max-body-bytes)."
            raise RequestTooLarge(text)
        if now_s - self._opened_s > self._config.responses_socket_age_s:
            raise ConnectionLimitReached

    # Responses

    def _start_next(self) -> None:
        if self._is_leaving:
            return
        if self._service.admission.is_draining:
            # Here and not from the turns: the socket is about to close, and this goes out with what ended before.
            self._lanes.refuse_waiting(ConnectionLimitReached)
        while (job := self._lanes.next_job()) is not None:
            try:
                self._start(job)
            except GatewayError as error:
                self._put(self._refuse(job, error))
                self._lanes.leave(job)

    def _start(self, job: Job) -> None:
        """Raises GatewayError."""
        if job.refusal is not None:
            raise job.refusal
        assert job.create is not None
        request = decode_create(job.create)
        number = job.num_early_keepalives
        job.response = open_response(self._service, self._owner, request, self._find_parent, number)
        if request.compacts:
            self._answer_whole(job)
            return
        job.recorder = Recorder(job.response, lambda ended: self._remember(job, ended))
        job.outbox = Outbox(self._config.max_pending_chars, lambda: self._on_ready(job))
        job.live = self._service.runner.start(job.response.turn.chat, job.response.labels, job.outbox)

    def _answer_whole(self, job: Job) -> None:
        assert job.response is not None
        for frame in whole_answer(job.response):
            self._put(job.lane.frames.data(frame))
        self._remember(job, job.response)
        self._lanes.leave(job)

    def _find_parent(self, response_id: str) -> Context | None:
        """Raises InvalidRequest for a stored response that did not complete."""
        context = self._lanes.find(response_id)
        if context is not None:
            return context
        try:
            stored = self._service.responses.get(self._owner, response_id)
        except NotFound:
            return None
        if stored.source.status != "completed":
            raise parent_not_found(response_id, f" It is {stored.source.status}.")
        return stored.context

    def _remember(self, job: Job, response: OpenResponse) -> None:
        remember(self._service.responses, response)
        status = response.encoder.status
        if status == "completed":
            context = context_of(response)
            assert context is not None
            self._lanes.remember(job.lane, response.labels.turn_id, context)
        elif status == "failed":
            self._lanes.forget(job.lane)

    def _refuse(self, job: Job, error: GatewayError) -> bytes:
        """An error instead of a response; the lane forgets where it was, as the client will."""
        if job.create is not None:
            self._lanes.forget(job.lane)
        return job.lane.frames.error(as_responses_error(error))

    # Writing

    def _put(self, data: bytes) -> None:
        self._control.append(data)
        self._num_control_bytes += len(data)
        self._wake.set()

    def _on_ready(self, job: Job) -> None:
        self._ready.append(job)
        self._wake.set()

    async def _keep_alive(self) -> None:
        """Marks the responses whose lanes have been silent; the writer numbers their keepalives. Behind the one that
        its lane answers next, a response waits without any: they would stand between the events of the other."""
        interval_s = self._config.keepalive_s
        while True:
            await asyncio.sleep(interval_s / 4)
            now_s = self._loop.time()
            for job in self._lanes.heads:
                if not job.is_silent and now_s - job.lane.silent_since_s >= interval_s:
                    job.is_silent = True
                    self._on_ready(job)

    async def _write(self) -> None:
        watch = WriteWatch(self._socket, self._config.slow_reader_timeout_s, self._on_progress, self._give_up)
        try:
            while not self._is_leaving or self._lanes.active:
                await self._wake.wait()
                self._wake.clear()
                await self._write_waiting(watch)
            await self._socket.close(_CLOSE_TRY_LATER)
        except asyncio.CancelledError:
            if not watch.is_cut:
                raise
            self._socket.abort()
        except OSError:
            # The client is gone; the reader hears of it as well and ends the connection.
            pass
        except Exception:
            log.exception("the writer of a Responses socket failed")
            await self._socket.close(_CLOSE_FAULT)
        finally:
            watch.close()
            self._is_deaf = True
            self._room.set()

    def _on_progress(self) -> None:
        for job in self._lanes.active:
            if job.outbox is not None:
                job.outbox.reader_moved()

    def _give_up(self) -> None:
        log.warning("the client of a Responses socket has stopped reading; its connection is closed")
        self._is_leaving = True
        for job in self._lanes.active:
            if job.live is not None:
                job.live.stop(slow_reader(self._config.slow_reader_timeout_s))
        self._wake.set()

    async def _write_waiting(self, watch: WriteWatch) -> None:
        while self._control or self._ready:
            batch: list[bytes] = []
            num_bytes = 0
            while (self._control or self._ready) and num_bytes < _BATCH_BYTES:
                frames = [self._take_control()] if self._control else self._frames_of(self._ready.popleft())
                batch += frames
                num_bytes += sum(map(len, frames))
            self._room.set()
            with watch:
                await self._socket.send_frames(batch, is_text=True)

    def _take_control(self) -> bytes:
        data = self._control.popleft()
        self._num_control_bytes -= len(data)
        return data

    def _frames_of(self, job: Job) -> list[bytes]:
        items = job.outbox.take() if job.outbox is not None else []
        is_silent, job.is_silent = job.is_silent and job.is_next, False
        if not items and not is_silent:
            return []
        job.lane.silent_since_s = self._loop.time()
        if not items:
            return [job.lane.frames.data(job.keepalive())]
        if isinstance(items[0], TurnFailed) and isinstance(items[0].error, ShuttingDown) and not job.has_begun:
            self._lanes.defer(job, ConnectionLimitReached())
            self._start_next()
            return []
        frames = [frame for item in items for frame in self._encode(job, item)]
        if job.outbox is not None and job.outbox.is_closed:
            # Before the last frame is out: who reads it may go on from there.
            self._lanes.leave(job)
            self._start_next()
        return frames

    def _encode(self, job: Job, item: TurnItem) -> list[bytes]:
        assert job.response is not None
        assert job.recorder is not None
        lane_frames = job.lane.frames
        if isinstance(item, TurnFailed) and not job.has_begun:
            if _is_needless(job.response.turn.request, item.error):
                frames = whole_answer(job.response)
                self._remember(job, job.response)
                return [lane_frames.data(frame) for frame in frames]
            return [self._refuse(job, item.error)]
        job.has_begun = True
        return [lane_frames.data(frame) for frame in job.recorder.encode(item)]


def _is_needless(request: ResponsesRequest, error: GatewayError) -> bool:
    """A client that only prepares its input has no use for, say, a template's refusal of what has no user message."""
    return request.is_prewarm and isinstance(error, InvalidRequest) and error.code != "context_length_exceeded"
