"""The last frames of a turn, kept for a client whose socket was lost before it had read them."""

from __future__ import annotations

from collections import deque

# What a small bytes object and its place in the deque take beside the payload.
_FRAME_COST_BYTES = 48


class ReplayLog:
    """Frames in order of seq, the oldest dropped beyond `max_bytes`. O(1) a frame."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._frames: deque[bytes] = deque()
        self._next_seq = 0
        self.num_bytes = 0

    def append(self, frame: bytes) -> None:
        self._frames.append(frame)
        self._next_seq += 1
        self.num_bytes += len(frame) + _FRAME_COST_BYTES
        while self.num_bytes > self._max_bytes and self._frames:
            self.num_bytes -= len(self._frames.popleft()) + _FRAME_COST_BYTES

    def after(self, seq: int) -> list[bytes] | None:
        """The frames above `seq`; None where some are gone, or were never there."""
        num_frames = self._next_seq - (seq + 1)
        if not 0 <= num_frames <= len(self._frames):
            return None
        return list(self._frames)[len(self._frames) - num_frames :]
