"""Attention's kernels against their plain references on fresh random inputs: odd sizes, poisoned pools and outputs.

Runs on CUDA. With TRITON_INTERPRET=1 the same tests run on the CPU, slowly, in Triton's interpreter.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch

triton = pytest.importorskip("triton")

from inference.paged_kv.pool import KVLayout, KVPool  # noqa: E402
from inference.runner.kernels.attention import EXTRA_TILES, PagedAttention, choose_decode_tiling, tiles_of  # noqa: E402
from inference.runner.kernels.heads import HeadShape, LayerAttention, store_heads  # noqa: E402
from tests.testkit.kernels import (  # noqa: E402
    DEVICE,
    DTYPE,
    INTERPRETED,
    RUNS_KERNELS,
    assert_close,
    fresh,
    rotated,
)

pytestmark = RUNS_KERNELS


class Paged:
    """Rows of random length over scattered blocks of a poisoned pool."""

    def __init__(
        self, shape: HeadShape, lengths: list[int], window: int | None, has_norm: bool, max_len: int = 700,
        soft_cap: float = 0.0, most_splits: int | None = None,
    ) -> None:  # fmt: skip
        self.shape, self.lengths, self.block_size = shape, lengths, 16
        rng = random.Random(len(lengths))
        blocks = [-(-(length + 1) // 16) for length in lengths]
        order = rng.sample(range(sum(blocks) + 3), sum(blocks))
        self.table = torch.zeros(len(lengths), max_len // 16 + 2, dtype=torch.int32, device=DEVICE)
        for row, count in enumerate(blocks):
            self.table[row, :count] = torch.tensor([order.pop() for _ in range(count)])
        layout = KVLayout(1, shape.num_kv_heads, shape.head_dim, 16, DTYPE)
        pool = KVPool(layout, sum(blocks) + 3, torch.device(DEVICE))
        half = shape.head_dim // 2
        angles = torch.arange(max_len, device=DEVICE)[:, None] * 10000.0 ** -(torch.arange(half, device=DEVICE) / half)
        self.cos_sin = torch.cat([angles.cos(), angles.sin()], dim=1).float()
        norms = [fresh(shape.head_dim) + 1 if has_norm else None for _ in range(2)]
        self.layer = LayerAttention(pool.keys[0], pool.values[0], shape.head_dim**-0.5, window, *norms, 1e-6, soft_cap)
        self.paged = PagedAttention(
            shape, self.table, 16, max_model_len=max_len, max_batch=max(8, len(lengths)), most_splits=most_splits
        )
        self.keys = [fresh(length, shape.num_kv_heads, shape.head_dim) for length in lengths]
        self.values = [fresh(length, shape.num_kv_heads, shape.head_dim) for length in lengths]
        for row, length in enumerate(lengths):
            for position in range(length):
                block = self.table[row, position // 16]
                pool.keys[0][block, position % 16] = self.keys[row][position]
                pool.values[0][block, position % 16] = self.values[row][position]

    def rotated(self, heads: torch.Tensor, norm: torch.Tensor | None, position: int) -> torch.Tensor:
        return rotated(heads, norm, self.cos_sin[position])

    def slots(self, rows: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return (self.table[rows.long(), positions.long() // 16] * 16 + positions % 16).to(torch.int32)

    def expected(self, row: int, qkv: torch.Tensor, start: int) -> torch.Tensor:
        """Attention of the row's packed new tokens [n, width], written out in float32."""
        shape = self.shape
        heads = qkv.view(len(qkv), -1, shape.head_dim)
        at = torch.arange(start, start + len(qkv), device=DEVICE)
        query = torch.stack(
            [self.rotated(h[: shape.num_heads], self.layer.query_norm, int(p)) for h, p in zip(heads, at, strict=True)]
        )
        new_keys = torch.stack([
            self.rotated(h[shape.num_heads : -shape.num_kv_heads], self.layer.key_norm, int(p))
            for h, p in zip(heads, at, strict=True)
        ])  # fmt: skip
        keys = torch.cat([self.keys[row][:start].float(), new_keys.to(DTYPE).float()])
        values = torch.cat([self.values[row][:start], heads[:, -shape.num_kv_heads :]]).float()
        group = shape.num_heads // shape.num_kv_heads
        keys, values = keys.repeat_interleave(group, 1), values.repeat_interleave(group, 1)
        scores = torch.einsum("qhd,khd->hqk", query, keys) * shape.head_dim**-0.5
        if self.layer.soft_cap:
            scores = self.layer.soft_cap * torch.tanh(scores / self.layer.soft_cap)
        seen = torch.arange(len(keys), device=DEVICE)
        visible = seen <= at[:, None]
        if self.layer.window is not None:
            visible &= seen > at[:, None] - self.layer.window
        weights = scores.masked_fill(~visible, -torch.inf).softmax(-1)
        return torch.einsum("hqk,khd->qhd", weights, values).flatten(1)

    def cached(self, row: int, position: int) -> tuple[torch.Tensor, torch.Tensor]:
        block = self.table[row, position // 16]
        return self.layer.keys[block, position % 16], self.layer.values[block, position % 16]


SHAPES = [HeadShape(4, 2, 64), HeadShape(6, 2, 32), HeadShape(3, 3, 128)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("window", "has_norm", "soft_cap"), [(None, True, 0.0), (37, False, 2.0)])
@pytest.mark.parametrize("most_splits", [None, 2])
def test_decode_attention_equals_its_reference(shape, window, has_norm, soft_cap, most_splits):
    lengths = [0, 1, 15, 16, 127, 128, 300, 517] if not INTERPRETED else [0, 17, 300]
    paged = Paged(shape, lengths, window, has_norm, soft_cap=soft_cap, most_splits=most_splits)
    batch = list(range(len(lengths)))
    random.Random(3).shuffle(batch)
    qkv = fresh(len(batch), shape.qkv_width)
    row_ids = torch.tensor(batch, dtype=torch.int32, device=DEVICE)
    positions = torch.tensor([lengths[row] for row in batch], dtype=torch.int32, device=DEVICE)
    out = torch.full((len(batch), shape.num_heads * shape.head_dim), float("nan"), dtype=DTYPE, device=DEVICE)
    original = qkv.clone()
    store_heads(shape, paged.layer, qkv, paged.slots(row_ids, positions), positions, paged.cos_sin)
    for _ in range(2):
        paged.paged.decode(paged.layer, qkv, positions, paged.table[row_ids.long()], out)
        for index, row in enumerate(batch):
            assert_close(out[index], paged.expected(row, original[index : index + 1], lengths[row])[0])
            key, value = paged.cached(row, lengths[row])
            heads = original[index].view(-1, shape.head_dim)
            new = heads[shape.num_heads : -shape.num_kv_heads]
            assert_close(key, paged.rotated(new, paged.layer.key_norm, lengths[row]))
            assert torch.equal(value, heads[-shape.num_kv_heads :])


@pytest.mark.parametrize("most_splits", [None, 3])
def test_decode_attention_gives_a_row_the_same_bits_alone_and_in_a_batch(most_splits):
    shape = HeadShape(4, 2, 64)
    lengths = [300, 0, 17, 64, 650, 129] if not INTERPRETED else [300, 3]
    paged = Paged(shape, lengths, None, has_norm=False, most_splits=most_splits)
    query = fresh(len(lengths), shape.query_width)
    positions = torch.tensor([max(length - 1, 0) for length in lengths], dtype=torch.int32, device=DEVICE)

    def run(rows: list[int]) -> torch.Tensor:
        out = torch.empty(len(rows), shape.query_width, dtype=DTYPE, device=DEVICE)
        paged.paged.decode(paged.layer, query[rows], positions[rows], paged.table[rows], out)
        return out

    together = run(list(range(len(lengths))))
    for row, length in enumerate(lengths):
        if length:  # a row without tokens reads what the pool is poisoned with
            assert torch.equal(run([row])[0], together[row])


@pytest.mark.parametrize("window", [None, 300 if not INTERPRETED else 100])
@pytest.mark.parametrize("most_splits", [None, 12])
def test_decode_attention_by_chunks_gives_the_bits_that_it_gives_by_splits(window, most_splits):
    shape = HeadShape(4, 2, 64)
    lengths = [650, 17, 64, 512, 513, 577] if not INTERPRETED else [400, 3, 145]
    tile = 64 if not INTERPRETED and most_splits is None else 16  # more splits than one chunk has
    paged = Paged(shape, lengths, window, has_norm=False)
    query = fresh(len(lengths), shape.query_width)
    positions = torch.tensor([length - 1 for length in lengths], dtype=torch.int32, device=DEVICE)

    def run(chunk_programs: int) -> torch.Tensor:
        tiling = replace(choose_decode_tiling(64, 2), tile_kv=tile, chunk_programs=chunk_programs)
        attention = PagedAttention(
            shape, paged.table, 16, max_model_len=700, max_batch=len(lengths), tiling=tiling, most_splits=most_splits
        )
        out = torch.full((len(lengths), shape.query_width), float("nan"), dtype=DTYPE, device=DEVICE)
        attention.decode(paged.layer, query, positions, paged.table, out)
        return out

    by_splits = run(1 << 20)
    assert torch.isfinite(by_splits.float()).all()
    assert torch.equal(run(1), by_splits)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("window", "has_norm", "soft_cap"), [(None, True, 0.0), (21, False, 0.0), (None, False, 2.0)])
