"""The lanes of one Responses socket: what waits in them, what may run, and what each remembers. No I/O, no clock.

A lane answers its jobs in order, refusals among them; only its first may run, and of all lanes MAX_ACTIVE. Lanes that
wait for a place take turns. The refusal at which clients leave the connection waits until nothing runs on it. What is
waiting and what is remembered is bounded in bytes.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

from gateway.errors import GatewayError, InvalidRequest, TooManyTurns
from gateway.outbox import Outbox
from gateway.protocols.frames import Frame
from gateway.protocols.responses_encoder import keepalive
from gateway.protocols.responses_socket import (
    MAX_ACTIVE,
    MAX_LANES,
    ConnectionLimitReached,
    LaneFrames,
    ResponseCreate,
)
from gateway.responses_store import Context
from gateway.responses_turns import OpenResponse, Recorder
from gateway.turn import LiveTurn

_RETRY_AFTER_S = 1.0
# Bounds of one connection, in bodies of the largest size.
_MAX_WAITING_BODIES = 4
_MAX_REMEMBERED_BODIES = 8


class Lane:
    """jobs: what the client asked for and has not been answered, oldest first. silent_since_s: when the lane last said
    something, or began to have something to say."""

    def __init__(self, stream_id: str | None) -> None:
        self.frames = LaneFrames(stream_id)
        self.jobs: deque[Job] = deque()
        self.silent_since_s = 0.0


class Job:
    """One frame of the client that its lane answers: a response.create, or what is only to be refused (create None).
    What else is None is there once it runs."""

    def __init__(
        self, lane: Lane, create: ResponseCreate | None, num_bytes: int, refusal: GatewayError | None = None
    ) -> None:
        self.lane = lane
        self.create = create
        self.num_bytes = num_bytes
        self.refusal = refusal
        self.response: OpenResponse | None = None
        self.recorder: Recorder | None = None
        self.outbox: Outbox | None = None
        self.live: LiveTurn | None = None
        self.has_begun = False
        self.is_silent = False  # for so long that a keepalive is due
        self.num_early_keepalives = 0

    @property
    def is_next(self) -> bool:
        """Whether it is what its lane answers next."""
        return bool(self.lane.jobs) and self.lane.jobs[0] is self

    def keepalive(self) -> Frame:
        """Numbered with the response's events, also before there are any."""
        if self.response is not None:
            return self.response.encoder.keepalive()
        self.num_early_keepalives += 1
        return keepalive(self.num_early_keepalives - 1)


@dataclass(frozen=True, slots=True)
class _Latest:
    response_id: str
    context: Context


