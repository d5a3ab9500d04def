"""The masks of constrained rows, where a CUDA device reads them: in pinned host memory, written while it computes.

The device looks at a row's `posted` word when it comes to sampling; nothing is copied and nothing is enqueued for it.
An engine's masks are written there by other processes (inference.remote_masks).
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Sequence

import torch

from inference.mask_ledger import MaskJob
from inference.shared_masks import SharedMasks, word_of

# cudaHostRegisterPortable | cudaHostRegisterMapped
_REGISTER_FLAGS = 3


class DeviceMasks:
    """words, posted: those of `shared`, as tensors, pinned.

    A MaskMaker itself, for who has no other processes: the caller waits for each mask. num_computed, seconds: of those.
    """

    def __init__(self, max_rows: int, vocab_size: int, device: torch.device) -> None:
        self.shared = shared = SharedMasks(max_rows, vocab_size)
        self.words, self.posted = torch.from_numpy(shared.words), torch.from_numpy(shared.posted)
        self._pinned = _Pinned(shared) if device.type == "cuda" else None
        self.num_computed, self.seconds = 0, 0.0

    @property
    def counts(self) -> tuple[int, float]:
        return self.num_computed, self.seconds

    def reset(self) -> None:
        """Holders are numbered anew; nothing may be running."""
        self.posted.zero_()

    def post(self, jobs: Sequence[MaskJob]) -> None:
        """Returns when the masks are there."""
        started = time.perf_counter()
        words, posted = self.shared.words, self.shared.posted
        for job in jobs:
            # Of the row's last holder, or of a token that is drawn again: what let it through is good no more.
            posted[job.row] = 0
            is_open = job.matcher is None or not job.matcher.mask(words[job.row])
            self.num_computed += job.matcher is not None
            # Behind the mask, in which order the device takes them.
            posted[job.row] = word_of(job.holder, job.position, is_open=is_open)
        self.seconds += time.perf_counter() - started

    def close(self) -> None:
        if self._pinned is not None:
            self._pinned.release()


class _Pinned:
    """Memory that a device may read, until it is released, or nobody has this any more."""

    def __init__(self, shared: SharedMasks) -> None:
        self._memory = shared  # which must not go before it is released
        at = shared.whole.ctypes.data
        # The runtime's own calls: torch pins only memory that it has allocated.
        torch.cuda.check_error(torch.cuda.cudart().cudaHostRegister(at, shared.whole.nbytes, _REGISTER_FLAGS))
        self._unregister = weakref.finalize(self, _unregister, at)
        self._unregister.atexit = False

    def release(self) -> None:
        """Nothing may be running that reads it. Idempotent."""
        self._unregister()


def _unregister(at: int) -> None:
    torch.cuda.check_error(torch.cuda.cudart().cudaHostUnregister(at))
