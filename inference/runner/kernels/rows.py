"""The rows on the device: staged writes applied by one kernel, and the inputs of a decode step gathered by another.

All of a row's state lies in one int32 arena, so that a write of any kind is (where, from where, how many words).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from inference.runner.kernels.linear import RowSquares

# An entry's turn: does it draw the token after its own, is it the row's last, and, from here on, its place in the row.
DRAWS, IS_LAST, TURN = 1, 2, 4
DECODES_ONE = DRAWS + IS_LAST
# Entries of one row in a pass, at most.
LONGEST_RUN = 16


@triton.jit
def _scatter_kernel(arena, staged, BLOCK: tl.constexpr):
    write = tl.program_id(0)
    if write < tl.load(staged):
        target = tl.load(staged + 1 + write * 3).to(tl.int64)
        source = tl.load(staged + 2 + write * 3)
        count = tl.load(staged + 3 + write * 3)
        offsets = tl.arange(0, BLOCK)
        for start in range(0, count, BLOCK):
            mask = start + offsets < count
            values = tl.load(staged + source + start + offsets, mask=mask)
            tl.store(arena + target + start + offsets, values, mask=mask)


def scatter(arena: torch.Tensor, staged: torch.Tensor, most_writes: int) -> None:
    """staged: int32, on the device: how many writes, at most most_writes; for each of them where in
    the arena, where in `staged`, and how many words; then the words. Targets must not overlap.

    One program a write. Reference: `arena[target : target + count] = staged[source : source + count]` for each.
    """
    _scatter_kernel[(most_writes,)](arena, staged, BLOCK=1024)


@triton.jit
def _gather_kernel(
    row_ids, turns, token_ids, token_stride, lengths, block_table, table_stride, cos_sin, embedding, hidden, positions,
    slots, rotations, tables, squares, WIDTH: tl.constexpr, WIDTH_POW2: tl.constexpr, HEAD_DIM: tl.constexpr,
    HEAD_POW2: tl.constexpr, BLOCK_SIZE: tl.constexpr, BLOCK: tl.constexpr, TURN: tl.constexpr,
    multiplier: tl.constexpr,
):  # fmt: skip
    index = tl.program_id(0)
    row = tl.load(row_ids + index).to(tl.int64)
    position = tl.load(lengths + row) + tl.load(turns + index) // TURN
    token = tl.load(token_ids + row * token_stride + position).to(tl.int64)
    block = tl.load(block_table + row * table_stride + position // BLOCK_SIZE)
    tl.store(positions + index, position)
    tl.store(slots + index, block * BLOCK_SIZE + position % BLOCK_SIZE)
    offsets = tl.arange(0, BLOCK)
    for start in range(0, position // BLOCK_SIZE + 1, BLOCK):
        mask = start + offsets <= position // BLOCK_SIZE
        ids = tl.load(block_table + row * table_stride + start + offsets, mask=mask)
        tl.store(tables + index * table_stride + start + offsets, ids, mask=mask)
    dims = tl.arange(0, HEAD_POW2)
    angles = tl.load(cos_sin + position.to(tl.int64) * HEAD_DIM + dims, mask=dims < HEAD_DIM)
    tl.store(rotations + index * HEAD_DIM + dims, angles, mask=dims < HEAD_DIM)
    wide = tl.arange(0, WIDTH_POW2)
    values = tl.load(embedding + token * WIDTH + wide, mask=wide < WIDTH, other=0.0)
    if multiplier != 1.0:
        values = (values.to(tl.float32) * multiplier).to(hidden.dtype.element_ty)
    tl.store(hidden + index * WIDTH + wide, values, mask=wide < WIDTH)
    exact = values.to(tl.float32)
    tl.store(squares + index, tl.sum(exact * exact, axis=0))


@dataclass(frozen=True, slots=True)
class RowInputs:
    """What a step of one token a row computes with, gathered from the rows.

    hidden: [B, width]; positions, slots (block * block_size + offset): [B] int32; rotations: [B, head_dim] float32,
    cosines, then sines; tables: [B, max_blocks] int32, the rows' block tables up to their newest token; squares: those
    of hidden. embedding_multiplier: hidden is a token's embedding times this, rounded to its precision.
    """

    hidden: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    rotations: torch.Tensor
    tables: torch.Tensor
    squares: RowSquares
    embedding_multiplier: float = 1.0

    @classmethod
    def empty(
        cls, num_rows: int, embedding: torch.Tensor, block_table: torch.Tensor, head_dim: int, *,
        embedding_multiplier: float = 1.0,
    ) -> RowInputs:  # fmt: skip
        return cls(
            hidden=embedding.new_empty(num_rows, embedding.shape[1]),
            positions=block_table.new_zeros(num_rows),
            slots=block_table.new_zeros(num_rows),
            rotations=block_table.new_zeros((num_rows, head_dim), dtype=torch.float32),
            tables=block_table.new_zeros(num_rows, block_table.shape[1]),
            squares=RowSquares.on(embedding.device),
            embedding_multiplier=embedding_multiplier,
        )

    def first(self, batch: int) -> RowInputs:
        """Views of the first rows."""
        return RowInputs(
            self.hidden[:batch], self.positions[:batch], self.slots[:batch], self.rotations[:batch],
            self.tables[:batch], self.squares, self.embedding_multiplier,
        )  # fmt: skip


def gather_rows(
    row_ids: torch.Tensor, turns: torch.Tensor, token_ids: torch.Tensor, lengths: torch.Tensor,
    block_table: torch.Tensor, block_size: int, cos_sin: torch.Tensor, embedding: torch.Tensor, into: RowInputs,
) -> None:  # fmt: skip
    """One token of each entry's row, embedded, and where it stands; one program an entry.

    row_ids, turns: [B] int32. A row that decodes has one entry, of turn DECODES_ONE; one that reads several tokens has
    as many entries, and a turn is TURN times how far behind the row's length its token stands, and the entry's bits.
    token_ids: [max_rows, stride] int32; lengths: [max_rows] int32, tokens in the cache; block_table: [max_rows,
    max_blocks] int32; cos_sin: [max_model_len, head_dim] float32. B <= MAX_ROWS, or squares are not used.
    """
    width, head_dim = embedding.shape[1], cos_sin.shape[1]
    assert into.tables.stride(0) == block_table.stride(0), "tables are copies of the rows' block tables"
    _gather_kernel[(row_ids.shape[0],)](
        row_ids, turns, token_ids, token_ids.stride(0), lengths, block_table, block_table.stride(0), cos_sin, embedding,
        into.hidden, into.positions, into.slots, into.rotations, into.tables, into.squares.parts,
        WIDTH=width, WIDTH_POW2=triton.next_power_of_2(width), HEAD_DIM=head_dim,
        HEAD_POW2=triton.next_power_of_2(head_dim), BLOCK_SIZE=block_size, BLOCK=256, TURN=TURN,
        multiplier=into.embedding_multiplier, num_warps=4,
    )  # fmt: skip
    into.squares.count = 1
