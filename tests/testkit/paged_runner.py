"""A runner without a model that holds the scheduler to its word.

It keeps rows and blocks as the real one does, but stores token ids where keys and values would be. A row samples a
hash of the history that it reads *through its block table*, so a block that was shared, freed or overwritten at the
wrong moment changes the output.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np

from inference.mask_ledger import MaskJob
from inference.step import LATE, PREFILLS, ScheduledRow, StepBounds, StepPlan, StepResult
from inference.types import TokenLogprobs

_EMPTY = -1


def next_token(history: list[int], vocab_size: int) -> int:
    digest = blake2b(repr(history).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little") % vocab_size


def best_of(history: list[int], allowed: list[int]) -> int:
    """The allowed token with the best score: one that is the best of all is the best of any few."""
    return min(allowed, key=lambda token: blake2b(repr((token, history)).encode(), digest_size=4).digest())


def expected_output(prompt: list[int], count: int, vocab_size: int) -> list[int]:
    history = list(prompt)
    for _ in range(count):
        history.append(next_token(history, vocab_size))
    return history[len(prompt) :]


@dataclass
class _Launched:
    """A step, and how many steps of the other track it runs after."""

    runner: PagedRunner
    plan: StepPlan
    num_before: int
    result: StepResult | None = None

    @property
    def is_done(self) -> bool:
        self.runner.run_something()
        return self.result is not None

    def wait(self) -> StepResult:
        while self.result is None:
            self.runner.run_next(self.plan.track)
        return self.result


@dataclass
class PagedRunner:
    """Computes steps in order, as a device stream does; those of two tracks in any order that the plans allow, as late
    as it may and then by a draw of `seed`. What a step is, is fixed when it is launched.
    """

    num_blocks: int
    block_size: int
    vocab_size: int
    bounds: StepBounds = field(default_factory=StepBounds)
    seed: int = 0
    plans: list[StepPlan] = field(default_factory=list)
    num_late: int = 0

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)
        self._blocks = [[_EMPTY] * self.block_size for _ in range(self.num_blocks)]
        self._tokens: dict[int, list[int]] = {}
        self._tables: dict[int, list[int]] = {}
        self._lengths: dict[int, int] = {}
        self._holders: dict[int, int] = {}
        self._masks: dict[int, tuple[int, int, bool, list[int]]] = {}
        self._launched: tuple[list[_Launched], list[_Launched]] = ([], [])
        self._num_run = [0, 0]

    @property
    def mask_counts(self) -> tuple[int, float]:
        return 0, 0.0

    def reset_masks(self) -> None:
        self._masks.clear()

    def post_masks(self, jobs: list[MaskJob]) -> None:
        words = np.zeros(-(-self.vocab_size // 32), np.int32)
        for job in jobs:
            is_open = job.matcher is None or not job.matcher.mask(words)
            if is_open:
                words[:] = -1
            bits = np.unpackbits(words.view(np.uint8), bitorder="little")[: self.vocab_size]
            allowed = np.flatnonzero(bits).tolist()
            self._masks[job.row] = (job.holder, job.position, is_open, allowed)

    def launch(self, plan: StepPlan) -> _Launched:
        self.plans.append(plan)
        launched = _Launched(self, plan, len(self._launched[1 - plan.track]) if plan.follows else 0)
        self._launched[plan.track].append(launched)
        if self.bounds.prefills_apart:
            assert plan.num_stepped == (0 if plan.track == PREFILLS else len(plan.rows)), "kinds are mixed"
            num_stepped = sum(row.num_tokens for row in plan.rows[: plan.num_stepped])
            assert num_stepped <= self.bounds.sizes[-1]
        return launched

    def run_something(self) -> None:
        track = self._rng.randrange(2)
        if self._num_run[track] < len(self._launched[track]):
            self.run_next(track)

    def run_next(self, track: int) -> None:
        """Run the next step of the track, and before it what it follows."""
        launched = self._launched[track][self._num_run[track]]
        while self._num_run[1 - track] < launched.num_before:
            self.run_next(1 - track)
        launched.result = self._run(launched.plan)
        self._num_run[track] += 1

    def _run(self, plan: StepPlan) -> StepResult:
        for source, copy in plan.block_copies:
            self._blocks[copy] = list(self._blocks[source])
        for new in plan.new_rows:
            self._tokens[new.row] = list(new.token_ids)
            self._tables[new.row] = []
            self._holders[new.row] = new.mask_holder
        for known in plan.token_writes:
            self._tokens[known.row][known.start :] = known.token_ids
        for write in plan.block_writes:
            table = self._tables[write.row]
            assert write.start <= len(table), "a gap in the block table"
            table[write.start :] = write.block_ids
        assert len({row.row for row in plan.rows}) == len(plan.rows), "a row occurs twice in a step"
        for row in plan.rows[plan.num_decodes :]:
            self._lengths[row.row] = row.start
        for row in plan.rows:
            self._write(row)
        drawn = tuple(token for row in plan.rows for token in self._samples(row))
        logprobs: tuple[TokenLogprobs | None, ...] = (None,) * len(drawn)
        return StepResult(drawn, logprobs)

    def _write(self, row: ScheduledRow) -> None:
        """Where the row stands, not where the plan believes it does."""
        start = self._lengths[row.row]
        assert start == row.start or self._holders[row.row], "only a row that waits for masks may be behind"
        table = self._tables[row.row]
        for position in range(start, start + row.num_tokens):
            block = self._blocks[table[position // self.block_size]]
            block[position % self.block_size] = self._tokens[row.row][position]
        self._lengths[row.row] = start + row.num_tokens

    def _samples(self, row: ScheduledRow) -> list[int]:
        drawn = []
        last = self._lengths[row.row]
        for end in range(last - row.num_samples + 1, last + 1):
            table = self._tables[row.row]
            history = [self._blocks[table[p // self.block_size]][p % self.block_size] for p in range(end)]
            token = self._drawn(row.row, history)
            drawn.append(token)
            if token == LATE:
                self._lengths[row.row] -= 1
                self.num_late += 1
                break
            self._tokens[row.row][end : end + 1] = [token]
        return drawn

    def _drawn(self, row: int, history: list[int]) -> int:
        if not self._holders[row]:
            return next_token(history, self.vocab_size)
        holder, position, is_open, allowed = self._mask_of(row)
        wanted = (self._holders[row], len(history))
        if (holder, position) == wanted:
            return best_of(history, allowed)
        if self.bounds.masks_may_be_late and not (is_open and holder == wanted[0] and position > wanted[1]):
            return LATE
        assert (holder, position) > wanted, "a step would wait for ever"
        return best_of(history, list(range(self.vocab_size)))

    def _mask_of(self, row: int) -> tuple[int, int, bool, list[int]]:
        """What is posted: for which holder and position, whether all tokens may come, and which may."""
        return self._masks.get(row, (0, 0, False, []))
