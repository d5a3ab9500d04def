"""The step loop: keeps one step running on the device while the next is planned. Knows no processes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from inference.mask_ledger import MaskJob, TokenMatcher
from inference.scheduler import Scheduler
from inference.step import DECODES, PREFILLS, StepBounds, StepPlan, StepResult
from inference.types import EngineStats, TokenChunk, TurnRequest


class Handle(Protocol):
    """A launched step; see inference.runner.model_runner.StepHandle."""

    @property
    def is_done(self) -> bool: ...

    def wait(self) -> StepResult: ...


class Runner(Protocol):
    """Launches the steps of each track in order, without waiting for them."""

    bounds: StepBounds

    @property
    def mask_counts(self) -> tuple[int, float]: ...

    def launch(self, plan: StepPlan) -> Handle: ...

    def reset_masks(self) -> None: ...

    def post_masks(self, jobs: list[MaskJob]) -> None: ...


@dataclass(frozen=True, slots=True)
class _Launched:
    number: int
    follows: bool
    handle: Handle


class Engine:
    """A scheduler and a runner, two steps deep a track. All methods belong to one thread.

    >>> while engine.has_work:
    ...     chunks = engine.step()
    """

    def __init__(self, scheduler: Scheduler, runner: Runner) -> None:
        self._scheduler = scheduler
        self._runner = runner
        # Prefills first: decodes are always running.
        self._tracks = (PREFILLS, DECODES) if runner.bounds.prefills_apart else (DECODES,)
        self._launched: dict[int, deque[_Launched]] = {track: deque() for track in self._tracks}
        self._num_launched = 0
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
        """Launch the next step of each track that has one, then take in a step that has run, once a track is two deep
        or nothing else can be launched.

        Blocks for at most the rest of a running step. Raises what the step raised; the engine is then broken.
        """
        chunks = self._scheduler.take_chunks()  # of tokens that are known to be forced by now
        launches = [self._launch_next(track) for track in self._tracks if len(self._launched[track]) < 2]
        if not any(self._launched.values()):
            return chunks
        if any(launches) and all(len(launched) < 2 for launched in self._launched.values()):
            return chunks
        track = self._next_to_finish()
        self._scheduler.take_in(self._launched[track].popleft().handle.wait(), track)
        self._post_masks()
        chunks += self._scheduler.take_chunks()
        self._post_masks()
        return chunks

    def _launch_next(self, track: int) -> bool:
        plan = self._scheduler.plan(track)
        if plan is None:
            return False
        self._num_launched += 1
        # Masks first: what a launch does may make the host wait for the device, and that for a mask.
        self._post_masks()
        self._launched[track].append(_Launched(self._num_launched, plan.follows, self._runner.launch(plan)))
        return True

    def _next_to_finish(self) -> int:
        """The track whose oldest step ends first. A step that follows is never looked at before what it follows."""
        while True:
            heads = sorted((launched[0].number, track) for track, launched in self._launched.items() if launched)
            (_, first), *others = heads
            ahead = [track for _, track in others if not self._launched[track][0].follows]
            if not ahead or self._launched[first][0].handle.is_done:
                return first
            if self._launched[ahead[0]][0].handle.is_done:
                return ahead[0]
            time.sleep(0)

    def _post_masks(self) -> None:
        """Asked each step, even if there are none: those who make masks may have been waiting for each other."""
        self._runner.post_masks(self._scheduler.take_mask_jobs())

    def stats(self) -> EngineStats:
        """A snapshot, the caller's own."""
        stats = self._scheduler.stats()
        stats.num_masks, stats.mask_s = self._runner.mask_counts
        return stats
