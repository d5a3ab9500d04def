"""Turns a StepPlan and the rows into the tensors of one forward pass: packed, unpadded, positions explicit."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from inference.runner.request_rows import RequestRows
from inference.step import StepPlan


@dataclass(frozen=True, slots=True)
class Span:
    """Packed queries [first, first + num_queries * num_rows): equally long runs of rows that attend together.

    A decode span packs rows of similar length with one query each; a prefill span is one row's chunk.
    block_ids: [num_rows * blocks_per_row] int64; mask: [num_rows, 1, num_queries, kv_len] bool or None (all visible).
    """

    first: int
    num_rows: int
    num_queries: int
    kv_len: int
    block_ids: torch.Tensor
    masks: dict[int | None, torch.Tensor | None]
    query_positions: torch.Tensor  # [num_rows, num_queries] int64

    def mask(self, window: int | None) -> torch.Tensor | None:
        """Which keys each query sees: causal, and at most `window` tokens back. Built once a step and window."""
        if window not in self.masks:
            keys = torch.arange(self.kv_len)
            queries = self.query_positions[:, :, None]
            visible = keys <= queries
            if window is not None:
                visible &= keys > queries - window
            self.masks[window] = None if bool(visible.all()) else visible[:, None]
        return self.masks[window]


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
    rotary: torch.Tensor | None = field(default=None)  # [num_tokens, 1, head_dim / 2] complex64, by the first layer


def prepare(plan: StepPlan, rows: RequestRows, block_size: int) -> StepInputs:
    """Gather one step's inputs from the rows."""
    row_ids = torch.tensor([row.row for row in plan.rows])
    lengths = torch.tensor([row.num_tokens for row in plan.rows])
    starts = torch.tensor([row.start for row in plan.rows])
    ends = lengths.cumsum(0)
    token_rows = row_ids.repeat_interleave(lengths)
    positions = torch.arange(plan.num_tokens) - (ends - lengths - starts).repeat_interleave(lengths)
    blocks = rows.block_table[token_rows, positions // block_size]

    sampling = [index for index, row in enumerate(plan.rows) if row.samples]
    return StepInputs(
        input_ids=rows.token_ids[token_rows, positions],
        positions=positions,
        slots=blocks * block_size + positions % block_size,
        sample_at=ends[sampling] - 1,
        sample_rows=[plan.rows[index].row for index in sampling],
        sample_positions=[plan.rows[index].start + plan.rows[index].num_tokens for index in sampling],
        spans=_decode_spans(plan, rows, block_size) + _prefill_spans(plan, rows, block_size),
    )


def _prefill_spans(plan: StepPlan, rows: RequestRows, block_size: int) -> list[Span]:
    spans = []
    first = plan.num_decodes
    for row in plan.rows[plan.num_decodes :]:
        kv_len = row.start + row.num_tokens
        num_blocks = -(-kv_len // block_size)
        spans.append(
            Span(
                first=first, num_rows=1, num_queries=row.num_tokens, kv_len=kv_len,
                block_ids=rows.block_table[row.row, :num_blocks],
                masks={}, query_positions=torch.arange(row.start, kv_len)[None],
            )
        )
        first += row.num_tokens
    return spans


def _decode_spans(plan: StepPlan, rows: RequestRows, block_size: int) -> list[Span]:
    """Neighbouring decode rows share a span while padding them to the longest wastes less than half of it."""
    spans = []
    first = 0
    decodes = plan.rows[: plan.num_decodes]
    while first < len(decodes):
        last, longest, shortest = first, decodes[first].start + 1, decodes[first].start + 1
        while last + 1 < len(decodes):
            kv_len = decodes[last + 1].start + 1
            if max(longest, kv_len) > 2 * min(shortest, kv_len) + 4 * block_size:
                break
            longest, shortest, last = max(longest, kv_len), min(shortest, kv_len), last + 1
        group = decodes[first : last + 1]
        num_blocks = -(-longest // block_size)
        row_ids = torch.tensor([row.row for row in group])
        spans.append(
            Span(
                first=first, num_rows=len(group), num_queries=1, kv_len=longest,
                block_ids=rows.block_table[row_ids, :num_blocks].reshape(-1),
                masks={}, query_positions=torch.tensor([[row.start] for row in group]),
            )
        )
        first = last + 1
    return spans
