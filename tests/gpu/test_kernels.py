"""Each kernel against its plain reference on fresh random inputs: odd sizes, poisoned outputs.

Runs on CUDA. With TRITON_INTERPRET=1 the same tests run on the CPU, slowly, in Triton's interpreter.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

triton = pytest.importorskip("triton")

from inference.paged_kv.pool import KVLayout, KVPool  # noqa: E402
from inference.runner.kernels.attention import EXTRA_TILES, PagedAttention, choose_decode_tiling, tiles_of  # noqa: E402
from inference.runner.kernels.elementwise import add_normed, gated  # noqa: E402
from inference.runner.kernels.heads import HeadShape, HeadTargets, LayerAttention, store_heads  # noqa: E402
from inference.runner.kernels.linear import RowSquares, SmallLinear, interleave  # noqa: E402
from inference.runner.kernels.rows import (  # noqa: E402
    DECODES_ONE,
    DRAWS,
    IS_LAST,
    TURN,
    RowInputs,
    gather_rows,
    scatter,
)
from inference.runner.kernels.tilings import Tiling, choose_tiling, fitting  # noqa: E402
from tests.testkit.kernels import DEVICE, DTYPE, INTERPRETED, RUNS_KERNELS  # noqa: E402

pytestmark = RUNS_KERNELS


def _close(got: torch.Tensor, expected: torch.Tensor, relative: float = 0.02) -> None:
    got, expected = got.float(), expected.float()
    assert torch.isfinite(got).all()
    assert (got - expected).norm() <= relative * expected.norm() + 1e-5


def _random(*shape: int, scale: float = 1.0) -> torch.Tensor:
    return (torch.randn(*shape, device=DEVICE) * scale).to(DTYPE)


@pytest.mark.parametrize("num_rows", [1, 3, 16, 17, 32])
@pytest.mark.parametrize(
    ("kind", "tiling"),
    [
        *itertools.product(("plain", "norm_bias", "residual", "gated", "gelu"), (Tiling(32, 64, 1), Tiling(32, 64, 4))),
        *itertools.product(("plain", "bias", "residual"), (Tiling(8, 64, 1, groups=4), Tiling(16, 128, 1, groups=2))),
    ],
)
def test_small_linear_equals_its_reference(num_rows, kind, tiling):
    num_in, num_out = (512, 84) if kind == "residual" else (768, 96)
    weight = _random(num_out, num_in, scale=num_in**-0.5)
    options = {}
    is_gated = kind in ("gated", "gelu")
    if kind == "norm_bias" or is_gated:
        options["eps"] = 1e-5
    if is_gated:
        options["norm_weight"] = _random(num_in) + 1
    if kind.endswith("bias"):
        options["bias"] = _random(num_out)
    linear = SmallLinear(weight, gated=is_gated, gelu=kind == "gelu", tiling=tiling, **options)
    x = _random(num_rows, num_in, scale=3.0)
    out = torch.full((num_rows + 1, linear.num_results), float("nan"), dtype=DTYPE, device=DEVICE)
    squares = RowSquares.on(torch.device(DEVICE))
    residual = None
    if kind == "residual":
        residual = out[:num_rows]
        residual.copy_(_random(num_rows, num_out))
        expected = linear.reference(x, residual)
    else:
        expected = linear.reference(x)
    for _ in range(2):  # the second run finds the split-K counters as the first one left them
        _leave_squares(squares, x)
        if kind == "residual":
            saved = residual.clone()
        linear(x, out[:num_rows], squares=squares if kind != "plain" else None, residual=residual)
        _close(out[:num_rows], expected)
        if kind == "residual":
            assert squares.count == linear.num_tiles
            written = out[:num_rows].float().pow(2).sum(-1)
            _close(squares.parts[: squares.count, :num_rows].sum(0), written, relative=1e-4)
            out[:num_rows] = saved
    assert out[num_rows:].isnan().all(), "nothing is written past the rows"


@pytest.mark.parametrize(
    ("kind", "tiling"),
    [
        *itertools.product(("norm", "gated", "residual", "heads"), (Tiling(64, 64, 1), Tiling(64, 64, 4))),
        ("residual", Tiling(8, 128, 1, groups=4)),
        ("residual", Tiling(16, 128, 1, groups=4)),
    ],
)
def test_small_linear_gives_a_row_the_same_bits_alone_and_in_a_batch(kind, tiling):
    shape = HeadShape(2, 1, 64)
    weight = _random(shape.qkv_width, 512)
    eps = None if kind == "residual" else 1e-6
    linear = SmallLinear(weight, eps=eps, gated=kind == "gated", tiling=tiling)
    x, residual = _random(32, 512), _random(32, linear.num_results)
    parts = torch.rand(5, 32, device=DEVICE) * 100
    layer = _empty_layer(shape, num_blocks=2, has_norm=True)

    def run(rows: list[int]) -> list[torch.Tensor]:
        squares = RowSquares(torch.zeros(RowSquares.MOST_PARTS, 32, device=DEVICE), 5)
        squares.parts[:5, : len(rows)] = parts[:, rows]
        if kind == "residual":
            out = residual[rows].contiguous()
            linear(x[rows].contiguous(), out, squares=squares, residual=out)
            return [out, squares.parts[: squares.count, : len(rows)].T]
        if kind != "heads":
            out = torch.empty(len(rows), linear.num_results, dtype=torch.float32, device=DEVICE)
            return [linear(x[rows].contiguous(), out, squares=squares)]
        slots = torch.tensor(rows, dtype=torch.int32, device=DEVICE)
        rotations = torch.rand(32, shape.head_dim, generator=torch.Generator(DEVICE).manual_seed(1), device=DEVICE)
        out = torch.empty(len(rows), shape.query_width, dtype=DTYPE, device=DEVICE)
        targets = HeadTargets(shape, layer, slots, rotations[rows].contiguous())
        linear(x[rows].contiguous(), out, squares=squares, heads=targets)
        return [out, layer.keys.flatten(0, 1)[rows], layer.values.flatten(0, 1)[rows]]

    together = run(list(range(32)))
    for row in (0, 7, 31):
        for alone, batched in zip(run([row]), together, strict=True):
            assert torch.equal(alone[0], batched[row])


@pytest.mark.parametrize("rotates", [True, False])
@pytest.mark.parametrize("has_norm", [True, False])
@pytest.mark.parametrize(("num_rows", "split_k"), [(1, 1), (7, 2), (19, 1)])
def test_a_qkv_product_leaves_queries_rotated_and_keys_and_values_cached(rotates, has_norm, num_rows, split_k):
    shape = HeadShape(4, 2, 32)
    layer = replace(_empty_layer(shape, num_blocks=num_rows, has_norm=has_norm), rotates=rotates)
    weight, bias, x = _random(shape.qkv_width, 192, scale=0.2), _random(shape.qkv_width), _random(num_rows, 192)
    linear = SmallLinear(weight, bias=bias, eps=1e-6, tiling=Tiling(shape.head_dim, 64, split_k))
    squares = RowSquares.on(torch.device(DEVICE))
    slots = torch.randperm(num_rows * 16)[:num_rows].to(DEVICE, torch.int32)
    angles = torch.rand(num_rows, shape.head_dim // 2, device=DEVICE)
    rotations = torch.cat([angles.cos(), angles.sin()], dim=1)
    if not rotates:
        angles = torch.zeros_like(angles)
    turned = torch.cat([angles.cos(), angles.sin()], dim=1)
    out = torch.full((num_rows + 1, shape.query_width), float("nan"), dtype=DTYPE, device=DEVICE)
    for _ in range(2):
        _leave_squares(squares, x)
        linear(x, out[:num_rows], squares=squares, heads=HeadTargets(shape, layer, slots, rotations))
        heads = linear.reference(x).view(num_rows, -1, shape.head_dim)
        for row in range(num_rows):
            cached = [part.flatten(0, 1)[slots[row].long()] for part in (layer.keys, layer.values)]
            query, key, value = heads[row].split([shape.num_heads, shape.num_kv_heads, shape.num_kv_heads])
            _close(out[row], _rotated(query, layer.query_norm, turned[row]).flatten())
            _close(cached[0], _rotated(key, layer.key_norm, turned[row]))
            _close(cached[1], value)
    assert out[num_rows].isnan().all()
    untouched = torch.ones(num_rows * 16, dtype=torch.bool, device=DEVICE)
    untouched[slots.long()] = False
    assert layer.keys.flatten(0, 1)[untouched].isnan().all()
    assert layer.values.flatten(0, 1)[untouched].isnan().all()


@pytest.mark.parametrize("has_norm", [True, False])
def test_storing_heads_that_are_told_no_positions_leaves_them_unrotated(has_norm):
    shape, num_tokens = HeadShape(3, 1, 32), 5
    layer = replace(_empty_layer(shape, num_blocks=1, has_norm=has_norm), rotates=False)
    qkv = _random(num_tokens, shape.qkv_width)
    query, key, value = qkv.clone().view(num_tokens, -1, shape.head_dim).split([3, 1, 1], dim=1)
    slots = torch.tensor([7, 3, 0, 15, 8], dtype=torch.int32, device=DEVICE)
    cos_sin = torch.full((2, shape.head_dim), float("nan"), device=DEVICE)
    store_heads(shape, layer, qkv, slots, torch.zeros_like(slots), cos_sin)
    still = torch.cat([torch.ones(16, device=DEVICE), torch.zeros(16, device=DEVICE)])
    _close(qkv.view(num_tokens, -1, shape.head_dim)[:, :3], _rotated(query, layer.query_norm, still))
    _close(layer.keys[0, slots.long()], _rotated(key, layer.key_norm, still))
    assert torch.equal(layer.values[0, slots.long()], value)


def _leave_squares(squares: RowSquares, x: torch.Tensor) -> None:
    squares.parts[0, : x.shape[0]] = x.float().pow(2).sum(-1)
    squares.count = 1


def _empty_layer(shape: HeadShape, num_blocks: int, has_norm: bool) -> LayerAttention:
    size = (num_blocks, 16, shape.num_kv_heads, shape.head_dim)
    keys, values = (torch.full(size, float("nan"), dtype=DTYPE, device=DEVICE) for _ in range(2))
    norms = [_random(shape.head_dim) + 1 if has_norm else None for _ in range(2)]
    return LayerAttention(keys, values, shape.head_dim**-0.5, None, *norms, 1e-6)


def _rotated(heads: torch.Tensor, norm: torch.Tensor | None, cos_sin: torch.Tensor) -> torch.Tensor:
    """heads [..., head_dim], in pairs, normed and rotated by one position's cosines and sines, in float32."""
    heads = heads.float()
    if norm is not None:
        heads = heads * torch.rsqrt(heads.pow(2).mean(-1, keepdim=True) + 1e-6) * norm.float()
    cos, sin = cos_sin.chunk(2)
    first, second = heads[..., 0::2], heads[..., 1::2]
    return torch.stack([first * cos - second * sin, second * cos + first * sin], dim=-1).flatten(-2)


