"""Times prefill attention, ours and FlashAttention 4's, in a CUDA graph of 28 layers; microseconds a layer.

    python tests/bench/prefill_attention.py [CONTEXT ...]

CONTEXT: tokens in the cache before each chunk. One JSON line comes last.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from inference.paged_kv.pool import KVLayout, KVPool
from inference.runner.cuda_inputs import PackedInputs, PackedShape
from inference.runner.flash_prefill import flash_prefill
from inference.runner.kernels.attention import PagedAttention
from inference.runner.kernels.chunks import ChunkAttention, Chunks
from inference.runner.kernels.heads import HeadShape, LayerAttention
from inference.step import ScheduledRow
from tests.bench.tune_attention import SHAPES
from tests.bench.tune_linear import seconds

BLOCK, NUM_LAYERS, MAX_ROWS = 16, 28, 32
# Tokens that a pass has room for, and those of each of its chunks.
PASSES = [(64, (64,)), (256, (256,)), (256, (64,) * 4), (256, (200,)), (2048, (2048,)), (2048, (256,) * 8)]


@dataclass(frozen=True, slots=True)
class _Case:
    """Chunks of `counts` tokens, each after `context` others, in a pass with room for `room` tokens."""

    heads: HeadShape
    layer: LayerAttention
    table: torch.Tensor
    room: int
    counts: tuple[int, ...]
    context: int


def main() -> None:
    contexts = [int(part) for part in sys.argv[1:]] or [0, 1024, 16384]
    measured = []
    for name, heads in SHAPES.items():
        for context in contexts:
            pool, layer, table = _world(heads, context)
            flash = flash_prefill("flash", heads, pool)
            for room, counts in PASSES:
                case = _Case(heads, layer, table, room, counts, context)
                took = {"triton": _time(case, None), "flash": _time(case, flash)}
                measured.append({"model": name, "context": context, "room": room, "chunks": counts} | took)
                times = ", ".join(f"{kind} {us:.1f}" for kind, us in took.items())
                print(f"{name}, {len(counts)} x {counts[0]} tokens of {room} after {context}: {times}", flush=True)
    print(json.dumps(measured))


def _world(heads: HeadShape, context: int) -> tuple[KVPool, LayerAttention, torch.Tensor]:
    """A pool of random keys and values, a layer over it, and the scattered blocks of eight rows."""
    layout = KVLayout(1, heads.num_kv_heads, heads.head_dim, BLOCK, torch.bfloat16)
    blocks_per_row = (context + 2048) // BLOCK
    pool = KVPool(layout, 8 * blocks_per_row, torch.device("cuda"))
    for cache in (pool.keys[0], pool.values[0]):
        cache.normal_()
    table = torch.randperm(pool.num_blocks, device="cuda").int().view(8, blocks_per_row)
    return pool, LayerAttention(pool.keys[0], pool.values[0], 0.1, None), table


def _time(case: _Case, prefills: ChunkAttention | None) -> float:
    """Microseconds."""
    device, heads = case.table.device, case.heads
    paged = PagedAttention(heads, case.table, BLOCK, max_model_len=case.context + 2048, max_batch=8, prefills=prefills)
    shape = PackedShape(case.room, MAX_ROWS, lists_chunks=True)
    rows = [ScheduledRow(row, case.context, count, True) for row, count in enumerate(case.counts)]
    inputs = PackedInputs.on(device, shape)
    inputs.load(shape.pack(rows, spare_row=0))
    assert inputs.chunks is not None
    chunks = Chunks(inputs.chunks.ends, inputs.chunks.num_keys, case.table[inputs.chunks.rows])
    qkv = torch.randn(case.room, heads.qkv_width, device=device, dtype=torch.bfloat16)

    def run() -> None:
        for _ in range(NUM_LAYERS):
            paged.attend_packed(case.layer, qkv, inputs.tiles, chunks)

    run()  # compiles
    return seconds(run, NUM_LAYERS) * 1e6


if __name__ == "__main__":
    main()
