"""Times the decode attention kernel's tilings in a CUDA graph of 28 layers, as a decode step runs it.

    python tests/bench/tune_attention.py [CONTEXT ...]
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from inference.runner.kernels.attention import DecodeTiling, PagedAttention
from inference.runner.kernels.heads import HeadShape, LayerAttention
from tests.bench.tune_linear import seconds

TILINGS = [
    DecodeTiling(tile, warps, stages, programs)
    for tile, warps, stages in itertools.product((32, 64, 128), (4, 8), (2, 3, 4))
    for programs in (1, 2, 3, 4)
    if warps == 4 or tile == 128
]
SHAPES = {"qwen3-0.6b": HeadShape(16, 8, 128), "llama-3.2-1b": HeadShape(32, 8, 64), "qwen3-8b": HeadShape(32, 8, 128)}
MAX_MODEL_LEN = 8192


def main() -> None:
    contexts = [int(part) for part in sys.argv[1:]] or [384]
    for name, shape in SHAPES.items():
        for context in contexts:
            for batch in (1, 8, 32):
                timed = sorted((_time(shape, batch, context, tiling), repr(tiling)) for tiling in TILINGS)
                read_us = batch * context * shape.num_kv_heads * shape.head_dim * 4 / 4.3e12 * 1e6
                print(f"{name} context {context} batch {batch}: floor {read_us:.1f} us", flush=True)
                for took, tiling in timed[:4]:
                    print(f"    {took * 1e6:.2f} us {tiling}", flush=True)


def _time(shape: HeadShape, batch: int, context: int, tiling: DecodeTiling) -> float:
    blocks = context // 16 + 1
    layers = 28
    pools = [
        torch.randn(2, batch * blocks, 16, shape.num_kv_heads, shape.head_dim, device="cuda", dtype=torch.bfloat16)
        for _ in range(min(layers, 1 + (200 << 20) // (batch * context * shape.num_kv_heads * shape.head_dim * 4)))
    ]
    table = torch.randperm(batch * blocks, device="cuda").to(torch.int32).view(batch, blocks)
    paged = PagedAttention(shape, table, 16, max_model_len=MAX_MODEL_LEN, max_batch=batch, tiling=tiling)
    parts = [LayerAttention(pool[0], pool[1], 0.1, None) for pool in pools]
    query = torch.randn(batch, shape.query_width, device="cuda", dtype=torch.bfloat16)
    positions = torch.full((batch,), context - 1, device="cuda", dtype=torch.int32)
    out = torch.empty_like(query)

    def run() -> None:
        for index in range(layers):
            paged.decode(parts[index % len(parts)], query, positions, table, out)

    return seconds(run, layers)


if __name__ == "__main__":
    main()
