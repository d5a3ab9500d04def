"""The masks of constrained rows on the host: written by the engine's thread while a step's forward pass runs, read when
it comes to sampling. Only that waits, and only for rows that are constrained."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from inference.mask_ledger import MaskJob

# Far beyond any mask's time: past it the engine's thread is gone.
_LOST_S = 120.0


class HostMasks:
    """words: [max_rows, ceil(vocab_size / 32)] int32, a bit a token, lowest first. num_computed, seconds: masks so far,
    and what they took in all."""

    def __init__(self, max_rows: int, vocab_size: int) -> None:
        self.words: npt.NDArray[np.int32] = np.zeros((max_rows, -(-vocab_size // 32)), np.int32)
        self._vocab_size = vocab_size
        self._changed = threading.Condition()
        self.reset()

        self.num_computed, self.seconds = 0, 0.0

    def reset(self) -> None:
        """With a new scheduler, holders are numbered anew; nothing runs."""
        self._posted = [(0, 0)] * len(self.words)
        self._is_open = [True] * len(self.words)

    def post(self, jobs: Sequence[MaskJob]) -> None:
        started = time.perf_counter()
        for job in jobs:
            is_open = job.matcher is None or not job.matcher.mask(self.words[job.row])
            self.num_computed += job.matcher is not None
            with self._changed:
                self._is_open[job.row] = is_open
                self._posted[job.row] = (job.holder, job.position)
                self._changed.notify_all()
        self.seconds += time.perf_counter() - started

    def wait_for(self, row: int, holder: int, position: int) -> npt.NDArray[np.bool_] | None:
        """Which tokens may stand at `position` of the row's holder, [vocab_size]; None if all, or if nobody wants to
        know any more."""
        wanted = (holder, position)
        with self._changed:
            if not self._changed.wait_for(lambda: self._posted[row] >= wanted, _LOST_S):
                raise RuntimeError(f"no mask came for row {row}")
            if self._is_open[row] or self._posted[row] != wanted:
                return None
            return np.unpackbits(self.words[row].view(np.uint8), bitorder="little")[: self._vocab_size].view(np.bool_)
