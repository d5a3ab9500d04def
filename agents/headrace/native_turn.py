"""One turn on a native connection, as it is received; knows nothing of sockets."""

from __future__ import annotations

from typing import Protocol

from headrace.errors import APIError, ConnectionLost, HeadraceError, ProtocolError
from headrace.events import ContentDelta, Event, ReasoningDelta, ToolCallDelta, TurnDone
from headrace.native_frames import TurnFrame
from headrace.turn_source import EventQueue

# What a server says of a turn that it cannot take up again. The first two: no frame of it was ever sent.
_NEVER_CAME = frozenset({"turn_not_found", "stream_not_found"})
_NOT_RESUMED = _NEVER_CAME | {"replay_gap"}


class TurnOwner(Protocol):
    """The connection that a turn is on."""

    async def cancel(self, turn_id: str) -> None: ...

    async def grant(self, turn_id: str, credit: int) -> None: ...

    def forget(self, turn_id: str) -> None: ...


class NativeTurn:
    """One turn's receiving end (a `TurnSource`).

    `credit`: how many characters of text may be on their way or unread here; what is read is granted again, half of it
    at a time. `create_frame`: as it was sent, for a server that it never reached.
    """

    def __init__(
        self, turn_id: str, connection: TurnOwner, events: EventQueue, create_frame: str, credit: int | None
    ) -> None:
        self.create_frame = create_frame
        self.is_sent = False
        self.is_cancelled = False
        self._id = turn_id
        self._connection = connection
        self._events = events
        self._credit = credit
        self._num_read_chars = 0
        self._first: Event | None = None
        self._next_seq = 0

    @property
    def is_answered(self) -> bool:
        return self._next_seq > 0

    @property
    def last_seq(self) -> int:
        return self._next_seq - 1

    def is_to_be_sent_again(self, frame: TurnFrame) -> bool:
        """Whether the server says that it never had the turn, and nothing of it has been seen."""
        return not self.is_answered and isinstance(frame.body, APIError) and frame.body.code in _NEVER_CAME

    def accept(self, frame: TurnFrame) -> bool:
        """Take the turn's next frame; return whether more may follow."""
        if frame.seq != self._next_seq:
            self.fail(ProtocolError(f"turn {self._id}: frame {frame.seq} came where {self._next_seq} was due"))
            return True
        self._next_seq += 1
        body = frame.body
        if isinstance(body, APIError) and body.code in _NOT_RESUMED:
            self.fail(ConnectionLost(f"the connection was lost, and the turn could not be resumed: {body.message}"))
        elif body is not None:
            self._events.put(body)
        return not isinstance(body, TurnDone | HeadraceError)

    def fail(self, error: HeadraceError) -> None:
        self._events.put(error)

    async def wait_until_answered(self) -> None:
        self._first = await self._events.get()

    async def next_event(self) -> Event:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        event = await self._events.get()
        if self._credit is not None:
            await self._grant(event, self._credit)
        return event

    async def _grant(self, event: Event, credit: int) -> None:
        match event:
            case ContentDelta(text=text) | ReasoningDelta(text=text) | ToolCallDelta(arguments=text):
                self._num_read_chars += len(text)
            case _:
                return
        if 2 * self._num_read_chars >= credit:
            granted, self._num_read_chars = self._num_read_chars, 0
            await self._connection.grant(self._id, granted)

    async def cancel(self) -> None:
        if not self.is_cancelled:
            self.is_cancelled = True
            await self._connection.cancel(self._id)

    async def aclose(self) -> None:
        try:
            await self.cancel()
        finally:
            self._connection.forget(self._id)
