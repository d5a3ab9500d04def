"""Turns of the native protocol and the lanes they wait in. Knows nothing of frames' order and sockets.

Turns that name a lane run one after the other within it. One that continues a session can only happen after the turns
of that session before it: when one of those fails, those that wait behind it in the lane fail with it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import dropwhile

from gateway.config import GatewayConfig
from gateway.outbox import Outbox
from gateway.protocols import native
from gateway.protocols.frames import TurnLabels
from gateway.protocols.native_codec import Codec
from gateway.replay import ReplayLog
from gateway.turn import LiveTurn


class Channel:
    """One turn on a stream, from its turn.create to its last frame."""

    def __init__(
        self,
        create: native.TurnCreate,
        request: native.NativeTurn,
        labels: TurnLabels,
        config: GatewayConfig,
        codec: Codec,
        on_ready: Callable[[Channel], object],
    ) -> None:
        self.id = create.turn
        self.lane = create.lane
        self.request = request
        self.labels = labels
        self.encoder = native.NativeEncoder(create.turn, labels, request.turn.warnings, codec)
        self.outbox = Outbox(config.max_pending_chars, lambda: on_ready(self), request.credit_chars)
        self.replay = ReplayLog(config.max_replay_bytes)
        self.live: LiveTurn | None = None
        self.starving: asyncio.TimerHandle | None = None
        self.is_ready = False
        self.num_request_bytes = 0

    @property
    def is_waiting(self) -> bool:
        """In its lane, and not cancelled there."""
        return self.live is None and not self.outbox.is_closed

    def feed(self) -> None:
        """Credit came, or is not what it waits for any more."""
        if self.starving is not None:
            self.starving.cancel()
            self.starving = None


class Lanes:
    """By name. A turn without a lane is never in any."""

    def __init__(self) -> None:
        self._lanes: dict[str, deque[Channel]] = {}

    def enter(self, channel: Channel) -> bool:
        """Whether the turn may start now."""
        if channel.lane is None:
            return True
        lane = self._lanes.setdefault(channel.lane, deque())
        lane.append(channel)
        return len(lane) == 1

    def leave(self, channel: Channel) -> Channel | None:
        """The turn that may start now, if one may."""
        if channel.lane is None:
            return None
        lane = self._lanes[channel.lane]
        was_first = lane[0] is channel
        lane.remove(channel)
        if not lane:
            del self._lanes[channel.lane]
            return None
        # What was cancelled while it waited still has to say so; the lane goes on after that.
        return lane[0] if was_first and lane[0].is_waiting else None

    def dependents(self, failed: Channel) -> list[Channel]:
        """What waits behind the turn to continue its session, up to where the session begins again."""
        session = failed.request.session
        if failed.lane is None or session is None:
            return []
        found: list[Channel] = []
        for channel in list(dropwhile(lambda other: other is not failed, self._lanes[failed.lane]))[1:]:
            if channel.request.session != session or not channel.is_waiting:
                continue
            if not channel.request.is_continued:
                break
            found.append(channel)
        return found
