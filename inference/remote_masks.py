"""Which masks of constrained rows other processes make, where and when: the host's side of inference.remote_grammars.

Of a row, one mask at a time is made. What is wanted of the row meanwhile waits for that, so that nobody writes to a row
that is another's by then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import cast

from inference.mask_ledger import MaskJob
from inference.remote_grammars import GrammarProcess, GrammarProcesses
from inference.remote_matcher import RemoteMatcher
from inference.shared_masks import word_of


class RemoteMasks:
    """For the engine's thread, as the runner's own masks: `post` is to be called each step, even if nothing is new."""

    def __init__(self, processes: GrammarProcesses) -> None:
        self._processes = processes
        self._posted = processes.shared.posted.data
        self._making: dict[int, tuple[int, MaskJob, GrammarProcess]] = {}  # by row, with its serial
        self._waiting: dict[int, MaskJob] = {}  # by row: what is wanted next
        self._serial = 0

    @property
    def counts(self) -> tuple[int, float]:
        """Masks so far, and the seconds that they took in all."""
        processes = self._processes.all
        return sum(each.num_computed for each in processes), sum(each.seconds for each in processes)

    def post(self, jobs: Sequence[MaskJob]) -> None:
        """Of a row, the last job is the one that counts."""
        if self._making:
            self._take_finished()
        if not jobs and not self._waiting:
            return
        for job in jobs:
            self._waiting[job.row] = job
            if job.row in self._making and self._making[job.row][1].holder != job.holder:
                # A device may wait for the new holder's mask, and then nobody comes here again before it is there.
                self._wait_for(job.row)
        begun: dict[GrammarProcess, list[tuple[MaskJob, int]]] = defaultdict(list)
        for row in [row for row in self._waiting if row not in self._making]:
            job = self._waiting.pop(row)
            if job.matcher is None:
                self._posted[row] = word_of(job.holder, job.position, is_open=True)
                continue
            # A token that is drawn again was drawn without a mask: what let it through is good no more.
            self._posted[row] = 0
            self._serial += 1
            process = cast(GrammarProcess, cast(RemoteMatcher, job.matcher).process)
            self._making[row] = (self._serial, job, process)
            begun[process].append((job, self._serial))
        for process, masks in begun.items():
            process.begin(masks)

    def reset(self) -> None:
        """Holders are numbered anew; no step is running. Waits for what is being made."""
        self._waiting.clear()
        for row in tuple(self._making):
            self._wait_for(row)
        self._processes.shared.posted[:] = 0

    def _wait_for(self, row: int) -> None:
        self._take_finished()
        while row in self._making:
            self._making[row][2].wait_for_news()
            self._take_finished()

    def _take_finished(self) -> None:
        finished: set[int] = set()
        for process in {process for _, _, process in self._making.values()}:
            process.read()
            finished.update(process.finished)
            process.finished.clear()
        for row, (serial, job, process) in list(self._making.items()):
            if serial in finished:
                del self._making[row]
                if process.is_dead:
                    # What the row draws without a mask is refused, and its turn ends with that.
                    self._posted[row] = word_of(job.holder, job.position, is_open=True)
