"""A runner without a model that holds the scheduler to its word.

It keeps rows and blocks as the real one does, but stores token ids where keys and values would be. A row samples a
hash of the history that it reads *through its block table*, so a block that was shared, freed or overwritten at the
wrong moment changes the output.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b

from inference.mask_ledger import MaskJob
from inference.step import ScheduledRow, StepPlan, StepResult
from inference.types import TokenLogprobs

_EMPTY = -1


def next_token(history: list[int], vocab_size: int) -> int:
    digest = blake2b(repr(history).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little") % vocab_size


def expected_output(prompt: list[int], count: int, vocab_size: int) -> list[int]:
    history = list(prompt)
    for _ in range(count):
        history.append(next_token(history, vocab_size))
    return history[len(prompt) :]


@dataclass
class _Handle:
    result: StepResult

    def wait(self) -> StepResult:
        return self.result


@dataclass
class PagedRunner:
    """Computes at launch, in order, as a device stream does."""

    num_blocks: int
    block_size: int
    vocab_size: int
    plans: list[StepPlan] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._blocks = [[_EMPTY] * self.block_size for _ in range(self.num_blocks)]
        self._tokens: dict[int, list[int]] = {}
        self._tables: dict[int, list[int]] = {}

    def reset_masks(self) -> None:
        """This runner's turns are not constrained."""

    def post_masks(self, jobs: list[MaskJob]) -> None:
        assert all(job.matcher is None for job in jobs)

    def launch(self, plan: StepPlan) -> _Handle:
        self.plans.append(plan)
        for source, copy in plan.block_copies:
            self._blocks[copy] = list(self._blocks[source])
        for new in plan.new_rows:
            self._tokens[new.row] = list(new.token_ids)
            self._tables[new.row] = []
        for known in plan.token_writes:
            self._tokens[known.row][known.start :] = known.token_ids
        for write in plan.block_writes:
            table = self._tables[write.row]
            assert write.start <= len(table), "a gap in the block table"
            table[write.start :] = write.block_ids
        assert len({row.row for row in plan.rows}) == len(plan.rows), "a row occurs twice in a step"
        for row in plan.rows:
            self._write(row)
        drawn = tuple(token for row in plan.rows for token in self._samples(row))
        logprobs: tuple[TokenLogprobs | None, ...] = (None,) * len(drawn)
        return _Handle(StepResult(drawn, logprobs))

    def _write(self, row: ScheduledRow) -> None:
        table = self._tables[row.row]
        for position in range(row.start, row.start + row.num_tokens):
            block = self._blocks[table[position // self.block_size]]
            block[position % self.block_size] = self._tokens[row.row][position]

    def _samples(self, row: ScheduledRow) -> list[int]:
        drawn = []
        for end in range(row.start + row.num_tokens - row.num_samples + 1, row.start + row.num_tokens + 1):
            table = self._tables[row.row]
            history = [self._blocks[table[p // self.block_size]][p % self.block_size] for p in range(end)]
            drawn.append(next_token(history, self.vocab_size))
            tokens = self._tokens[row.row]
            tokens[end : end + 1] = drawn[-1:]
        return drawn
