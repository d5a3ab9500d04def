"""The masks of constrained rows, where a CUDA device reads them: in pinned host memory, written while it computes.

A row's `posted` word says for which of its tickets the mask is good; the device counts its own tickets and waits, when
it comes to sampling such a row, until the word has reached them. Nothing is copied and nothing is enqueued for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

from inference.mask_ledger import MaskJob

# Fewer masks than this are computed where they are asked for: a thread costs as much.
_FEW = 3


class DeviceMasks:
    """words: [max_rows, ceil(vocab_size / 32)] int32, a bit a token, lowest first; posted: [max_rows] int32, twice the
    ticket, plus one if everything is allowed: both on the host, pinned. tickets: [max_rows] int32, on the device.
    """

    def __init__(self, max_rows: int, vocab_size: int, device: torch.device, num_threads: int = 6) -> None:
        pinned = device.type == "cuda"
        self.words = torch.zeros(max_rows, -(-vocab_size // 32), dtype=torch.int32, pin_memory=pinned)
        self.posted = torch.zeros(max_rows, dtype=torch.int32, pin_memory=pinned)
        self.tickets = torch.zeros(max_rows, dtype=torch.int32, device=device)
        self._words, self._posted = self.words.numpy(), self.posted.numpy()
        self._threads = ThreadPoolExecutor(num_threads, thread_name_prefix="headrace-mask")

    def reset(self) -> None:
        """Tickets start anew; enqueued on the current stream, and nothing else may be running."""
        self._posted[:] = 0
        self.tickets.zero_()

    def post(self, jobs: Sequence[MaskJob]) -> None:
        if len(jobs) <= _FEW:
            for job in jobs:
                self._post(job)
        else:
            list(self._threads.map(self._post, jobs))

    def close(self) -> None:
        self._threads.shutdown()

    def _post(self, job: MaskJob) -> None:
        """The mask first, then its ticket: the device takes them in that order."""
        is_open = job.matcher is None or not job.matcher.mask(self._words[job.row])
        if 2 * job.ticket >= self._posted[job.row] & ~1:
            self._posted[job.row] = 2 * job.ticket + is_open
