"""Each kernel against its plain reference on fresh random inputs: odd sizes, poisoned outputs.

Runs on CUDA. With TRITON_INTERPRET=1 the same tests run on the CPU, slowly, in Triton's interpreter.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

triton = pytest.importorskip("triton")

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
from tests.testkit.kernels import DEVICE, DTYPE, RUNS_KERNELS, assert_close, fresh, rotated  # noqa: E402

pytestmark = RUNS_KERNELS


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
    weight = fresh(num_out, num_in, scale=num_in**-0.5)
    options = {}
    is_gated = kind in ("gated", "gelu")
    if kind == "norm_bias" or is_gated:
        options["eps"] = 1e-5
    if is_gated:
        options["norm_weight"] = fresh(num_in) + 1
    if kind.endswith("bias"):
        options["bias"] = fresh(num_out)
    linear = SmallLinear(weight, gated=is_gated, gelu=kind == "gelu", tiling=tiling, **options)
    x = fresh(num_rows, num_in, scale=3.0)
    out = torch.full((num_rows + 1, linear.num_results), float("nan"), dtype=DTYPE, device=DEVICE)
    squares = RowSquares.on(torch.device(DEVICE))
    residual = None
    if kind == "residual":
        residual = out[:num_rows]
        residual.copy_(fresh(num_rows, num_out))
        expected = linear.reference(x, residual)
    else:
        expected = linear.reference(x)
    for _ in range(2):  # the second run finds the split-K counters as the first one left them
        _leave_squares(squares, x)
        if kind == "residual":
            saved = residual.clone()
        linear(x, out[:num_rows], squares=squares if kind != "plain" else None, residual=residual)
        assert_close(out[:num_rows], expected)
        if kind == "residual":
            assert squares.count == linear.num_tiles
            written = out[:num_rows].float().pow(2).sum(-1)
            assert_close(squares.parts[: squares.count, :num_rows].sum(0), written, relative=1e-4)
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
    weight = fresh(shape.qkv_width, 512)
    eps = None if kind == "residual" else 1e-6
    linear = SmallLinear(weight, eps=eps, gated=kind == "gated", tiling=tiling)
    x, residual = fresh(32, 512), fresh(32, linear.num_results)
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
    weight, bias, x = fresh(shape.qkv_width, 192, scale=0.2), fresh(shape.qkv_width), fresh(num_rows, 192)
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
            assert_close(out[row], rotated(query, layer.query_norm, turned[row]).flatten())
            assert_close(cached[0], rotated(key, layer.key_norm, turned[row]))
            assert_close(cached[1], value)
    assert out[num_rows].isnan().all()
    untouched = torch.ones(num_rows * 16, dtype=torch.bool, device=DEVICE)
    untouched[slots.long()] = False
    assert layer.keys.flatten(0, 1)[untouched].isnan().all()
    assert layer.values.flatten(0, 1)[untouched].isnan().all()


@pytest.mark.parametrize("has_norm", [True, False])
def test_storing_heads_that_are_told_no_positions_leaves_them_unrotated(has_norm):
    shape, num_tokens = HeadShape(3, 1, 32), 5
    layer = replace(_empty_layer(shape, num_blocks=1, has_norm=has_norm), rotates=False)
    qkv = fresh(num_tokens, shape.qkv_width)
    query, key, value = qkv.clone().view(num_tokens, -1, shape.head_dim).split([3, 1, 1], dim=1)
    slots = torch.tensor([7, 3, 0, 15, 8], dtype=torch.int32, device=DEVICE)
    cos_sin = torch.full((2, shape.head_dim), float("nan"), device=DEVICE)
    store_heads(shape, layer, qkv, slots, torch.zeros_like(slots), cos_sin)
    still = torch.cat([torch.ones(16, device=DEVICE), torch.zeros(16, device=DEVICE)])
    assert_close(qkv.view(num_tokens, -1, shape.head_dim)[:, :3], rotated(query, layer.query_norm, still))
    assert_close(layer.keys[0, slots.long()], rotated(key, layer.key_norm, still))
    assert torch.equal(layer.values[0, slots.long()], value)


def _leave_squares(squares: RowSquares, x: torch.Tensor) -> None:
    squares.parts[0, : x.shape[0]] = x.float().pow(2).sum(-1)
    squares.count = 1


def _empty_layer(shape: HeadShape, num_blocks: int, has_norm: bool) -> LayerAttention:
    size = (num_blocks, 16, shape.num_kv_heads, shape.head_dim)
    keys, values = (torch.full(size, float("nan"), dtype=DTYPE, device=DEVICE) for _ in range(2))
    norms = [fresh(shape.head_dim) + 1 if has_norm else None for _ in range(2)]
    return LayerAttention(keys, values, shape.head_dim**-0.5, None, *norms, 1e-6)


@pytest.mark.parametrize(("num_rows", "width"), [(1, 24), (5, 1024), (3, 1500)])
def test_gated_is_silu_or_gelu_of_the_first_times_the_second(num_rows, width):
    pairs = fresh(num_rows, 2 * width, scale=2.0)
    gate, up = pairs.float()[:, 0::2], pairs.float()[:, 1::2]
    assert_close(gated(pairs), F.silu(gate) * up)
    assert_close(gated(pairs, gelu=True), F.gelu(gate, approximate="tanh") * up)


@pytest.mark.parametrize(("num_rows", "width"), [(1, 24), (5, 1024), (40, 100)])
def test_what_is_added_normed_leaves_its_squares(num_rows, width):
    x, weight, hidden = fresh(num_rows, width, scale=5.0), fresh(width) + 1, fresh(num_rows, width)
    expected = hidden.float() + F.rms_norm(x.float(), (width,), weight.float(), 1e-3)
    squares = RowSquares(torch.full((RowSquares.MOST_PARTS, 32), float("nan"), device=DEVICE), 7)
    given = squares if num_rows <= 32 else None
    add_normed(x, weight, 1e-3, hidden, given)
    assert_close(hidden, expected, relative=0.004)
    if given is not None:
        assert squares.count == 1
        assert_close(squares.parts[0, :num_rows], hidden.float().pow(2).sum(-1), relative=1e-4)
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
    embedding, cos_sin = fresh(50, 72), torch.rand(40, 48, device=DEVICE)
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
    assert_close(inputs.squares.parts[0, :5], inputs.hidden[:5].float().pow(2).sum(-1), relative=1e-4)
