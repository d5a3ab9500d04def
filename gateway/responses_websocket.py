"""Responses on a WebSocket: lanes side by side, the responses of one lane one after the other.

One reader, one writer, and a task a turn. What a client does not want stored lives as long as its connection: the
latest response of each lane, from which any lane may go on. Every response.create is answered by a terminal event or
by an error frame, in the order of its lane; closing the socket ends them all.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass

from starlette.types import Message, Receive, Scope, Send

from gateway.errors import GatewayError, InvalidRequest, NotFound, ShuttingDown, TooManyTurns
from gateway.frame_socket import FrameSocket, frame_socket
from gateway.outbox import Outbox
from gateway.protocols.responses_request import ResponsesRequest, decode_request
from gateway.protocols.responses_socket import (
    MAX_ACTIVE,
    MAX_LANES,
    LaneFrames,
    ResponseCreate,
    connection_limit_reached,
    decode_frame,
    steer_failed,
)
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
from gateway.turn import LiveTurn
from gateway.types import TurnFailed, TurnItem

log = logging.getLogger("headrace.responses")

_BATCH_BYTES = 64 * 1024
_MAX_WAITING_FRAMES = 256
_CLOSE_FAULT = 1011


async def serve_responses(service: Service, owner: str, scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "websocket.accept"})
    await ResponsesConnection(service, owner, frame_socket(scope, send), receive).run()


@dataclass(frozen=True, slots=True)
class Remembered:
    response_id: str
    context: Context


class _Lane:
    """jobs: what the client asked for and has not been answered, oldest first; only the first may run."""

    def __init__(self, stream_id: str | None) -> None:
        self.frames = LaneFrames(stream_id)
        self.jobs: deque[_Job] = deque()
        self.latest: Remembered | None = None


class _Job:
    """One response.create. response and live are there once it runs."""

    def __init__(self, lane: _Lane, create: ResponseCreate) -> None:
        self.lane = lane
        self.create = create
        self.response: OpenResponse | None = None
        self.recorder: Recorder | None = None
        self.outbox: Outbox | None = None
        self.live: LiveTurn | None = None
        self.has_begun = False
        self.is_silent = False  # for so long that a keepalive is due
        self.last_sent_s = 0.0


class ResponsesConnection:
    """Runs in one task (the reader's) plus the writer's and the keepalives'; `run` returns when nothing is left."""

    def __init__(self, service: Service, owner: str, socket: FrameSocket, receive: Receive) -> None:
        self._service = service
        self._config = service.config
        self._owner = owner
        self._socket = socket
        self._receive = receive
        self._lanes: dict[str | None, _Lane] = {}
        self._startable: deque[_Lane] = deque()
        self._active: set[_Job] = set()
        self._control: deque[bytes] = deque()
        self._ready: deque[_Job] = deque()
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._is_deaf = False  # nothing that is written reaches the client any more
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
            live_turns = [job.live for job in self._active if job.live is not None]
            for live in live_turns:
                live.stop()
            await asyncio.wait(helpers)
            await asyncio.gather(*(live.join() for live in live_turns))

    # Reading

    async def _read(self) -> None:
        while True:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                return
            try:
                self._handle(message)
            except GatewayError as error:
                self._put(LaneFrames(None).error(error))
            # A client that sends without reading is not read either.
            while len(self._control) > _MAX_WAITING_FRAMES and not self._is_deaf:
                self._room.clear()
                await self._room.wait()

    def _handle(self, message: Message) -> None:
        data: str | bytes | None = message.get("text")
        if data is None:
            data = message["bytes"]
        limit = self._config.max_body_bytes
        if len(data) > limit:
            text = f"The frame has {len(data)} characters, but this server takes {limit} (--max-body-bytes)."
            raise InvalidRequest(None, text, code="request_too_large")
        frame = decode_frame(data)
        if isinstance(frame, ResponseCreate):
            self._create(frame)
        else:
            self._put(steer_failed(frame))

    def _create(self, create: ResponseCreate) -> None:
        try:
            self._check_limits(create.stream_id)
        except GatewayError as error:
            self._put(LaneFrames(create.stream_id).error(error))
            return
        lane = self._lanes.setdefault(create.stream_id, _Lane(create.stream_id))
        lane.jobs.append(_Job(lane, create))
        if len(lane.jobs) == 1:
            self._startable.append(lane)
            self._start_next()

    def _check_limits(self, stream_id: str | None) -> None:
        is_too_old = self._loop.time() - self._opened_s > self._config.responses_socket_age_s
        if is_too_old or self._service.admission.is_draining:
            raise connection_limit_reached()
        num_named = len(self._lanes) - (None in self._lanes)
        if stream_id is not None and stream_id not in self._lanes and num_named >= MAX_LANES:
            message = f"A connection has {MAX_LANES} named lanes at most: use one of them, or another connection."
            raise InvalidRequest("stream_id", message, code="too_many_streams")
        num_jobs = sum(len(lane.jobs) for lane in self._lanes.values())
        if num_jobs >= self._config.max_connection_turns:
            message = f"{num_jobs} responses wait on this connection, as many as it takes (--max-connection-turns)."
            raise TooManyTurns(message, retry_after_s=1.0)

    # Lanes

    def _start_next(self) -> None:
        while self._startable and len(self._active) < MAX_ACTIVE:
            job = self._startable.popleft().jobs[0]
            self._active.add(job)
            try:
                self._start(job)
            except GatewayError as error:
                self._put(self._refuse(job, error))
                self._leave(job)

    def _start(self, job: _Job) -> None:
        """Raises GatewayError."""
        if self._service.admission.is_draining:
            # Here and not from the turn: the socket is about to close, and this goes out with what ended before.
            raise connection_limit_reached()
        request = decode_request(job.create.body)
        job.response = open_response(self._service, self._owner, request, self._find_parent)
        if request.compacts:
            self._answer_whole(job)
            return
        job.recorder = Recorder(job.response, lambda ended: self._remember(job, ended))
        job.outbox = Outbox(self._config.max_pending_chars, lambda: self._on_ready(job))
        job.live = self._service.runner.start(job.response.turn.chat, job.response.labels, job.outbox)

    def _answer_whole(self, job: _Job) -> None:
        assert job.response is not None
        for frame in whole_answer(job.response):
            self._put(job.lane.frames.data(frame))
        self._remember(job, job.response)
        self._leave(job)

    def _leave(self, job: _Job) -> None:
        """The job is answered. Lanes take turns when all places are taken."""
        self._active.discard(job)
        lane = job.lane
        assert lane.jobs[0] is job
        lane.jobs.popleft()
        if lane.jobs:
            self._startable.append(lane)

    def _find_parent(self, response_id: str) -> Context | None:
        """Raises InvalidRequest for a stored response that did not complete."""
        for lane in self._lanes.values():
            if lane.latest is not None and lane.latest.response_id == response_id:
                return lane.latest.context
        try:
            stored = self._service.responses.get(self._owner, response_id)
        except NotFound:
            return None
        if stored.source.status != "completed":
            raise parent_not_found(response_id, f" It is {stored.source.status}.")
        return stored.context

    def _remember(self, job: _Job, response: OpenResponse) -> None:
        remember(self._service.responses, response)
        status = response.encoder.status
        if status == "completed":
            context = context_of(response)
            assert context is not None
            job.lane.latest = Remembered(response.labels.turn_id, context)
        elif status == "failed":
            job.lane.latest = None

    def _refuse(self, job: _Job, error: GatewayError) -> bytes:
        """An error instead of a response; the lane forgets where it was, as the client will."""
        if isinstance(error, ShuttingDown):
            error = connection_limit_reached()
        job.lane.latest = None
        return job.lane.frames.error(as_responses_error(error))

    # Writing

    def _put(self, data: bytes) -> None:
        self._control.append(data)
        self._wake.set()

    def _on_ready(self, job: _Job) -> None:
        self._ready.append(job)
        self._wake.set()

    async def _keep_alive(self) -> None:
        """Marks the responses that have been silent; the writer numbers their keepalives."""
        interval_s = self._config.keepalive_s
        while True:
            await asyncio.sleep(interval_s / 4)
            now_s = self._loop.time()
            for job in self._active:
                if job.has_begun and not job.is_silent and now_s - job.last_sent_s >= interval_s:
                    job.is_silent = True
                    self._on_ready(job)

    async def _write(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                await self._write_waiting()
        except TimeoutError:
            log.warning("a client of a Responses socket stopped reading; connection dropped")
            self._socket.abort()
        except OSError:
            # The client is gone; the reader hears of it as well and ends the connection.
            pass
        except Exception:
            log.exception("the writer of a Responses socket failed")
            await self._socket.close(_CLOSE_FAULT)
        finally:
            self._is_deaf = True
            self._room.set()

    async def _write_waiting(self) -> None:
        while self._control or self._ready:
            batch: list[bytes] = []
            num_bytes = 0
            while (self._control or self._ready) and num_bytes < _BATCH_BYTES:
                frames = [self._control.popleft()] if self._control else self._frames_of(self._ready.popleft())
                batch += frames
                num_bytes += sum(map(len, frames))
            self._room.set()
            async with asyncio.timeout(self._config.slow_reader_timeout_s):
                await self._socket.send_frames(batch, is_text=True)

    def _frames_of(self, job: _Job) -> list[bytes]:
        assert job.response is not None
        assert job.outbox is not None
        items = job.outbox.take()
        is_silent, job.is_silent = job.is_silent and job in self._active, False
        if not items and not is_silent:
            return []
        job.last_sent_s = self._loop.time()
        if not items:
            return [job.lane.frames.data(job.response.encoder.keepalive())]
        frames = [frame for item in items for frame in self._encode(job, item)]
        if job.outbox.is_closed:
            # Before the last frame is out: who reads it may go on from there.
            self._leave(job)
            self._start_next()
        return frames

    def _encode(self, job: _Job, item: TurnItem) -> list[bytes]:
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