@pytest.mark.parametrize(("num_rows", "width"), [(1, 24), (5, 1024), (3, 1500)])
def test_gated_is_silu_or_gelu_of_the_first_times_the_second(num_rows, width):
    pairs = _random(num_rows, 2 * width, scale=2.0)
    gate, up = pairs.float()[:, 0::2], pairs.float()[:, 1::2]
    _close(gated(pairs), F.silu(gate) * up)
    _close(gated(pairs, gelu=True), F.gelu(gate, approximate="tanh") * up)


@pytest.mark.parametrize(("num_rows", "width"), [(1, 24), (5, 1024), (40, 100)])
def test_what_is_added_normed_leaves_its_squares(num_rows, width):
    x, weight, hidden = _random(num_rows, width, scale=5.0), _random(width) + 1, _random(num_rows, width)
    expected = hidden.float() + F.rms_norm(x.float(), (width,), weight.float(), 1e-3)
    squares = RowSquares(torch.full((RowSquares.MOST_PARTS, 32), float("nan"), device=DEVICE), 7)
    given = squares if num_rows <= 32 else None
    add_normed(x, weight, 1e-3, hidden, given)
    _close(hidden, expected, relative=0.004)
    if given is not None:
        assert squares.count == 1
        _close(squares.parts[0, :num_rows], hidden.float().pow(2).sum(-1), relative=1e-4)
        assert squares.parts[0, num_rows:].isnan().all()


