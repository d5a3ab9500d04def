"""Times SmallLinear tilings on the shapes of the benchmark's models, and cuBLAS beside them. Prints the best of each.

    python tests/bench/tune_linear.py ROWS MODEL[:PRODUCT] ...

Each product runs in a CUDA graph over enough copies of the weights that none is found in the L2 cache.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import triton

sys.path.insert(0, str(Path(__file__).parents[2]))

from inference.runner.kernels.heads import HeadShape, HeadTargets, LayerAttention
from inference.runner.kernels.linear import RowSquares, SmallLinear
from inference.runner.kernels.tilings import Tiling
from tests.bench.shapes import SHAPES

TILINGS = [
    Tiling(n, k, s, w, st)
    for n, k, s, w, st in itertools.product((32, 64, 128), (64, 128, 256), (1, 2, 4), (4, 8), (3, 5))
    if n * k >= 4096 and (w == 4 or n * k >= 16384) and n * k * st * 2 <= 170_000
]
# For products that nothing comes before, and that are added to something.
NARROW = [Tiling(n, k, 1, 4, st, groups=4) for n, k, st in itertools.product((8, 16), (64, 128, 256), (3, 4, 6))]


def products(name: str) -> dict[str, tuple[int, int, bool, bool]]:
    """What: (outputs, inputs, has a norm, gated)."""
    shape = SHAPES[name]
    hidden, inner, width = shape["hidden_size"], shape["intermediate_size"], shape["head_dim"]
    heads = shape["num_attention_heads"] + 2 * shape["num_key_value_heads"]
    return {
        "qkv": (heads * width, hidden, True, False),
        "out": (hidden, shape["num_attention_heads"] * width, False, False),
        "gate_up": (2 * inner, hidden, True, True),
        "down": (hidden, inner, False, False),
        "head": (shape["vocab_size"], hidden, True, False),
    }


def seconds(run: Callable[[], object], copies: int) -> float:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            run()
        graph.replay()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        best = float("inf")
        for _ in range(3):
            start.record(stream)
            for _ in range(4):
                graph.replay()
            end.record(stream)
            end.synchronize()
            best = min(best, start.elapsed_time(end) / 4e3 / copies)
    return best


def tune(name: str, what: str, num_rows: int) -> list[tuple[object, ...]]:
    """The four fastest tilings of one product: microseconds and what they are."""
    num_out, num_in, has_norm, gated = products(name)[what]
    copies = max(2, min(24, int(300e6 / (num_out * num_in * 2))))
    weights = [torch.randn(num_out, num_in, device="cuda", dtype=torch.bfloat16) for _ in range(copies)]
    squares = RowSquares.on(torch.device("cuda"))
    squares.count = 32
    heads = _heads(name, num_rows) if what == "qkv" else None
    x = torch.randn(num_rows, num_in, device="cuda", dtype=torch.bfloat16)
    residual = torch.zeros(num_rows, num_out, device="cuda", dtype=torch.bfloat16) if what in ("out", "down") else None
    cublas_s = seconds(lambda: [torch.nn.functional.linear(x, weight) for weight in weights], copies)

    timed = []
    for tiling in TILINGS + (NARROW if residual is not None else []):
        programs = -(-num_out // tiling.block_n) * tiling.split_k
        if num_in % (tiling.block_k * tiling.split_k * tiling.groups) or not 60 <= programs <= 12000:
            continue
        if heads is not None and tiling.block_n != heads.shape.head_dim:
            continue
        eps = 1e-6 if has_norm else None
        layers = [SmallLinear(weight, eps=eps, gated=gated, tiling=tiling) for weight in weights]
        out = torch.empty(num_rows, layers[0].num_results, device="cuda", dtype=torch.bfloat16)

        def run(layers: list[SmallLinear] = layers, out: torch.Tensor = out) -> None:
            for layer in layers:
                layer(x, out, squares=squares, residual=residual, heads=heads)

        try:
            timed.append((seconds(run, copies), tiling))
        except triton.runtime.errors.OutOfResources:
            continue  # more shared memory than there is
    timed.sort(key=lambda item: item[0])
    floor_us = num_out * num_in * 2 / 4.3e6
    print(f"{num_rows} rows, {name} {what} {num_out}x{num_in}: floor {floor_us:.2f}, cuBLAS {cublas_s * 1e6:.2f} us")
    for took_s, tiling in timed[:4]:
        print(f"    {took_s * 1e6:.2f} us {tiling}", flush=True)
    return [(round(took_s * 1e6, 2), str(tiling)) for took_s, tiling in timed[:4]]


def _heads(name: str, num_rows: int) -> HeadTargets:
    shape = SHAPES[name]
    heads = HeadShape(shape["num_attention_heads"], shape["num_key_value_heads"], shape["head_dim"])
    cache = torch.zeros(2, num_rows, 16, heads.num_kv_heads, heads.head_dim, device="cuda", dtype=torch.bfloat16)
    norm = torch.ones(heads.head_dim, device="cuda", dtype=torch.bfloat16) if name.startswith("qwen3") else None
    layer = LayerAttention(cache[0], cache[1], 1.0, None, norm, norm, 1e-6)
    slots = torch.arange(num_rows, device="cuda", dtype=torch.int32) * 16
    return HeadTargets(heads, layer, slots, torch.rand(num_rows, heads.head_dim, device="cuda"))


def main() -> None:
    num_rows, results = int(sys.argv[1]), {}
    for place in sys.argv[2:]:
        name, _, wanted = place.partition(":")
        for what in [wanted] if wanted else products(name):
            results[f"{name} {what}"] = tune(name, what, num_rows)
    print(json.dumps({"bench": "tune_linear", "rows": num_rows, "best": results}))


if __name__ == "__main__":
    main()
