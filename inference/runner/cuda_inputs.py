"""The inputs of a packed step, prefill chunks and decodes together, in one int32 buffer that is copied at once.

Each section starts at a multiple of 256 bytes: kernels are compiled for the alignment of what they are given, and one
kind of alignment means one compilation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from inference.runner.kernels.attention import EXTRA_TILES, TILE_QUERIES, tiles_of
from inference.step import ScheduledRow

_ALIGNMENT = 64  # int32s


@dataclass(frozen=True, slots=True, order=True)
class PackedShape:
    """Room for num_tokens tokens of at most num_rows rows, of which num_samples sample."""

    num_tokens: int
    num_rows: int
    num_samples: int = -1

    @classmethod
    def of(cls, rows: Sequence[ScheduledRow]) -> PackedShape:
        """Exactly these rows."""
        return cls(sum(row.num_tokens for row in rows), len(rows), sum(row.samples for row in rows))

    @property
    def samples(self) -> int:
        return self.num_rows if self.num_samples < 0 else self.num_samples

    @property
    def num_tiles(self) -> int:
        """A row's last tile may be partial, so each row may need one more; and keys may be cut."""
        return self.num_tokens // TILE_QUERIES + self.num_rows + EXTRA_TILES

    def fits(self, rows: Sequence[ScheduledRow]) -> bool:
        return len(rows) <= self.num_rows and sum(row.num_tokens for row in rows) <= self.num_tokens

    def sections(self) -> list[tuple[int, int]]:
        """(start, length) of token_rows, positions, tiles, sample_at, sample_rows, sample_positions."""
        lengths = (self.num_tokens, self.num_tokens, 8 * self.num_tiles, *[self.samples] * 3)
        sections, start = [], 0
        for length in lengths:
            sections.append((start, length))
            start += -(-length // _ALIGNMENT) * _ALIGNMENT
        return sections

    def pack(self, rows: Sequence[ScheduledRow], spare_row: int, part_keys: int) -> np.ndarray:
        """The buffer's contents; what the rows do not need is the spare row's. part_keys: see tiles_of."""
        sections = self.sections()
        buffer = np.zeros(sections[-1][0] + -(-self.samples // _ALIGNMENT) * _ALIGNMENT, np.int32)
        token_rows, positions, tiles, sample_at, sample_rows, sample_positions = (
            buffer[start : start + length] for start, length in sections
        )
        token_rows[:] = spare_row
        sample_rows[:] = spare_row
        if not rows:
            return buffer
        counts = np.array([row.num_tokens for row in rows])
        ends = counts.cumsum()
        token_rows[: ends[-1]] = np.repeat([row.row for row in rows], counts)
        positions[: ends[-1]] = np.concatenate([np.arange(row.start, row.start + row.num_tokens) for row in rows])
        used = np.array(tiles_of([(row.row, row.start, row.num_tokens) for row in rows], part_keys)).ravel()
        tiles[: len(used)] = used
        sampled = [index for index, row in enumerate(rows) if row.samples]
        sample_at[: len(sampled)] = ends[sampled] - 1
        sample_rows[: len(sampled)] = [rows[index].row for index in sampled]
        sample_positions[: len(sampled)] = [rows[index].start + rows[index].num_tokens - 1 for index in sampled]
        return buffer


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

    @classmethod
    def on(cls, device: torch.device, shape: PackedShape) -> PackedInputs:
        sections = shape.sections()
        size = sections[-1][0] + -(-shape.samples // _ALIGNMENT) * _ALIGNMENT
        buffer = torch.zeros(max(size, 1), dtype=torch.int32, device=device)
        parts = [buffer[start : start + length] for start, length in sections]
        return cls(shape, buffer, parts[0], parts[1], parts[2].view(-1, 8), parts[3], parts[4], parts[5])

    def load(self, packed: np.ndarray) -> None:
        """Copy without waiting; steps already enqueued still see what was there."""
        pinned = torch.empty(packed.shape, dtype=torch.int32, pin_memory=True)
        pinned.numpy()[...] = packed
        self.buffer[: len(packed)].copy_(pinned, non_blocking=True)