@pytest.mark.parametrize("num_outputs", [512, 3072, 3584, 20_000])
@pytest.mark.parametrize("head_dim", [0, 16, 128, 256])
def test_tiles_of_wide_weights_have_fewer_stages_and_those_of_narrow_ones_all(num_outputs, head_dim):
    tiling = choose_tiling(num_outputs, 2048, head_dim)
    assert fitting(tiling, 2) == tiling
    wide = fitting(tiling, 4)
    assert wide.num_stages * wide.block_n * wide.block_k * 4 <= 160 << 10
    assert replace(wide, num_stages=tiling.num_stages) == tiling


def test_narrow_tiles_are_for_small_products_of_16_bits_that_nothing_comes_before():
    def groups(num_outputs, num_inputs, dtype=DTYPE, **options):
        weight = torch.zeros(num_outputs, num_inputs, dtype=dtype, device=DEVICE)
        linear = SmallLinear(weight, **options)
        assert linear.num_tiles <= RowSquares.MOST_PARTS
        return linear.tiling.groups

    assert groups(1024, 3072) == groups(2048, 2048) == groups(1536, 1536) == 4
    assert groups(1024, 896) == 1, "every warp takes as many inputs"
    assert groups(2048, 3072) == groups(8192, 512) == groups(512, 8192) == 1
    assert groups(1024, 1024, torch.float32) == groups(1024, 1024, eps=1e-6) == groups(1024, 1024, gated=True) == 1
    assert groups(1024, 1024, head_dim=64) == 1


