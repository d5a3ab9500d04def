"""The masks of constrained rows, where a CUDA device reads them: in pinned host memory, written while it computes.

A row's `posted` word says for which holder and position its mask is good. The device looks at it when it comes to
sampling; nothing is copied and nothing is enqueued for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from inference.mask_ledger import MaskJob

# Fewer masks than this are computed where they are asked for: a thread costs as much.
_FEW = 3
# A row whose last mask took longer is not waited for: its next one may hold up all others.
_SLOW_S = 0.0004


class DeviceMasks:
    """words: [max_rows, ceil(vocab_size / 32)] int32, a bit a token, lowest first; posted: [max_rows] int64, the holder
    in the upper 32 bits, below them twice the position, plus one if everything is allowed. Both on the host, pinned.
    """

    def __init__(self, max_rows: int, vocab_size: int, device: torch.device, num_threads: int = 8) -> None:
        pinned = device.type == "cuda"
        self.words = torch.zeros(max_rows, -(-vocab_size // 32), dtype=torch.int32, pin_memory=pinned)
        self.posted = torch.zeros(max_rows, dtype=torch.int64, pin_memory=pinned)
        self._words, self._posted = self.words.numpy(), self.posted.numpy()
        self._seconds = [0.0] * max_rows
        self._latest: list[MaskJob | None] = [None] * max_rows
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(num_threads, thread_name_prefix="headrace-mask")
        self._slow_threads = ThreadPoolExecutor(num_threads, thread_name_prefix="headrace-slow-mask")
        self._slow: dict[int, Future[None]] = {}

    def reset(self) -> None:
        """Holders are numbered anew; nothing may be running."""
        self._posted[:] = 0
        self._latest = [None] * len(self._latest)

    def post(self, jobs: Sequence[MaskJob]) -> None:
        """Returns when all masks are there but those that take long."""
        latest = {job.row: job for job in jobs}.values()
        with self._lock:
            for job in latest:
                self._latest[job.row] = job
        self._wait_for_matchers_of(latest)
        slow = [job for job in latest if self._seconds[job.row] > _SLOW_S and job.matcher is not None]
        for job in slow:
            self._slow[id(job.matcher)] = self._slow_threads.submit(self._post_slowly, job)
        quick = [job for job in latest if job not in slow]
        if len(quick) <= _FEW:
            for job in quick:
                self._post(job)
        else:
            list(self._threads.map(self._post, quick))

    def close(self) -> None:
        self._threads.shutdown()
        self._slow_threads.shutdown()

    def _wait_for_matchers_of(self, jobs: Iterable[MaskJob]) -> None:
        """A turn that has left its row and come back may still have a mask on its way."""
        for job in jobs:
            running = self._slow.pop(id(job.matcher), None)
            if running is not None:
                running.result()

    def _post(self, job: MaskJob) -> None:
        """The mask first, then the word for it: the device takes them in that order."""
        started = time.perf_counter()
        is_open = job.matcher is None or not job.matcher.mask(self._words[job.row])
        self._seconds[job.row] = time.perf_counter() - started
        self._posted[job.row] = _word(job, is_open)

    def _post_slowly(self, job: MaskJob) -> None:
        """The same, beside other jobs of the row: what they have written by then is left alone."""
        assert job.matcher is not None
        words = self._words[job.row].copy()
        started = time.perf_counter()
        is_open = not job.matcher.mask(words)
        seconds = time.perf_counter() - started
        with self._lock:
            if self._latest[job.row] is job:
                self._words[job.row] = words
                self._seconds[job.row] = seconds
                self._posted[job.row] = _word(job, is_open)


def _word(job: MaskJob, is_open: bool) -> int:
    return job.holder << 32 | job.position << 1 | is_open