def test_prefill_attention_equals_its_reference(shape, window, has_norm, soft_cap):
    starts, counts = ([0, 5, 40, 200, 500], [70, 1, 64, 131, 150]) if not INTERPRETED else ([0, 30, 500], [20, 1, 70])
    lengths = [start + count for start, count in zip(starts, counts, strict=True)]
    paged = Paged(shape, lengths, window, has_norm, soft_cap=soft_cap)
    spans = [(row, starts[row], counts[row]) for row in range(len(starts))]
    qkv = fresh(sum(counts), shape.qkv_width)
    original = qkv.clone()
    positions = torch.cat([torch.arange(start, start + count) for _, start, count in spans]).to(DEVICE, torch.int32)
    rows = torch.cat([torch.full((count,), row) for row, _, count in spans]).to(DEVICE)
    slots = paged.slots(rows, positions)
    tiles = torch.tensor([*tiles_of(spans), [0] * 8], dtype=torch.int32, device=DEVICE)
    assert (tiles[:, 7] & 0xFFFF).max() > 1, "some keys are cut among programs"
    out = torch.full((sum(counts), shape.num_heads * shape.head_dim), float("nan"), dtype=DTYPE, device=DEVICE)
    store_heads(shape, paged.layer, qkv, slots, positions, paged.cos_sin)
    for _ in range(2):  # the second run finds the counters as the first one left them
        paged.paged.prefill(paged.layer, qkv, tiles, out)
        first = 0
        for row, start, count in spans:
            assert_close(out[first : first + count], paged.expected(row, original[first : first + count], start))
            first += count


