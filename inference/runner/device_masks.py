"""The masks of constrained rows, where a CUDA device reads them: in pinned host memory, written while it computes.

The device looks at a row's `posted` word when it comes to sampling; nothing is copied and nothing is enqueued for it.
Masks that are quick are computed together, in a thread of their own; those that may take long each in another, and the
device goes on without them if need be. Or other processes write all masks (inference.remote_masks), which leaves this
one's interpreter to the steps: those threads wait then.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Sequence
from queue import SimpleQueue

import numpy as np
import torch

from inference.mask_ledger import MaskJob, MasksTogether, TokenMatcher, one_by_one
from inference.processors import num_mask_threads
from inference.shared_masks import SharedMasks, word_of

logger = logging.getLogger("headrace.engine")

_WAIT_S = 0.00005
# So long the caller gives way to quick masks that a running step looks for. What it does can wait for that; they
# could not, for the interpreter's lock that it would hold.
_GIVE_WAY_S = 0.0002
_NOTHING = 0  # no holder's
# cudaHostRegisterPortable | cudaHostRegisterMapped
_REGISTER_FLAGS = 3


class _Batch:
    """Masks that are computed together. is_running: held until they are there."""

    __slots__ = ("is_running", "jobs", "matchers")

    def __init__(self, jobs: Sequence[MaskJob], matchers: Sequence[tuple[int, TokenMatcher]]) -> None:
        self.jobs, self.matchers = jobs, matchers  # matchers: of the same jobs, each with its row
        self.is_running = threading.Lock()
        self.is_running.acquire()


class DeviceMasks:
    """words, posted: those of `shared`, as tensors, pinned.

    num_computed, seconds: masks so far, and what they took in all. together: computes the quick ones.
    """

    def __init__(self, max_rows: int, vocab_size: int, device: torch.device, num_threads: int | None = None) -> None:
        self.shared = shared = SharedMasks(max_rows, vocab_size)
        self.words, self.posted = torch.from_numpy(shared.words), torch.from_numpy(shared.posted)
        self._pinned = _Pinned(shared) if device.type == "cuda" else None
        self.num_computed, self.seconds = 0, 0.0
        self.together: MasksTogether = one_by_one
        # As plain memory: writing to it keeps the lock of the interpreter, which numpy would give away with each row.
        self._words, self._posted = [row.data for row in shared.words], shared.posted.data
        self._latest: list[MaskJob | None] = [None] * max_rows
        self._lock = threading.Lock()  # of what the device reads, and of `_latest`
        self._computing: set[int] = set()  # matchers, by their ids
        self._batch_words = np.zeros(shared.words.shape, np.int32)
        self._batch_rows = [row.data for row in self._batch_words]
        self._batches: SimpleQueue[_Batch | None] = SimpleQueue()
        self._jobs: SimpleQueue[MaskJob | None] = SimpleQueue()
        num_threads = num_threads or num_mask_threads()
        self._threads = [
            threading.Thread(target=self._work, name=f"headrace-mask-{n}", daemon=True) for n in range(num_threads)
        ]
        self._threads.append(threading.Thread(target=self._work_on_batches, name="headrace-masks", daemon=True))
        for thread in self._threads:
            thread.start()

    @property
    def counts(self) -> tuple[int, float]:
        return self.num_computed, self.seconds

    def reset(self) -> None:
        """Holders are numbered anew; nothing may be running."""
        self.posted.zero_()
        self._latest = [None] * len(self._latest)

    def post(self, jobs: Sequence[MaskJob]) -> None:
        """Returns when the quick ones that are awaited are there, or soon. Of a row, the last job is the one that
        counts."""
        latest = {job.row: job for job in jobs}
        with self._lock:
            for row, job in latest.items():
                self._latest[row] = job
                # A token that is drawn again was drawn without a mask: what let it through is good no more.
                self._posted[row] = _word(job, is_open=True) if job.matcher is None else _NOTHING
        quick: list[MaskJob] = []
        matchers: list[tuple[int, TokenMatcher]] = []
        for row, job in latest.items():
            matcher = job.matcher
            if matcher is None:
                continue
            # A turn that has left its row and come back may still have a mask on its way.
            while id(matcher) in self._computing:
                time.sleep(_WAIT_S)
            self._computing.add(id(matcher))
            if matcher.mask_may_take_long:
                self._jobs.put(job)
            else:
                quick.append(job)
                matchers.append((row, matcher))
        if quick:
            batch = _Batch(quick, matchers)
            self._batches.put(batch)
            if any(job.is_awaited for job in quick):
                batch.is_running.acquire(timeout=_GIVE_WAY_S)

    def _work_on_batches(self) -> None:
        while (batch := self._batches.get()) is not None:
            self._compute_quick(batch)
            batch.is_running.release()

    def _compute_quick(self, batch: _Batch) -> None:
        started = time.perf_counter()
        # Into words of the batch's own: by the time that they are done, a row may be another's.
        try:
            masked = self.together(batch.matchers, self._batch_words)
        except Exception:
            masked = _given_up(len(batch.jobs))
        rows = self._batch_rows
        self._finish(
            (job, rows[job.row] if is_masked else None) for job, is_masked in zip(batch.jobs, masked, strict=True)
        )
        self._account([matcher for _, matcher in batch.matchers], started)

    def settle(self) -> None:
        """Returns when all masks that have been asked for are there."""
        while self._computing:
            time.sleep(_WAIT_S)

    def close(self) -> None:
        for _ in self._threads[1:]:
            self._jobs.put(None)
        self._batches.put(None)
        for thread in self._threads:
            thread.join()
        if self._pinned is not None:
            self._pinned.release()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._compute_slowly(job)

    def _compute_slowly(self, job: MaskJob) -> None:
        assert job.matcher is not None
        started = time.perf_counter()
        # Not into the row's own words: by the time that it is done, the row may be another's.
        words = np.empty_like(self._batch_words[0])
        try:
            is_masked = job.matcher.mask(words)
        except Exception:
            (is_masked,) = _given_up(1)
        self._finish([(job, words.data if is_masked else None)])
        self._account([job.matcher], started)

    def _finish(self, masks: Iterable[tuple[MaskJob, memoryview | None]]) -> None:
        """What the device waits for: a mask first, then the word for it, in which order it takes them. None: everything
        may come."""
        with self._lock:
            for job, words in masks:
                if self._latest[job.row] is job:
                    if words is not None:
                        self._words[job.row][:] = words
                    self._posted[job.row] = _word(job, words is None)

    def _account(self, matchers: Sequence[TokenMatcher], started: float) -> None:
        """What no device waits for. Then the matchers are the caller's again."""
        self.num_computed += len(matchers)
        self.seconds += time.perf_counter() - started
        for matcher in matchers:
            _ = matcher.has_mask  # who asks first looks at the mask: here, it costs the caller's thread nothing
        self._computing.difference_update(map(id, matchers))


def _given_up(count: int) -> list[bool]:
    """No row must wait for ever: its matcher refuses what it samples without a mask, and the turn ends with that."""
    logger.exception("masks could not be computed")
    return [False] * count


def _word(job: MaskJob, is_open: bool) -> int:
    return word_of(job.holder, job.position, is_open=is_open)


class _Pinned:
    """Memory that a device may read, as long as this is not released."""

    def __init__(self, shared: SharedMasks) -> None:
        self._at = shared.whole.ctypes.data
        # The runtime's own calls: torch pins only memory that it has allocated.
        torch.cuda.check_error(torch.cuda.cudart().cudaHostRegister(self._at, shared.whole.nbytes, _REGISTER_FLAGS))

    def release(self) -> None:
        """Nothing may be running that reads it. Idempotent."""
        if self._at:
            torch.cuda.check_error(torch.cuda.cudart().cudaHostUnregister(self._at))
        self._at = 0