def test_interleave_alternates_rows():
    gate, up = torch.arange(6).view(3, 2), torch.arange(6).view(3, 2) + 100
    assert interleave(gate, up)[:, 0].tolist() == [0, 100, 2, 102, 4, 104]


class Paged:
    """Rows of random length over scattered blocks of a poisoned pool."""

    def __init__(
        self, shape: HeadShape, lengths: list[int], window: int | None, has_norm: bool, max_len: int = 700,
        soft_cap: float = 0.0,
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
        norms = [_random(shape.head_dim) + 1 if has_norm else None for _ in range(2)]
        self.layer = LayerAttention(pool.keys[0], pool.values[0], shape.head_dim**-0.5, window, *norms, 1e-6, soft_cap)
        self.paged = PagedAttention(shape, self.table, 16, max_model_len=max_len, max_batch=max(8, len(lengths)))
        self.keys = [_random(length, shape.num_kv_heads, shape.head_dim) for length in lengths]
        self.values = [_random(length, shape.num_kv_heads, shape.head_dim) for length in lengths]
        for row, length in enumerate(lengths):
            for position in range(length):
                block = self.table[row, position // 16]
                pool.keys[0][block, position % 16] = self.keys[row][position]
                pool.values[0][block, position % 16] = self.values[row][position]

    def rotated(self, heads: torch.Tensor, norm: torch.Tensor | None, position: int) -> torch.Tensor:
        return _rotated(heads, norm, self.cos_sin[position])

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
def test_decode_attention_equals_its_reference(shape, window, has_norm, soft_cap):
    lengths = [0, 1, 15, 16, 127, 128, 300] if not INTERPRETED else [0, 17, 130]
    paged = Paged(shape, lengths, window, has_norm, soft_cap=soft_cap)
    batch = list(range(len(lengths)))
    random.Random(3).shuffle(batch)
    qkv = _random(len(batch), shape.qkv_width)
    row_ids = torch.tensor(batch, dtype=torch.int32, device=DEVICE)
    positions = torch.tensor([lengths[row] for row in batch], dtype=torch.int32, device=DEVICE)
    out = torch.full((len(batch), shape.num_heads * shape.head_dim), float("nan"), dtype=DTYPE, device=DEVICE)
    original = qkv.clone()
    store_heads(shape, paged.layer, qkv, paged.slots(row_ids, positions), positions, paged.cos_sin)
    for _ in range(2):
        paged.paged.decode(paged.layer, qkv, positions, paged.table[row_ids.long()], out)
        for index, row in enumerate(batch):
            _close(out[index], paged.expected(row, original[index : index + 1], lengths[row])[0])
            key, value = paged.cached(row, lengths[row])
            heads = original[index].view(-1, shape.head_dim)
            _close(key, paged.rotated(heads[shape.num_heads : -shape.num_kv_heads], paged.layer.key_norm, lengths[row]))
            assert torch.equal(value, heads[-shape.num_kv_heads :])


def test_decode_attention_gives_a_row_the_same_bits_alone_and_in_a_batch():
    shape = HeadShape(4, 2, 64)
    lengths = [300, 0, 17, 64, 650, 129] if not INTERPRETED else [200, 3]
    paged = Paged(shape, lengths, None, has_norm=False)
    query = _random(len(lengths), shape.query_width)
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
def test_decode_attention_by_chunks_gives_the_bits_that_it_gives_by_splits(window):
    shape = HeadShape(4, 2, 64)
    lengths = [650, 17, 64, 512, 513] if not INTERPRETED else [150, 3]
    tile = 64 if not INTERPRETED else 16  # more splits than one chunk has
    paged = Paged(shape, lengths, window, has_norm=False)
    query = _random(len(lengths), shape.query_width)
    positions = torch.tensor([length - 1 for length in lengths], dtype=torch.int32, device=DEVICE)

    def run(chunk_programs: int) -> torch.Tensor:
        tiling = replace(choose_decode_tiling(64, 2), tile_kv=tile, chunk_programs=chunk_programs)
        attention = PagedAttention(shape, paged.table, 16, max_model_len=700, max_batch=len(lengths), tiling=tiling)
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
    qkv = _random(sum(counts), shape.qkv_width)
    original = qkv.clone()
    positions = torch.cat([torch.arange(start, start + count) for _, start, count in spans]).to(DEVICE, torch.int32)
    rows = torch.cat([torch.full((count,), row) for row, _, count in spans]).to(DEVICE)
    slots = paged.slots(rows, positions)
    tiles = torch.tensor([*tiles_of(spans, paged.paged.part_keys), [0] * 8], dtype=torch.int32, device=DEVICE)
    assert (tiles[:, 7] & 0xFFFF).max() > 1, "some keys are cut among programs"
    out = torch.full((sum(counts), shape.num_heads * shape.head_dim), float("nan"), dtype=DTYPE, device=DEVICE)
    store_heads(shape, paged.layer, qkv, slots, positions, paged.cos_sin)
    for _ in range(2):  # the second run finds the counters as the first one left them
        paged.paged.prefill(paged.layer, qkv, tiles, out)
        first = 0
        for row, start, count in spans:
            _close(out[first : first + count], paged.expected(row, original[first : first + count], start))
            first += count


def test_tiles_cover_each_query_and_key_once_and_stay_within_their_room():
    spans = [(3, 0, 70), (1, 1300, 64), (2, 900, 300), (0, 5000, 1), (4, 7000, 200), (5, 7000, 256), (6, 4000, 3)]
    tiles = tiles_of(spans, part_keys=256)
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


def test_scatter_writes_each_run_where_it_belongs_and_nothing_else():
    arena = torch.arange(5000, dtype=torch.int32, device=DEVICE)
    expected = arena.clone()
    runs = [(7, [1, 2, 3]), (100, list(range(2500))), (4999, [-5])]
    header, data, source = [3], [], 10
    for target, values in runs:
        header += [target, source, len(values)]
        data += values
        source += len(values)
        expected[target : target + len(values)] = torch.tensor(values, dtype=torch.int32, device=DEVICE)
    scatter(arena, torch.tensor(header + data, dtype=torch.int32, device=DEVICE), len(runs) + 4)
    assert torch.equal(arena, expected)


@pytest.mark.parametrize("multiplier", [1.0, 12.0, 0.3])
def test_gather_takes_the_newest_token_of_each_row(multiplier):
    embedding, cos_sin = _random(50, 72), torch.rand(40, 48, device=DEVICE)
    token_ids = torch.randint(0, 50, (6, 40), dtype=torch.int32, device=DEVICE)
    lengths = torch.tensor([3, 0, 39, 7, 1, 2], dtype=torch.int32, device=DEVICE)
    block_table = torch.randint(0, 90, (6, 10), dtype=torch.int32, device=DEVICE)
    row_ids = torch.tensor([2, 0, 5, 5, 5], dtype=torch.int32, device=DEVICE)
    places = torch.tensor([0, 0, 0, 1, 2], dtype=torch.int32, device=DEVICE)
    bits = torch.tensor([DECODES_ONE, DECODES_ONE, DRAWS, 0, IS_LAST], dtype=torch.int32, device=DEVICE)
    turns = places * TURN + bits
    inputs = RowInputs.empty(6, embedding, block_table, 48, embedding_multiplier=multiplier)
    inputs.tables.fill_(-1)
    gather_rows(row_ids, turns, token_ids, lengths, block_table, 4, cos_sin, embedding, inputs.first(5))
    rows = row_ids.long()
    at = (lengths[rows] + places).long()
    assert torch.equal(inputs.positions[:5].long(), at)
    assert torch.equal(inputs.hidden[:5], embedding[token_ids[rows, at].long()] * multiplier)
    assert torch.equal(inputs.slots[:5].long(), block_table[rows, at // 4] * 4 + at % 4)
    assert torch.equal(inputs.rotations[:5], cos_sin[at])
    for index, row in enumerate(rows):
        used = int(at[index]) // 4 + 1
        assert torch.equal(inputs.tables[index, :used], block_table[row, :used])
        assert (inputs.tables[index, used:] == -1).all()
    assert (inputs.tables[5] == -1).all()
    _close(inputs.squares.parts[0, :5], inputs.hidden[:5].float().pow(2).sum(-1), relative=1e-4)
