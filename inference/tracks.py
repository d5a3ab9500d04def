"""Which launched steps are still running, and who is in them. Pure Python.

A runner that runs prefills beside decodes has two tracks of steps. Steps of one track run in order; between the two
nothing is ordered, unless a step *follows*: it runs after all that the other track has launched. It must where it uses
what a running step of the other track uses: a sequence's row, or rows and blocks that such a sequence has given back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from inference.sequence import Sequence
from inference.step import DECODES, PREFILLS

# The sequences that sample in a step, and how many tokens each, in plan order.
Sampling = list[tuple[Sequence, int]]


class Tracks:
    """One track, or with `prefills_apart` one for decodes and one for prefills."""

    def __init__(self, prefills_apart: bool) -> None:
        self.of_prefills = PREFILLS if prefills_apart else DECODES
        self._launched: tuple[deque[Sampling], deque[Sampling]] = (deque(), deque())
        self._num_launched = [0, 0]
        self._must_follow = [False, False]

    @property
    def any_launched(self) -> bool:
        return any(self._launched)

    def is_busy(self, track: int) -> bool:
        """Does a launched step of this track still run?"""
        return bool(self._launched[track])

    def runs(self, sequence: Sequence, track: int) -> bool:
        """Does a launched step of this track compute something of the sequence?"""
        return sequence.last_steps[track] > self._num_finished(track)

    def launch(self, track: int, sequences: Iterable[Sequence], sampling: Sampling) -> bool:
        """A step of these is launched; returns whether it follows."""
        other = 1 - track
        follows = self._must_follow[track]
        self._must_follow[track] = False
        self._launched[track].append(sampling)
        self._num_launched[track] += 1
        number, num_finished = self._num_launched[track], self._num_finished(other)
        for sequence in sequences:
            follows = follows or sequence.last_steps[other] > num_finished
            sequence.last_steps[track] = number
        return follows

    def finish(self, track: int) -> Sampling:
        """The oldest step of the track has run."""
        return self._launched[track].popleft()

    def lend(self, sequence: Sequence) -> None:
        """The next step of prefills copies what the sequence has computed."""
        sequence.last_loan = self._num_launched[self.of_prefills] + 1

    def leave(self, sequence: Sequence) -> None:
        """The sequence gives its row and blocks back, maybe while steps run that write there, or copy from there."""
        for track in (DECODES, PREFILLS):
            if self.runs(sequence, track):
                self._must_follow[1 - track] = True
        if sequence.last_loan > self._num_finished(self.of_prefills):
            self._must_follow[1 - self.of_prefills] = True

    def _num_finished(self, track: int) -> int:
        return self._num_launched[track] - len(self._launched[track])
