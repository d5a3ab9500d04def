"""Times the decode attention kernel's tilings in a CUDA graph of 28 layers, as a decode step runs it.

    python tests/bench/tune_attention.py [CONTEXT ...]
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from inference.runner.kernels.attention import DecodeTiling, HeadShape, LayerAttention, PagedAttention
from tests.bench.tune_linear import seconds

TILINGS = [
    DecodeTiling(128, 64, 4, 1), DecodeTiling(128, 64, 4, 2), DecodeTiling(128, 64, 4, 3), DecodeTiling(128, 128, 4, 1),
    DecodeTiling(128, 32, 4, 2), DecodeTiling(256, 64, 4, 2), DecodeTiling(64, 64, 4, 1), DecodeTiling(128, 64, 2, 1),
    DecodeTiling(128, 32, 2, 3), DecodeTiling(128, 128, 8, 1), DecodeTiling(64, 32, 2, 2), DecodeTiling(64, 64, 8, 1),
]  # fmt: skip
SHAPES = {"qwen3-0.6b": HeadShape(16, 8, 128), "llama-3.2-1b": HeadShape(32, 8, 64)}


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
    cos_sin = torch.rand(max(640, context + 64), shape.head_dim, device="cuda")
    paged = PagedAttention(shape, table, 16, cos_sin, max_batch=batch, tiling=tiling)
    norm = torch.ones(shape.head_dim, device="cuda", dtype=torch.bfloat16)
    parts = [LayerAttention(pool[0], pool[1], 0.1, None, norm, norm, 1e-6) for pool in pools]
    qkv = torch.randn(batch, shape.qkv_width, device="cuda", dtype=torch.bfloat16)
    rows = torch.arange(batch, device="cuda", dtype=torch.int32)
    positions = torch.full((batch,), context - 1, device="cuda", dtype=torch.int32)
    out = torch.empty(batch, shape.num_heads * shape.head_dim, device="cuda", dtype=torch.bfloat16)

    def run() -> None:
        for index in range(layers):
            paged.decode(parts[index % len(parts)], qkv, rows, positions, out)

    return seconds(run, layers)


if __name__ == "__main__":
    main()
