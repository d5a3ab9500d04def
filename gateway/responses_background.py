"""Background responses: the turn goes on whether or not anybody listens, and its events are kept to be read again.

Events are read from any point, by any number of readers, while they are written and after; all read the same ones,
keepalives included. A log past its bound drops its oldest events; a reader that wants those is told so.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import islice

from gateway.errors import InvalidRequest
from gateway.outbox import Outbox
from gateway.protocols.frames import Frame, TurnLabels
from gateway.protocols.responses_encoder import ResponsesEncoder
from gateway.protocols.responses_request import ResponsesTurn
from gateway.responses_store import Finished
from gateway.turn import LiveTurn, TurnRunner
from gateway.types import TurnDone, TurnFailed

MAX_LOG_BYTES = 16 * 1024 * 1024


class EventLog:
    """Frame i has sequence number i."""

    def __init__(self, max_bytes: int = MAX_LOG_BYTES) -> None:
        self._max_bytes = max_bytes
        self._frames: deque[Frame] = deque()
        self._first = 0
        self._changed = asyncio.Event()
        self.num_bytes = 0
        self.is_closed = False

    def append(self, frames: list[Frame], *, is_last: bool) -> int:
        """Returns by how many bytes the log is now longer, or shorter."""
        before = self.num_bytes
        for frame in frames:
            self._frames.append(frame)
            self.num_bytes += len(frame.data)
        while self.num_bytes > self._max_bytes and len(self._frames) > 1:
            self.num_bytes -= len(self._frames.popleft().data)
            self._first += 1
        self.is_closed = is_last
        self._changed.set()
        self._changed = asyncio.Event()
        return self.num_bytes - before

    def after(self, number: int) -> list[tuple[int, Frame]]:
        """The events with a sequence number above `number`. Raises InvalidRequest when they are not all kept."""
        if number + 1 < self._first:
            message = f"Events up to {self._first - 1} of this response are not kept any more: it was too long."
            raise InvalidRequest("starting_after", message, code="events_expired")
        skipped = number + 1 - self._first
        return list(enumerate(islice(self._frames, skipped, None), number + 1))

    async def wait(self) -> None:
        """Returns at the next change."""
        await self._changed.wait()


class WholeResponse(Finished):
    """Asked for in the background, and in need of no model: over when it is stored, and followed all the same."""

    __slots__ = ("log",)

    def __init__(self, status: str, body: bytes, frames: list[Frame]) -> None:
        super().__init__(status, body)
        self.log = EventLog()
        self.log.append(frames, is_last=True)

    @property
    def num_bytes(self) -> int:
        return super().num_bytes + self.log.num_bytes

    async def cancel(self) -> None:
        """Too late for that."""


class BackgroundResponse:
    """A running response and its events. `on_change` hears of every growth of the log, and whether it was the last."""

    def __init__(
        self,
        runner: TurnRunner,
        labels: TurnLabels,
        turn: ResponsesTurn,
        encoder: ResponsesEncoder,
        on_change: Callable[[BackgroundResponse, int], None],
    ) -> None:
        self.log = EventLog()
        self.encoder = encoder
        self.failure: TurnFailed | None = None
        self._on_change = on_change
        self._has_begun = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._keepalive_s = runner.config.keepalive_s
        self._silent_since_s = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        # Nobody waits between the turn and its log, so what is put there is written at once, from the turn's own task.
        self._outbox = Outbox(runner.config.max_pending_chars, self._write)
        self.live: LiveTurn = runner.start(turn.chat, labels, self._outbox)

    @property
    def status(self) -> str:
        return self.encoder.status

    @property
    def num_bytes(self) -> int:
        return self.log.num_bytes

    def body(self) -> bytes:
        return self.encoder.body()

    async def begin(self) -> None:
        """Raises the GatewayError of a turn that was refused."""
        await self._has_begun.wait()
        if self.failure is not None:
            raise self.failure.error

    async def cancel(self) -> None:
        """Idempotent. The response has ended when this returns."""
        self.live.stop()
        await self.live.join()

    def _write(self) -> None:
        for item in self._outbox.take():
            if isinstance(item, TurnFailed) and not self._has_begun.is_set():
                self.failure = item
            self._append(self.encoder.encode(item), is_last=isinstance(item, (TurnDone, TurnFailed)))
            self._has_begun.set()

    def _append(self, frames: list[Frame], *, is_last: bool = False) -> None:
        self._silent_since_s = self._loop.time()
        grown = self.log.append(frames, is_last=is_last)
        if is_last:
            self._stop_timer()
        elif self._timer is None:
            self._timer = self._loop.call_at(self._silent_since_s + self._keepalive_s, self._on_timer)
        self._on_change(self, grown)

    def _on_timer(self) -> None:
        """One timer that is late instead of one an event."""
        self._timer = None
        due_s = self._silent_since_s + self._keepalive_s
        if self._loop.time() >= due_s:
            self._append([self.encoder.keepalive()])
        else:
            self._timer = self._loop.call_at(due_s, self._on_timer)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
