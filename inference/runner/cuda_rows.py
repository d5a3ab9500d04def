"""The rows on a CUDA device, and the staged writes that are all the host ever sends.

Pinned buffers come from torch's host allocator, which reuses one only after the copies from it are done, so nothing
here waits for the device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from inference.runner.kernels.rows import DECODES_ONE
from inference.runner.kernels.sampling import BY_HOST, FILTERED, PLAIN, SampledRows
from inference.runner.request_rows import RowSampling
from inference.runner.step_buffers import StepBuffers, Write
from inference.step import MAX_ENDS, ScheduledRow, StepPlan

_INT64_WORDS = 2

# The row and the turn of each entry of a decode pass.
Entries = tuple[tuple[int, ...], tuple[int, ...]]


class CudaRows:
    """Views into one int32 arena, `max_rows` rows and one spare that padding may use.

    token_ids: [rows, stride]; block_table: [rows, max_blocks]; lengths: [rows], tokens in the cache; sampled: these,
    and how each row samples; unfiltered: [rows], 0 where kernels.filters is wanted; entry_rows, entry_turns:
    [max_rows], what a decode pass computes, see kernels.rows.
    """

    def __init__(self, max_rows: int, max_model_len: int, block_size: int, device: torch.device) -> None:
        rows = max_rows + 1
        self._stride = -(-(max_model_len + 2) // 64) * 64
        self._num_blocks = -(-max_model_len // block_size) + 1
        sizes = [
            rows * self._stride, rows * self._num_blocks, rows, rows, rows, rows * _INT64_WORDS, rows, rows,
            rows * MAX_ENDS, rows, rows, rows, rows, max_rows, max_rows,
        ]  # fmt: skip
        starts = [0]
        for size in sizes:
            starts.append(-(-(starts[-1] + size) // 64) * 64)
        self._starts = starts
        self.arena = torch.zeros(starts[-1], dtype=torch.int32, device=device)
        parts = [self.arena[start : start + size] for start, size in zip(starts[:-1], sizes, strict=True)]
        self.token_ids = parts[0].view(rows, self._stride)
        self.block_table = parts[1].view(rows, self._num_blocks)
        self.lengths = parts[2]
        self.sampled = SampledRows(
            token_ids=self.token_ids, lengths=self.lengths, kinds=parts[3], temperatures=parts[4].view(torch.float32),
            noise_keys=parts[5].view(torch.int64), mask_holders=parts[6], no_end_before=parts[7],
            end_ids=parts[8].view(rows, MAX_ENDS), top_ks=parts[9], top_ps=parts[10].view(torch.float32),
            min_ps=parts[11].view(torch.float32),
        )  # fmt: skip
        self.unfiltered, self.entry_rows, self.entry_turns = parts[12:]
        self.sampling: list[RowSampling | None] = [None] * rows
        self.holders = [0] * rows
        self._of_kind: dict[int, set[int]] = {FILTERED.value: set(), BY_HOST.value: set()}
        self.spare_row = max_rows
        self.entry_rows.fill_(self.spare_row)
        self.entry_turns.fill_(DECODES_ONE)

    def apply(
        self, plan: StepPlan, lengths_of: Mapping[int, int], entries: Entries | None, buffers: StepBuffers
    ) -> None:
        """Stage everything that the plan changes, these rows' lengths, and what the decode pass computes if that is
        not what the last one did, and scatter it with one kernel."""
        writes: list[Write] = []
        tokens, table, lengths, kinds, temperatures, keys, holders, no_end_before, ends, *others = self._starts
        filters, (at_rows, at_turns, _) = others[:4], others[4:]
        for new in plan.new_rows:
            sampling = RowSampling.of(new, self.arena.device)
            self.sampling[new.row] = sampling
            self.holders[new.row] = new.mask_holder
            kind = _kind_of(sampling)
            for other, members in self._of_kind.items():
                (members.add if other == kind else members.discard)(new.row)
            writes += [
                (tokens + new.row * self._stride, new.token_ids),
                (lengths + new.row, (lengths_of.get(new.row, 0),)),
                (kinds + new.row, (kind,)),
                (temperatures + new.row, _float_word(new.params.temperature)),
                (keys + new.row * _INT64_WORDS, np.array([new.noise_key], np.int64).view(np.int32).tolist()),
                (holders + new.row, (new.mask_holder,)),
                (no_end_before + new.row, (new.no_end_before if new.params.min_tokens else 0,)),
                (ends + new.row * MAX_ENDS, (*new.end_token_ids, *[-1] * MAX_ENDS)[:MAX_ENDS]),
            ]
            if sampling.is_filtered:
                params = new.params
                values = [(params.top_k,), _float_word(params.top_p), _float_word(params.min_p)]
                for column, value in zip(filters, values, strict=False):
                    writes.append((column + new.row, value))
            writes.append((filters[-1] + new.row, (0 if sampling.is_filtered else 1,)))
        entered = {new.row for new in plan.new_rows}
        writes += [(lengths + row, (length,)) for row, length in lengths_of.items() if row not in entered]
        for known in plan.token_writes:
            writes.append((tokens + known.row * self._stride + known.start, known.token_ids))
        for write in plan.block_writes:
            writes.append((table + write.row * self._num_blocks + write.start, write.block_ids))
        if entries is not None:
            writes += [(at_rows, entries[0]), (at_turns, entries[1])]
        if writes:
            buffers.apply(writes)

    def any_of_kind(self, kind: int, rows: Sequence[ScheduledRow]) -> bool:
        """Does any of these draw, and is drawn for so? FILTERED or BY_HOST."""
        members = self._of_kind[kind]
        return bool(members) and any(row.samples and row.row in members for row in rows)


def _kind_of(sampling: RowSampling) -> int:
    kind = BY_HOST if not sampling.is_simple else FILTERED if sampling.is_filtered else PLAIN
    return int(kind.value)


def _float_word(value: float) -> tuple[int, ...]:
    return tuple(np.array([value], np.float32).view(np.int32).tolist())


def to_device(values: np.ndarray, device: torch.device) -> torch.Tensor:
    """A copy on the device, enqueued, not awaited."""
    pinned = torch.empty(values.shape, dtype=torch.from_numpy(values[:0]).dtype, pin_memory=True)
    pinned.numpy()[...] = values
    return pinned.to(device, non_blocking=True)
