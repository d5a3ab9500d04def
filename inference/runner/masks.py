"""The masks of constrained rows on the host: written by the engine's thread while a step's forward pass runs, read when
it comes to sampling. Only that waits, and only for rows that are constrained."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from inference.mask_ledger import MaskJob

# Far beyond any mask's time: past it the engine's thread is gone.
_LOST_S = 120.0


class HostMasks:
    """words: [max_rows, ceil(vocab_size / 32)] int32, a bit a token, lowest first."""

    def __init__(self, max_rows: int, vocab_size: int) -> None:
        self.words: npt.NDArray[np.int32] = np.zeros((max_rows, -(-vocab_size // 32)), np.int32)
        self._vocab_size = vocab_size
        self._changed = threading.Condition()
        self.reset()

    def reset(self) -> None:
        max_rows = len(self.words)
        self._posted = [0] * max_rows
        self._served = [0] * max_rows
        self._is_open = [True] * max_rows

    def post(self, jobs: Sequence[MaskJob]) -> None:
        """A later ticket serves those before it too: what they sample is not used."""
        for job in jobs:
            is_open = job.matcher is None or not job.matcher.mask(self.words[job.row])
            with self._changed:
                self._is_open[job.row] = is_open
                self._posted[job.row] = max(job.ticket, self._posted[job.row])
                self._changed.notify_all()

    def next_of(self, row: int) -> npt.NDArray[np.bool_] | None:
        """Which tokens the row may sample now, [vocab_size]; None if all. Waits for its ticket, the next of the row."""
        self._served[row] += 1
        ticket = self._served[row]
        with self._changed:
            if not self._changed.wait_for(lambda: self._posted[row] >= ticket, _LOST_S):
                raise RuntimeError(f"no mask came for row {row}")
            if self._is_open[row]:
                return None
            return np.unpackbits(self.words[row].view(np.uint8), bitorder="little")[: self._vocab_size].view(np.bool_)
