"""The inputs of a packed step, prefill chunks and decodes together, in one int32 buffer that is copied at once.

Each section starts at a multiple of 256 bytes: kernels are compiled for the alignment of what they are given, and one
kind of alignment means one compilation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch

from inference.runner.kernels.attention import EXTRA_TILES, TILE_QUERIES, tiles_of
from inference.step import ScheduledRow

_ALIGNMENT = 64  # int32s


@dataclass(frozen=True, slots=True, order=True)
class PackedShape:
    """Room for num_tokens tokens of at most num_rows rows, of which num_samples sample. lists_chunks: whether there are
    ChunkInputs too."""

    num_tokens: int
    num_rows: int
    num_samples: int = -1
    lists_chunks: bool = False

    @classmethod
    def of(cls, rows: Sequence[ScheduledRow], *, lists_chunks: bool = False) -> PackedShape:
        """Exactly these rows."""
        num_samples = sum(row.samples for row in rows)
        return cls(sum(row.num_tokens for row in rows), len(rows), num_samples, lists_chunks)

    @property
    def samples(self) -> int:
        return self.num_rows if self.num_samples < 0 else self.num_samples

    @property
    def num_tiles(self) -> int:
        """A row's last tile may be partial, so each row may need one more; and keys may be cut."""
        return self.num_tokens // TILE_QUERIES + self.num_rows + EXTRA_TILES

    def fits(self, rows: Sequence[ScheduledRow]) -> bool:
        return len(rows) <= self.num_rows and sum(row.num_tokens for row in rows) <= self.num_tokens

    @property
    def _lengths(self) -> list[int]:
        lengths = [self.num_tokens, self.num_tokens, 8 * self.num_tiles, *[self.samples] * 3]
        return [*lengths, self.num_rows, self.num_rows + 1, self.num_rows] if self.lists_chunks else lengths

    def sections(self) -> list[tuple[int, int]]:
        """(start, length) of token_rows, positions, tiles, sample_at, sample_rows, sample_positions, and of a chunk's
        rows, ends, num_keys if lists_chunks."""
        starts = accumulate(map(_aligned, self._lengths), initial=0)
        return list(zip(starts, self._lengths, strict=False))

    @property
    def size(self) -> int:
        """Of the whole buffer, in int32s."""
        return sum(map(_aligned, self._lengths))

    def pack(self, rows: Sequence[ScheduledRow], spare_row: int) -> np.ndarray:
        """The buffer's contents; what the rows do not need is the spare row's."""
        buffer = np.zeros(self.size, np.int32)
        token_rows, positions, tiles, sample_at, sample_rows, sample_positions, *chunks = (
            buffer[start : start + length] for start, length in self.sections()
        )
        token_rows[:] = spare_row
        sample_rows[:] = spare_row
        if chunks:
            _list_chunks(rows, spare_row, *chunks)
        if not rows:
            return buffer
        counts = np.array([row.num_tokens for row in rows])
        ends = counts.cumsum()
        token_rows[: ends[-1]] = np.repeat([row.row for row in rows], counts)
        positions[: ends[-1]] = np.concatenate([np.arange(row.start, row.start + row.num_tokens) for row in rows])
        used = np.array(tiles_of([(row.row, row.start, row.num_tokens) for row in rows])).ravel()
        tiles[: len(used)] = used
        sampled = [index for index, row in enumerate(rows) if row.samples]
        sample_at[: len(sampled)] = ends[sampled] - 1
        sample_rows[: len(sampled)] = [rows[index].row for index in sampled]
        sample_positions[: len(sampled)] = [rows[index].start + rows[index].num_tokens - 1 for index in sampled]
        return buffer


def _list_chunks(
    rows: Sequence[ScheduledRow], spare_row: int, chunk_rows: np.ndarray, ends: np.ndarray, num_keys: np.ndarray
) -> None:
    """Chunks that there are not end where the last one does."""
    chunk_rows[:] = spare_row
    chunk_rows[: len(rows)] = [row.row for row in rows]
    counts = [row.num_tokens for row in rows]
    ends[1 : len(rows) + 1] = np.cumsum(counts)
    ends[len(rows) + 1 :] = sum(counts)
    num_keys[: len(rows)] = [row.start + row.num_tokens for row in rows]


def _aligned(length: int) -> int:
    return -(-length // _ALIGNMENT) * _ALIGNMENT


@dataclass(frozen=True, slots=True)
class ChunkInputs:
    """What kernels.chunks.Chunks are made of, all int32. rows: [n], the spare row where there is no chunk."""

    rows: torch.Tensor
    ends: torch.Tensor
    num_keys: torch.Tensor


@dataclass(frozen=True, slots=True)
class PackedInputs:
    """Views into the buffer on the device: token_rows, positions: [T]; tiles: [n, 8]; sample_*: [S]; all int32."""

    shape: PackedShape
    buffer: torch.Tensor
    token_rows: torch.Tensor
    positions: torch.Tensor
    tiles: torch.Tensor
    sample_at: torch.Tensor
    sample_rows: torch.Tensor
    sample_positions: torch.Tensor
    chunks: ChunkInputs | None

    @classmethod
    def on(cls, device: torch.device, shape: PackedShape) -> PackedInputs:
        buffer = torch.zeros(max(shape.size, 1), dtype=torch.int32, device=device)
        parts = [buffer[start : start + length] for start, length in shape.sections()]
        chunks = ChunkInputs(*parts[6:]) if shape.lists_chunks else None
        return cls(shape, buffer, parts[0], parts[1], parts[2].view(-1, 8), parts[3], parts[4], parts[5], chunks)

    def load(self, packed: np.ndarray) -> None:
        """Copy without waiting; steps already enqueued still see what was there."""
        pinned = torch.empty(packed.shape, dtype=torch.int32, pin_memory=True)
        pinned.numpy()[...] = packed
        self.buffer[: len(packed)].copy_(pinned, non_blocking=True)
