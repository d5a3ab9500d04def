"""The step loop: keeps one step running on the device while the next is planned. Knows no processes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from inference.mask_ledger import MaskJob, TokenMatcher
from inference.scheduler import Scheduler
from inference.step import StepPlan, StepResult
from inference.types import EngineStats, TokenChunk, TurnRequest


class Handle(Protocol):
    """A launched step; see inference.runner.model_runner.StepHandle."""

    def wait(self) -> StepResult: ...


class Runner(Protocol):
    """Launches steps in order without waiting for them."""

    def launch(self, plan: StepPlan) -> Handle: ...

    def reset_masks(self) -> None: ...

    def post_masks(self, jobs: list[MaskJob]) -> None: ...


class Engine:
    """A scheduler and a runner, two steps deep. All methods belong to one thread.

    >>> while engine.has_work:
    ...     chunks = engine.step()
    """

    def __init__(self, scheduler: Scheduler, runner: Runner) -> None:
        self._scheduler = scheduler
        self._runner = runner
        self._launched: deque[Handle] = deque()
        self._num_masks = 0
        self._mask_s = 0.0
        runner.reset_masks()

    @property
    def has_work(self) -> bool:
        return self._scheduler.has_work

    def submit(self, request: TurnRequest, matchers: Sequence[TokenMatcher] = ()) -> None:
        self._scheduler.submit(request, matchers)

    def cancel(self, turn_id: str, choice: int | None = None) -> None:
        """The blocks of the turn, or of this choice of it, are free when this returns."""
        self._scheduler.cancel(turn_id, choice)
        self._post_masks()

    def step(self) -> list[TokenChunk]:
        """Launch the next step if there is one, then take in the oldest once two run or nothing else can.

        Blocks for at most the rest of the running step. Raises what the step raised; the engine is then broken.
        """
        plan = self._scheduler.plan()
        if plan is not None:
            self._launched.append(self._runner.launch(plan))
            self._post_masks()
        if not self._launched or (plan is not None and len(self._launched) < 2):
            return []
        chunks = self._scheduler.apply(self._launched.popleft().wait())
        self._post_masks()
        return chunks

    def _post_masks(self) -> None:
        jobs = self._scheduler.take_mask_jobs()
        if jobs:
            started = time.perf_counter()
            self._runner.post_masks(jobs)
            self._num_masks += sum(job.matcher is not None for job in jobs)
            self._mask_s += time.perf_counter() - started

    def stats(self) -> EngineStats:
        return replace(self._scheduler.stats(), num_masks=self._num_masks, mask_s=self._mask_s)
