"""Turns a StepPlan and the rows into the tensors of one forward pass: packed, unpadded, positions explicit."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby

import torch

from inference.runner.request_rows import RequestRows
from inference.step import StepPlan

# Decode rows attend over a multiple of this many tokens, so that few rows have a span of their own.
_DECODE_KV_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Span:
    """Packed queries [first, first + num_rows * num_queries): rows that attend in one call, over kv_len tokens each.

    A row's result must not depend on what else the step holds. Attention kernels sum in an order that depends on the
    shape of the call, so that shape is a function of the row's own position: a decode span packs rows whose length,
    rounded up, is the same; a prefill span is one row's queries within one KV block.

    block_ids: [num_rows * blocks_per_row] int64; query_positions: [num_rows, num_queries] int64.
    """

    first: int
    num_rows: int
    num_queries: int
    kv_len: int
    block_ids: torch.Tensor
    query_positions: torch.Tensor
    masks: dict[int | None, torch.Tensor] = field(default_factory=dict)

    def mask(self, window: int | None, dtype: torch.dtype) -> torch.Tensor:
        """[num_rows, 1, num_queries, kv_len]: 0 where a query sees a key, else -inf; causal, and `window` tokens back.

        Built once a step and window, for the first layer that asks.
        """
        if window not in self.masks:
            keys = torch.arange(self.kv_len, device=self.query_positions.device)
            queries = self.query_positions[:, :, None]
            hidden = keys > queries
            if window is not None:
                hidden |= keys <= queries - window
            mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
            self.masks[window] = mask.masked_fill_(hidden, -torch.inf)[:, None]
        return self.masks[window]


# (cosines as a model made them, the same rotation as [num_tokens, 1, rotated / 2] complex64); few, one for each base.
Rotations = list[tuple[torch.Tensor, torch.Tensor]]


@dataclass(slots=True)
class StepInputs:
    """input_ids, positions, slots: [num_tokens] int64; sample_at: [num_samples] int64, indexes into the tokens.

    slots: where each token's key and value go, as block_id * block_size + offset. Handed to the model's attention as
    the keyword `paged`.
    """

    input_ids: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    sample_at: torch.Tensor
    sample_rows: list[int]
    sample_positions: list[int]
    spans: list[Span]
    rotary: Rotations = field(default_factory=list)  # filled by the first layer that rotates so


def prepare(plan: StepPlan, rows: RequestRows, block_size: int) -> StepInputs:
    """Gather one step's inputs from the rows."""
    row_ids = torch.tensor([row.row for row in plan.rows])
    lengths = torch.tensor([row.num_tokens for row in plan.rows])
    starts = torch.tensor([row.start for row in plan.rows])
    ends = lengths.cumsum(0)
    token_rows = row_ids.repeat_interleave(lengths)
    positions = torch.arange(plan.num_tokens) - (ends - lengths - starts).repeat_interleave(lengths)
    blocks = rows.block_table[token_rows, positions // block_size]

    # Each sample: its row, and how many of the row's tokens come after the one that it follows.
    samples = [(index, left) for index, row in enumerate(plan.rows) for left in reversed(range(row.num_samples))]
    return StepInputs(
        input_ids=rows.token_ids[token_rows, positions],
        positions=positions,
        slots=blocks * block_size + positions % block_size,
        sample_at=ends[[index for index, _ in samples]] - 1 - torch.tensor([left for _, left in samples]).long(),
        sample_rows=[plan.rows[index].row for index, _ in samples],
        sample_positions=[plan.rows[index].start + plan.rows[index].num_tokens - left for index, left in samples],
        spans=_stepped_spans(plan, rows, block_size) + _prefill_spans(plan, rows, block_size),
    )


def _prefill_spans(plan: StepPlan, rows: RequestRows, block_size: int) -> list[Span]:
    spans = []
    first = sum(row.num_tokens for row in plan.rows[: plan.num_stepped])
    for row in plan.rows[plan.num_stepped :]:
        start, end = row.start, row.start + row.num_tokens
        while start < end:
            block = start // block_size
            stop = min(end, (block + 1) * block_size)
            spans.append(
                Span(
                    first=first, num_rows=1, num_queries=stop - start, kv_len=(block + 1) * block_size,
                    block_ids=rows.block_table[row.row, : block + 1], query_positions=torch.arange(start, stop)[None],
                )
            )
            first += stop - start
            start = stop
    return spans


def _stepped_spans(plan: StepPlan, rows: RequestRows, block_size: int) -> list[Span]:
    """Tokens that are computed one by one. Neighbours of equal rounded length share a span; the scheduler need not
    sort them."""
    spans = []
    stepped = [
        (row.row, position)
        for row in plan.rows[: plan.num_stepped]
        for position in range(row.start, row.start + row.num_tokens)
    ]
    unit = max(_DECODE_KV_TOKENS, block_size)
    for rounded, run in groupby(enumerate(stepped), key=lambda item: item[1][1] // unit):
        members = list(run)
        kv_len = (rounded + 1) * unit
        row_ids = torch.tensor([row for _, (row, _) in members])
        spans.append(
            Span(
                first=members[0][0], num_rows=len(members), num_queries=1, kv_len=kv_len,
                block_ids=rows.block_table[row_ids, : kv_len // block_size].reshape(-1),
                query_positions=torch.tensor([[position] for _, (_, position) in members]),
            )
        )
    return spans
