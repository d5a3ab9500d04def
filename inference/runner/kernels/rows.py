"""The rows on the device: staged writes applied by one kernel, and the inputs of a decode step gathered by another.

All of a row's state lies in one int32 arena, so that a write of any kind is (where, from where, how many words).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from inference.runner.kernels.linear import RowSquares


@triton.jit
def _scatter_kernel(arena, staged, num_writes, BLOCK: tl.constexpr):
    write = tl.program_id(0)
    target = tl.load(staged + write * 3).to(tl.int64)
    source = tl.load(staged + write * 3 + 1)
    count = tl.load(staged + write * 3 + 2)
    offsets = tl.arange(0, BLOCK)
    for start in range(0, count, BLOCK):
        mask = start + offsets < count
        values = tl.load(staged + source + start + offsets, mask=mask)
        tl.store(arena + target + start + offsets, values, mask=mask)


def scatter(arena: torch.Tensor, staged: torch.Tensor, num_writes: int) -> None:
    """staged: int32, cuda; num_writes triples (target, source, count), then the data. Targets must not overlap.

    One program a write. Reference: `arena[target : target + count] = staged[source : source + count]` for each triple.
    """
    _scatter_kernel[(num_writes,)](arena, staged, num_writes, BLOCK=1024)


@triton.jit
def _gather_kernel(
    row_ids, token_ids, token_stride, lengths, embedding, hidden, positions, squares,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    index = tl.program_id(0)
    row = tl.load(row_ids + index).to(tl.int64)
    position = tl.load(lengths + row)
    token = tl.load(token_ids + row * token_stride + position).to(tl.int64)
    tl.store(positions + index, position)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < WIDTH
    values = tl.load(embedding + token * WIDTH + offsets, mask=mask, other=0.0)
    tl.store(hidden + index * WIDTH + offsets, values, mask=mask)
    exact = values.to(tl.float32)
    tl.store(squares + index, tl.sum(exact * exact, axis=0))


def gather_decode(
    row_ids: torch.Tensor, token_ids: torch.Tensor, lengths: torch.Tensor, embedding: torch.Tensor,
    hidden: torch.Tensor, positions: torch.Tensor, squares: RowSquares,
) -> None:  # fmt: skip
    """The newest token of each row, embedded, and where it stands.

    row_ids: [B] int32; token_ids: [max_rows, stride] int32; lengths: [max_rows] int32, tokens in the cache;
    hidden: [B, width], positions: [B] int32 and squares (B <= MAX_ROWS or unused) are written. One program a row.
    """
    width = embedding.shape[1]
    _gather_kernel[(row_ids.shape[0],)](
        row_ids, token_ids, token_ids.stride(0), lengths, embedding, hidden, positions, squares.parts,
        WIDTH=width, BLOCK=triton.next_power_of_2(width), num_warps=4,
    )  # fmt: skip
    squares.count = 1
