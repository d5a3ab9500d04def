"""A step while it is being planned. Pure data."""

from __future__ import annotations

from dataclasses import dataclass, field

from inference.sequence import Sequence
from inference.step import BlockWrite, NewRow, ScheduledRow, StepPlan, TokenWrite


@dataclass(slots=True)
class StepDraft:
    """Lives for one call of Scheduler.plan."""

    tokens_left: int
    decodes: list[ScheduledRow] = field(default_factory=list)
    runs: list[ScheduledRow] = field(default_factory=list)
    prefills: list[ScheduledRow] = field(default_factory=list)
    new_rows: list[NewRow] = field(default_factory=list)
    token_writes: list[TokenWrite] = field(default_factory=list)
    block_writes: list[BlockWrite] = field(default_factory=list)
    block_copies: list[tuple[int, int]] = field(default_factory=list)
    run_sequences: list[Sequence] = field(default_factory=list)
    decode_sequences: list[Sequence] = field(default_factory=list)
    prefill_sequences: list[Sequence] = field(default_factory=list)

    def finish(self) -> StepPlan:
        return StepPlan(
            rows=(*self.decodes, *self.runs, *self.prefills),
            num_decodes=len(self.decodes),
            num_stepped=len(self.decodes) + len(self.runs),
            new_rows=tuple(self.new_rows),
            token_writes=tuple(self.token_writes),
            block_writes=tuple(self.block_writes),
            block_copies=tuple(self.block_copies),
        )

    @property
    def sequences(self) -> list[Sequence]:
        """Of the rows, in their order."""
        return [*self.decode_sequences, *self.run_sequences, *self.prefill_sequences]
