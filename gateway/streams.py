"""All streams of the native protocol: which socket carries each, and how long one may be without.

A stream is found again by its token, which is a secret of its client and works with the same API key only.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from secrets import token_urlsafe
from typing import Protocol

from gateway.config import GatewayConfig
from gateway.mux import Stream
from gateway.protocols import native
from gateway.protocols.native_codec import Codec
from gateway.sessions import SessionStore
from gateway.turn import LiveTurn, TurnRunner

# A client that does not answer pings is found to be gone this long after it was; it may ask for what it missed since.
_SWEEP_S = 15.0
_MAX_EXPIRED = 1024


class Carrier(Protocol):
    """What a socket does for its stream's owner besides carrying it."""

    def supersede(self) -> None:
        """Another socket of the client has taken the stream over."""

    def go_away(self, deadline_s: float) -> None:
        """Tell the client that the server ends in `deadline_s`."""

    async def flush(self) -> None:
        """Returns once everything that the stream has to say is written, or can never be."""


@dataclass(slots=True)
class _Entry:
    stream: Stream
    carrier: Carrier | None
    expiry: asyncio.TimerHandle | None = None


class StreamHub:
    """One an app. Used from one event loop."""

    def __init__(self, runner: TurnRunner, sessions: SessionStore, config: GatewayConfig) -> None:
        self._runner = runner
        self._sessions = sessions
        self._config = config
        self._entries: dict[str, _Entry] = {}
        # Owners by token, to tell who comes too late what has become of their turns.
        self._expired: OrderedDict[str, str] = OrderedDict()
        self._sweeper: asyncio.TimerHandle | None = None

    @property
    def num_detached(self) -> int:
        return sum(entry.carrier is None for entry in self._entries.values())

    def open(self, owner: str, codec: Codec, carrier: Carrier) -> Stream:
        stream = Stream(token_urlsafe(18), owner, codec, self._runner, self._sessions, self._config)
        self._entries[stream.token] = _Entry(stream, carrier)
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)
        return stream

    def take_over(self, token: str, owner: str, codec: Codec, carrier: Carrier) -> Stream:
        """The stream, now carried by `carrier`. Raises NotFound where it is gone or somebody else's."""
        if self._expired.get(token) == owner:
            raise native.stream_expired(token, self._config.resume_grace_s)
        entry = self._entries.get(token)
        if entry is None or entry.stream.owner != owner or entry.stream.codec is not codec:
            raise native.stream_not_found(token)
        if entry.expiry is not None:
            entry.expiry.cancel()
            entry.expiry = None
        if entry.carrier is not None:
            # The server has not heard yet that the old socket is dead.
            entry.stream.detach()
            entry.carrier.supersede()
        entry.carrier = carrier
        return entry.stream

    def lose(self, stream: Stream) -> None:
        """The socket is gone without a word: the client has until the grace ends to come back."""
        entry = self._entries[stream.token]
        if self._config.resume_grace_s <= 0 or not stream.is_worth_keeping:
            self.close(stream)
            return
        entry.carrier = None
        stream.detach()
        entry.expiry = asyncio.get_running_loop().call_later(self._config.resume_grace_s, self._expire, stream)

    def _expire(self, stream: Stream) -> None:
        self.close(stream)
        self._expired[stream.token] = stream.owner
        if len(self._expired) > _MAX_EXPIRED:
            self._expired.popitem(last=False)

    def close(self, stream: Stream) -> list[LiveTurn]:
        """Ends the stream and its turns; those still to be waited for are returned."""
        self._entries.pop(stream.token, None)
        return stream.stop_all()

    def go_away(self, deadline_s: float) -> None:
        for entry in tuple(self._entries.values()):
            if entry.carrier is not None:
                entry.carrier.go_away(deadline_s)

    async def flush(self, timeout_s: float) -> None:
        """Wait for the last frames of turns that have ended to be on their way; not for sockets that are not read."""
        flushes = [asyncio.create_task(e.carrier.flush()) for e in self._entries.values() if e.carrier is not None]
        if flushes:
            _, late = await asyncio.wait(flushes, timeout=timeout_s)
            for task in late:
                task.cancel()

    def close_all(self) -> None:
        """For the server's end. Turns are drained by then."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for entry in tuple(self._entries.values()):
            if entry.expiry is not None:
                entry.expiry.cancel()
            if entry.carrier is None:
                self.close(entry.stream)

    def _sweep(self) -> None:
        """One timer for all streams, which also idle ones are freed by."""
        loop = asyncio.get_running_loop()
        before_s = (
            loop.time() - self._config.resume_grace_s - self._config.ping_interval_s - self._config.ping_timeout_s
        )
        for entry in self._entries.values():
            entry.stream.forget_finished(before_s)
        self._sweeper = loop.call_later(_SWEEP_S, self._sweep) if self._entries else None
