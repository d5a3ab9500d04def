"""Many turns on one stream: their ids, lanes, credit and frames. A stream outlives the socket that carries it.

Turns run in parallel, those of a lane one after the other (gateway.native_lanes). Frames are made when the socket's
writer asks for them, so while there is no socket, or a slow one, turns wait in their outboxes and nothing else does.
Knows nothing of sockets: `on_wake` tells whoever writes that frames are ready.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from gateway.config import GatewayConfig
from gateway.errors import GatewayError, InvalidRequest, Overloaded, TooManyTurns
from gateway.native_lanes import Channel, Lanes
from gateway.protocols import native
from gateway.protocols.native_codec import Codec
from gateway.replay import ReplayLog
from gateway.sessions import SessionStore
from gateway.turn import LiveTurn, TurnRunner
from gateway.types import TurnDone, TurnFailed, Usage

# Turns that wait in lanes hold their requests: this many of the largest size may be held on a connection.
_MAX_LARGEST_REQUESTS = 32


@dataclass(frozen=True, slots=True)
class Finished:
    """What a turn that ended may still have to repeat."""

    replay: ReplayLog
    ended_s: float


class Stream:
    """owner: whose sessions its turns may continue. All methods belong to one event loop and none of them waits."""

    def __init__(
        self, token: str, owner: str, codec: Codec, runner: TurnRunner, sessions: SessionStore, config: GatewayConfig
    ) -> None:
        self.token = token
        self.owner = owner
        self.codec = codec
        self.config = config
        self.on_wake: Callable[[], object] | None = None
        self._runner = runner
        self._sessions = sessions
        self._channels: dict[str, Channel] = {}
        self._lanes = Lanes()
        self._ready: deque[Channel] = deque()
        self._finished: OrderedDict[str, Finished] = OrderedDict()
        self._num_finished_bytes = 0
        self._num_request_bytes = 0
        self._clock = asyncio.get_running_loop().time

    @property
    def is_worth_keeping(self) -> bool:
        """Whether a client that lost its socket could want anything of it."""
        return bool(self._channels or self._finished)

    # What the client asks for

    def create(self, create: native.TurnCreate, num_bytes: int) -> bytes | None:
        """The frame that refuses the turn, if it cannot be. Raises InvalidRequest where its id is in use.

        num_bytes: how large its frame was, which is about what it takes until it ends.
        """
        if create.turn in self._channels:
            message = f"The turn {create.turn!r} is still running on this connection: choose another id."
            raise InvalidRequest("turn", message, code="turn_in_use")
        try:
            if len(self._channels) >= self.config.max_connection_turns:
                limit = self.config.max_connection_turns
                message = f"This connection has {limit} turns, as many as it takes (--max-connection-turns)."
                raise TooManyTurns(message, retry_after_s=1.0)
            if self._num_request_bytes + num_bytes > _MAX_LARGEST_REQUESTS * self.config.max_body_bytes:
                limit = _MAX_LARGEST_REQUESTS * self.config.max_body_bytes
                message = f"The requests of this connection's turns have {limit} bytes together, as many as it takes."
                raise TooManyTurns(message, retry_after_s=1.0)
            request = native.decode_turn(create)
            request = replace(request, turn=self._runner.accepted(request.turn))
            labels = self._runner.labels(request.turn, "turn_")
            channel = Channel(create, request, labels, self.config, self.codec, self.wake)
        except GatewayError as error:
            return self.codec.dump(native.turn_error(create.turn, error))
        self._forget(channel.id)
        channel.num_request_bytes = num_bytes
        self._num_request_bytes += num_bytes
        self._channels[channel.id] = channel
        if self._lanes.enter(channel):
            self._start(channel)
        return None

    def cancel(self, turn: str) -> None:
        """An id without a turn is no error: the cancel and the turn's end may have crossed."""
        channel = self._channels.get(turn)
        if channel is None:
            return
        channel.feed()
        if channel.live is not None:
            channel.live.stop()
            channel.outbox.cut_short()
        elif not channel.outbox.is_closed:
            channel.outbox.put(TurnDone(Usage(0, 0)))

    def grant(self, credit: native.TurnCredit) -> None:
        """Credit for a turn that is over, or that has no limit, is no error either."""
        channel = self._channels.get(credit.turn)
        if channel is not None:
            channel.feed()
            channel.outbox.grant(credit.credit_chars)

    # Lanes

    def _start(self, channel: Channel) -> None:
        request = channel.request
        if request.session is None:
            channel.live = self._runner.start(request.turn, channel.labels, channel.outbox)
            return
        try:
            turn, recorder = self._sessions.begin(self.owner, request.session, request.turn, request.is_continued)
        except GatewayError as error:
            channel.outbox.put(TurnFailed(error))
            return
        channel.live = self._runner.start(turn, channel.labels, channel.outbox, recorder)

    def _free_id(self, channel: Channel) -> None:
        channel.feed()
        del self._channels[channel.id]
        self._num_request_bytes -= channel.num_request_bytes
        self._finish(channel)

    def _leave_lane(self, channel: Channel) -> None:
        following = self._lanes.leave(channel)
        if following is not None:
            self._start(following)

    def _fail_dependents(self, channel: Channel, error: GatewayError) -> list[bytes]:
        """The frame that says so, if there are any; each of them then has its own last frame."""
        dependents = self._lanes.dependents(channel)
        if not dependents:
            return []
        assert channel.lane is not None
        assert channel.request.session is not None
        failure = native.previous_turn_failed(channel.id, channel.request.session, error)
        for dependent in dependents:
            dependent.outbox.put(TurnFailed(failure))
        turns = tuple(dependent.id for dependent in dependents)
        return [self.codec.dump(native.lane_error(channel.lane, turns, failure))]

    # Frames

    def wake(self, channel: Channel) -> None:
        if not channel.is_ready:
            channel.is_ready = True
            self._ready.append(channel)
            # The writer takes until there is nothing, so it needs to hear of the first only.
            if self.on_wake is not None and len(self._ready) == 1:
                self.on_wake()

    def reader_moved(self) -> None:
        """The socket is slow, and takes what is written to it all the same: its turns are given time."""
        for channel in self._channels.values():
            channel.outbox.reader_moved()

    @property
    def has_frames(self) -> bool:
        return bool(self._ready)

    def next_frames(self) -> list[bytes] | None:
        """What the turn that has waited longest has to say; None when none has anything."""
        if not self._ready:
            return None
        channel = self._ready.popleft()
        channel.is_ready = False
        frames: list[bytes] = []
        if self._channels.get(channel.id) is not channel:
            # Given up by its client. It is heard of no more, but its lane and its session wait for its end.
            if channel.outbox.is_closed:
                self._leave_lane(channel)
            return frames
        for item in channel.outbox.take():
            data = channel.encoder.data(item)
            if data is not None:
                frames.append(data)
            if isinstance(item, (TurnDone, TurnFailed)):
                self._keep(channel, frames)
                if isinstance(item, TurnFailed):
                    frames += self._fail_dependents(channel, item.error)
                # Before the last frame is out: who reads it may use the id again.
                self._free_id(channel)
                self._leave_lane(channel)
                return frames
        self._keep(channel, frames)
        if not channel.outbox.is_empty and channel.starving is None:
            timeout_s = self.config.slow_reader_timeout_s
            channel.starving = asyncio.get_running_loop().call_later(timeout_s, self._on_starved, channel)
        return frames

    def _keep(self, channel: Channel, frames: list[bytes]) -> None:
        if self.config.resume_grace_s > 0:
            for frame in frames:
                channel.replay.append(frame)

    def _on_starved(self, channel: Channel) -> None:
        channel.starving = None
        error = _no_credit(self.config.slow_reader_timeout_s)
        if channel.outbox.is_closed:
            channel.outbox.fail_unread(error)
        elif channel.live is not None:
            channel.live.stop(error)

    # Turns that ended, for a client that may have missed it

    def _finish(self, channel: Channel) -> None:
        if self.config.resume_grace_s <= 0:
            return
        self._finished[channel.id] = Finished(channel.replay, self._clock())
        self._num_finished_bytes += channel.replay.num_bytes
        while self._num_finished_bytes > self.config.max_replay_bytes:
            self._forget(next(iter(self._finished)))

    def _forget(self, turn: str) -> None:
        finished = self._finished.pop(turn, None)
        if finished is not None:
            self._num_finished_bytes -= finished.replay.num_bytes

    def forget_finished(self, before_s: float) -> None:
        """Drops what ended before then: whoever was there has read it."""
        for turn, finished in tuple(self._finished.items()):
            if finished.ended_s >= before_s:
                return
            self._forget(turn)

    # Losing and finding the socket

    def detach(self) -> None:
        """Nobody reads for a while: turns go on as far as their outboxes have room, and are no slow readers then."""
        self.on_wake = None
        for channel in self._channels.values():
            channel.feed()
            channel.outbox.reader_left()

    def resume(self, last_seq: Mapping[str, int]) -> list[bytes]:
        """The frames that the client has missed. Turns that it does not name are cancelled without a word, those that
        cannot be taken up again end with turn.error."""
        for turn in self._channels.keys() - last_seq.keys():
            self._abandon(self._channels[turn])
        going_on: list[str] = []
        frames: list[bytes] = []
        for turn, seq in last_seq.items():
            missed = self._missed(turn, seq)
            if isinstance(missed, GatewayError):
                frames.append(self.codec.dump(native.turn_error(turn, missed, seq + 1)))
            else:
                going_on.append(turn)
                frames += missed
        for channel in self._channels.values():
            # Also those that wait for credit: their time begins anew.
            channel.outbox.reader_came()
            self.wake(channel)
        return [self.codec.dump(native.resumed(self.token, tuple(going_on))), *frames]

    def _missed(self, turn: str, seq: int) -> list[bytes] | GatewayError:
        channel = self._channels.get(turn)
        known = channel or self._finished.get(turn)
        if known is None:
            return native.turn_not_found(turn)
        missed = known.replay.after(seq)
        if missed is not None:
            return missed
        if channel is not None:
            self._abandon(channel)
        return native.replay_gap(turn, seq)

    def _abandon(self, channel: Channel) -> None:
        """Cancels a turn of which the client is to hear no more."""
        self._free_id(channel)
        if channel.live is not None:
            channel.live.stop()
        elif channel.is_waiting:
            channel.outbox.put(TurnDone(Usage(0, 0)))
        self.wake(channel)

    def stop_all(self) -> list[LiveTurn]:
        """Cancels every turn; wait for those that it returns."""
        self.detach()
        live_turns = [channel.live for channel in self._channels.values() if channel.live is not None]
        for live in live_turns:
            live.stop()
        return live_turns


def _no_credit(timeout_s: float) -> GatewayError:
    message = f"The client of this turn has given no credit for {timeout_s:g}s while text waited for it."
    return Overloaded(message, code="slow_reader")
