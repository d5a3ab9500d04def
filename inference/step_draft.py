"""A step while it is being planned. Pure data."""

from __future__ import annotations

from dataclasses import dataclass, field

from inference.sequence import Sequence
from inference.step import BlockWrite, NewRow, ScheduledRow, StepPlan, TokenWrite


@dataclass(slots=True)
class StepDraft:
    """Lives for one call of Scheduler.plan. num_tokens: of the rows so far; tokens_left: room for more."""

    tokens_left: int
    num_tokens: int = 0
    decodes: list[ScheduledRow] = field(default_factory=list)
    runs: list[ScheduledRow] = field(default_factory=list)
    prefills: list[ScheduledRow] = field(default_factory=list)
    new_rows: list[NewRow] = field(default_factory=list)
    token_writes: list[TokenWrite] = field(default_factory=list)
    block_writes: list[BlockWrite] = field(default_factory=list)
    block_copies: list[tuple[int, int]] = field(default_factory=list)
    _decode_sequences: list[Sequence] = field(default_factory=list)
    _run_sequences: list[Sequence] = field(default_factory=list)
    _prefill_sequences: list[Sequence] = field(default_factory=list)

    def add_decode(self, row: ScheduledRow, sequence: Sequence) -> None:
        self.decodes.append(row)
        self._decode_sequences.append(sequence)
        self._take(1)

    def add_run(self, row: ScheduledRow, sequence: Sequence) -> None:
        self.runs.append(row)
        self._run_sequences.append(sequence)
        self._take(row.num_tokens)

    def add_prefill(self, row: ScheduledRow, sequence: Sequence) -> None:
        self.prefills.append(row)
        self._prefill_sequences.append(sequence)
        self._take(row.num_tokens)

    def _take(self, num_tokens: int) -> None:
        self.num_tokens += num_tokens
        self.tokens_left -= num_tokens

    @property
    def rows(self) -> tuple[ScheduledRow, ...]:
        return (*self.decodes, *self.runs, *self.prefills)

    @property
    def sequences(self) -> list[Sequence]:
        """Of the rows, in their order."""
        return [*self._decode_sequences, *self._run_sequences, *self._prefill_sequences]

    def finish(self, track: int, follows: bool) -> StepPlan:
        return StepPlan(
            rows=self.rows,
            num_decodes=len(self.decodes),
            num_stepped=len(self.decodes) + len(self.runs),
            track=track,
            follows=follows,
            new_rows=tuple(self.new_rows),
            token_writes=tuple(self.token_writes),
            block_writes=tuple(self.block_writes),
            block_copies=tuple(self.block_copies),
        )
