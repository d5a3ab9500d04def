"""The step loop: keeps one step running on the device while the next is planned. Knows no processes or clocks."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from inference.scheduler import Scheduler
from inference.step import StepPlan, StepResult
from inference.types import EngineStats, TokenChunk, TurnRequest


class Handle(Protocol):
    """A launched step; see inference.runner.model_runner.StepHandle."""

    def wait(self) -> StepResult: ...


class Runner(Protocol):
    """Launches steps in order without waiting for them."""

    def launch(self, plan: StepPlan) -> Handle: ...


class Engine:
    """A scheduler and a runner, two steps deep. All methods belong to one thread.

    >>> while engine.has_work:
    ...     chunks = engine.step()
    """

    def __init__(self, scheduler: Scheduler, runner: Runner) -> None:
        self._scheduler = scheduler
        self._runner = runner
        self._launched: deque[Handle] = deque()

    @property
    def has_work(self) -> bool:
        return self._scheduler.has_work

    def submit(self, request: TurnRequest) -> None:
        self._scheduler.submit(request)

    def cancel(self, turn_id: str, choice: int | None = None) -> None:
        """The blocks of the turn, or of this choice of it, are free when this returns."""
        self._scheduler.cancel(turn_id, choice)

    def step(self) -> list[TokenChunk]:
        """Launch the next step if there is one, then take in the oldest once two run or nothing else can.

        Blocks for at most the rest of the running step. Raises what the step raised; the engine is then broken.
        """
        plan = self._scheduler.plan()
        if plan is not None:
            self._launched.append(self._runner.launch(plan))
        if not self._launched or (plan is not None and len(self._launched) < 2):
            return []
        return self._scheduler.apply(self._launched.popleft().wait())

    def stats(self) -> EngineStats:
        return self._scheduler.stats()