def test_tiles_cover_each_query_and_key_once_and_stay_within_their_room():
    spans = [(3, 0, 70), (1, 1300, 64), (2, 900, 300), (0, 5000, 1), (4, 7000, 200), (5, 7000, 256), (6, 4000, 3)]
    tiles = tiles_of(spans, least_part_keys=256)
    at = 0
    for row, start, count in spans:
        mine = [tile for tile in tiles if tile[0] == row]
        for offset in range(0, count, 64):
            parts = [tile for tile in mine if tile[1] == at + offset]
            assert [tile[2:4] for tile in parts] == [(start + offset, min(64, count - offset))] * len(parts)
            assert [tile[4] for tile in parts] == [0, *[tile[5] for tile in parts[:-1]]]
            assert parts[-1][5] == start + offset + parts[-1][3]
            assert [tile[7] for tile in parts] == [index << 16 | len(parts) for index in range(len(parts))]
        at += count
    assert len(tiles) <= sum(count // 64 + 1 for _, _, count in spans) + EXTRA_TILES
    used = [tile[6] + index for tile in tiles if tile[7] & 0xFFFF > 1 for index in [tile[7] >> 16]]
    assert sorted(used) == list(range(len(used)))
    assert len(used) <= 2 * EXTRA_TILES


def test_far_into_a_long_prompt_parts_are_larger_and_not_more():
    expected = ((511, 1, 512), (512, 2, 512), (16_383, 32, 512), (16_384, 17, 1024), (120_000, 30, 4096))
    for position, count, size in expected:
        tiles = tiles_of([(0, position, 1)])
        assert len(tiles) == count
        assert all(tile[5] - tile[4] == size for tile in tiles[:-1])
        assert tiles[-1][5] == position + 1
