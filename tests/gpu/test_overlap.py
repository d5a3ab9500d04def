"""Kernels that start while the one before still runs: a step gives the bits that it gives without, however often."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
import torch

pytest.importorskip("triton")

from inference.runner.kernels.attention import PagedAttention
from inference.runner.kernels.heads import HeadShape, HeadTargets, LayerAttention
from inference.runner.kernels.linear import RowSquares, SmallLinear
from inference.runner.kernels.overlap import NO_OVERLAP, Overlap, may_overlap

DEVICE = torch.device("cuda")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available() or not may_overlap(DEVICE), reason="needs a Hopper device"),
    pytest.mark.timeout(100),
]

_SHAPE, _HIDDEN, _INNER, _BLOCKS = HeadShape(8, 4, 64), 512, 1024, 12
_EARLY, _LETS, _BOTH = Overlap(starts_early=True), Overlap(lets_next_start=True), Overlap(True, True)


@dataclass
class _Layer:
    qkv: SmallLinear
    out: SmallLinear
    gate_up: SmallLinear
    down: SmallLinear
    attention: LayerAttention


def _layer(num_rows: int, has_norm: bool) -> _Layer:
    def weight(num_outputs: int, num_inputs: int) -> torch.Tensor:
        return (torch.randn(num_outputs, num_inputs, device=DEVICE) / num_inputs**0.5).bfloat16()

    cache = torch.randn(2, num_rows * _BLOCKS, 16, _SHAPE.num_kv_heads, 64, device=DEVICE).bfloat16()
    norm = (torch.rand(64, device=DEVICE) + 0.5).bfloat16() if has_norm else None
    return _Layer(
        SmallLinear(weight(_SHAPE.qkv_width, _HIDDEN), eps=1e-6, head_dim=64),
        SmallLinear(weight(_HIDDEN, _SHAPE.query_width)),
        SmallLinear(weight(2 * _INNER, _HIDDEN), eps=1e-6, gated=True),
        SmallLinear(weight(_HIDDEN, _INNER)),
        LayerAttention(cache[0], cache[1], 0.125, None, norm, norm, 1e-6),
    )


@pytest.mark.parametrize("has_norm", [True, False])
@pytest.mark.parametrize(("num_rows", "is_run"), [(1, False), (3, False), (16, False), (16, True)])
def test_what_starts_early_computes_the_same_bits_in_every_replay(num_rows, is_run, has_norm):
    """is_run: all entries are one row's, its newest tokens, over the border of a split or not."""
    torch.manual_seed(num_rows)
    layers = [_layer(num_rows, has_norm) for _ in range(6)]
    assert all(layer.out.tiling.groups > 1 and layer.down.tiling.groups > 1 for layer in layers)
    table = torch.randperm(num_rows * _BLOCKS, device=DEVICE).to(torch.int32).view(num_rows, _BLOCKS)
    if is_run:
        table = table[:1].repeat(num_rows, 1)
    paged = PagedAttention(_SHAPE, table, 16, max_model_len=16 * _BLOCKS, max_batch=16)
    begin = torch.randn(num_rows, _HIDDEN, device=DEVICE).bfloat16()

    def choose_positions() -> torch.Tensor:
        if not is_run:
            return torch.randint(0, 16 * _BLOCKS, (num_rows,), device=DEVICE, dtype=torch.int32)
        first = random.randrange(16 * _BLOCKS - num_rows)
        return torch.arange(first, first + num_rows, device=DEVICE, dtype=torch.int32)

    positions = choose_positions()
    angles = torch.rand(num_rows, 32, device=DEVICE)
    rotations = torch.cat([angles.cos(), angles.sin()], dim=1)
    hidden, squares = begin.clone(), RowSquares.on(DEVICE)
    query, attended = (begin.new_empty(num_rows, _SHAPE.query_width) for _ in range(2))
    activated = begin.new_empty(num_rows, _INNER)
    slots = torch.zeros_like(positions)

    def step(is_early: bool) -> None:
        lets, early, both = (_LETS, _EARLY, _BOTH) if is_early else (NO_OVERLAP,) * 3
        slots.copy_(table[torch.arange(num_rows, device=DEVICE), positions.long() // 16] * 16 + positions % 16)
        hidden.copy_(begin)
        squares.parts[0, :num_rows] = hidden.float().pow(2).sum(-1)
        squares.count = 1
        for layer in layers:
            heads = HeadTargets(_SHAPE, layer.attention, slots, rotations)
            layer.qkv(hidden, query, squares=squares, heads=heads, overlap=lets)
            paged.decode(layer.attention, query, positions, table, attended, overlap=both)
            layer.out(attended, hidden, squares=squares, residual=hidden, overlap=early)
            layer.gate_up(hidden, activated, squares=squares, overlap=lets)
            layer.down(activated, hidden, squares=squares, residual=hidden, overlap=early)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    graphs = {}
    with torch.cuda.stream(stream):
        for is_early in (False, True):
            step(is_early)
            graphs[is_early] = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graphs[is_early], stream=stream):
                step(is_early)
        for _ in range(40):
            begin.copy_(torch.randn(num_rows, _HIDDEN, device=DEVICE))
            positions.copy_(choose_positions())
            found = []
            for graph in graphs.values():
                # What a step leaves at the newest token's place must not help the other.
                for layer in layers:
                    for cache in (layer.attention.keys, layer.attention.values):
                        cache.flatten(0, 1)[slots.long()] = 0
                graph.replay()
                newest = [layer.attention.keys.flatten(0, 1)[slots.long()] for layer in layers]
                found.append([hidden.clone(), *newest])
            assert torch.isfinite(found[0][0].float()).all()
            for without, early in zip(*found, strict=True):
                assert torch.equal(without, early)
