"""The masks of constrained rows in memory that several processes and a device share. NumPy and the standard library."""

from __future__ import annotations

import mmap
import os
import sys

import numpy as np
import numpy.typing as npt

# A device reads whole lines of memory, and requests for one line wait for each other: each row has lines of its own.
_LINE_BYTES = 128


class SharedMasks:
    """words: [num_rows, ceil(vocab_size / 32)] int32, a bit a token, lowest first; posted: [num_rows] int64, what a
    row's mask is good for (`word_of`). Both strided, both zero at first.

    whole: all of it, uint8. descriptor: what another process gives to `attached`; -1 where memory cannot be shared.
    """

    def __init__(self, num_rows: int, vocab_size: int, descriptor: int | None = None) -> None:
        num_words = -(-vocab_size // 32)
        row_bytes = -(-4 * num_words // _LINE_BYTES) * _LINE_BYTES
        num_bytes = num_rows * (_LINE_BYTES + row_bytes)
        self.num_rows, self.vocab_size = num_rows, vocab_size
        self.descriptor = _new_memory(num_bytes) if descriptor is None else descriptor
        self._memory = mmap.mmap(self.descriptor, num_bytes)
        self.whole: npt.NDArray[np.uint8] = np.frombuffer(self._memory, np.uint8)
        posted, words = np.split(self.whole, [num_rows * _LINE_BYTES])
        self.posted: npt.NDArray[np.int64] = posted.view(np.int64).reshape(num_rows, -1)[:, 0]
        self.words: npt.NDArray[np.int32] = words.view(np.int32).reshape(num_rows, -1)[:, :num_words]

    @classmethod
    def attached(cls, num_rows: int, vocab_size: int, descriptor: int) -> SharedMasks:
        """In another process: the same memory."""
        return cls(num_rows, vocab_size, descriptor)


def word_of(holder: int, position: int, *, is_open: bool) -> int:
    """What is posted with a mask: whose token it is for, and which. is_open: all tokens may come, at earlier positions
    of the holder too."""
    return holder << 32 | position << 1 | is_open


def _new_memory(num_bytes: int) -> int:
    if sys.platform != "linux":
        return -1
    descriptor = os.memfd_create("headrace-masks")
    os.ftruncate(descriptor, num_bytes)
    return descriptor