class LaneTable:
    """All lanes of a connection. A lane that was named once stays."""

    def __init__(self, max_jobs: int, max_body_bytes: int) -> None:
        self._max_jobs = max_jobs
        self._max_waiting_bytes = _MAX_WAITING_BODIES * max_body_bytes
        self._max_remembered_bytes = _MAX_REMEMBERED_BODIES * max_body_bytes
        self._lanes: dict[str | None, Lane] = {}
        self._startable: deque[Lane] = deque()
        self._refusable: deque[Lane] = deque()
        self._leaving: deque[Lane] = deque()  # to be refused once nothing runs
        self._latest: OrderedDict[Lane, _Latest] = OrderedDict()
        self._num_jobs = 0
        self._num_waiting_bytes = 0
        self.num_refused = 0
        self.active: set[Job] = set()

    @property
    def heads(self) -> list[Job]:
        """What each lane answers next: it runs, or waits for a place, or to be refused."""
        lanes = dict.fromkeys((*self._lanes.values(), *self._leaving))
        return [lane.jobs[0] for lane in lanes if lane.jobs]

    def add(self, create: ResponseCreate, num_bytes: int, now_s: float) -> None:
        """Raises InvalidRequest for a lane too many, TooManyTurns for a job too many."""
        self._check(create.stream_id, num_bytes)
        self._num_jobs += 1
        self._num_waiting_bytes += num_bytes
        lane = self._lanes.setdefault(create.stream_id, Lane(create.stream_id))
        self._append(Job(lane, create, num_bytes), now_s)

    def refuse(self, stream_id: str | None, error: GatewayError, now_s: float) -> None:
        """Answers with `error` when all is answered that the lane was asked for before. A lane that is not there has
        nothing to answer before, and does not come to be by this."""
        self.num_refused += 1
        lane = self._lanes.get(stream_id) or Lane(stream_id)
        self._append(Job(lane, None, 0, error), now_s)

    def refuse_waiting(self, make_error: Callable[[], GatewayError]) -> None:
        """Nothing that has not begun will run any more."""
        self._startable.clear()
        for lane in self._lanes.values():
            waiting = [job for job in lane.jobs if job.refusal is None and job not in self.active]
            for job in waiting:
                job.refusal = make_error()
            if waiting and waiting[0].is_next:
                self._queue(lane)

    def defer(self, job: Job, error: GatewayError) -> None:
        """The job ran, but its client has seen nothing of it yet: it is refused instead, when its time has come."""
        self.active.discard(job)
        job.refusal = error
        self._queue(job.lane)

    def _append(self, job: Job, now_s: float) -> None:
        job.lane.jobs.append(job)
        if job.is_next:
            job.lane.silent_since_s = now_s
            self._queue(job.lane)

    def _queue(self, lane: Lane) -> None:
        """The lane's next job now waits for nothing of its lane."""
        refusal = lane.jobs[0].refusal
        if refusal is None:
            self._startable.append(lane)
        elif isinstance(refusal, ConnectionLimitReached):
            self._leaving.append(lane)
        else:
            self._refusable.append(lane)

    def _check(self, stream_id: str | None, num_bytes: int) -> None:
        num_named = len(self._lanes) - (None in self._lanes)
        if stream_id is not None and stream_id not in self._lanes and num_named >= MAX_LANES:
            message = f"A connection has {MAX_LANES} named lanes at most: use one of them, or another connection."
            raise InvalidRequest("stream_id", message, code="too_many_streams")
        if self._num_jobs >= self._max_jobs:
            message = f"{self._num_jobs} responses wait on this connection, as many as it takes"
            raise TooManyTurns(f"{message} (--max-connection-turns).", retry_after_s=_RETRY_AFTER_S)
        if self._num_jobs and self._num_waiting_bytes + num_bytes > self._max_waiting_bytes:
            message = f"Responses of {self._num_waiting_bytes} bytes wait on this connection, as many as it takes."
            raise TooManyTurns(message, retry_after_s=_RETRY_AFTER_S)

    def next_job(self) -> Job | None:
        """A job that may run, or be refused, now; it counts as active until it leaves."""
        if self._refusable:
            queue = self._refusable
        elif self._startable and len(self.active) < MAX_ACTIVE:
            queue = self._startable
        elif self._leaving and not self.active:
            queue = self._leaving
        else:
            return None
        job = queue.popleft().jobs[0]
        self.active.add(job)
        return job

    def leave(self, job: Job) -> None:
        """The job is answered."""
        self.active.discard(job)
        lane = job.lane
        assert lane.jobs[0] is job
        lane.jobs.popleft()
        if job.create is None:
            self.num_refused -= 1
        else:
            self._num_jobs -= 1
            self._num_waiting_bytes -= job.num_bytes
        if lane.jobs:
            self._queue(lane)

    def find(self, response_id: str) -> Context | None:
        for latest in self._latest.values():
            if latest.response_id == response_id:
                return latest.context
        return None

    def remember(self, lane: Lane, response_id: str, context: Context) -> None:
        """In place of what the lane had before. When all lanes together are too much, the oldest forget."""
        self._latest[lane] = _Latest(response_id, context)
        self._latest.move_to_end(lane)
        num_bytes = sum(latest.context.num_chain_bytes for latest in self._latest.values())
        while num_bytes > self._max_remembered_bytes and len(self._latest) > 1:
            _, dropped = self._latest.popitem(last=False)
            num_bytes -= dropped.context.num_chain_bytes

    def forget(self, lane: Lane) -> None:
        self._latest.pop(lane, None)
