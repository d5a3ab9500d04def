"""The decode step of the engine alone: prompts of 256 tokens, 256 generated, greedy, random weights in real shapes.

Prints a table with the floor (every weight read once at --bandwidth) and the ratio to it and, last, one JSON line.

    python tests/bench/decode.py [--models qwen3-0.6b,llama-3.2-1b,qwen3-8b] [--batches 1,2,4,8,16,32]
                                 [--device cuda] [--dtype bf16] [--context 256] [--new-tokens 256]
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
import time
from collections import deque
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.bench.shapes import decode_bytes, write_config


def main() -> None:
    args = _arguments()
    rows = []
    for name in args.models:
        with tempfile.TemporaryDirectory() as scratch:
            rows += _measure(name, write_config(name, Path(scratch)), args)
    print(f"{'model':<14} {'batch':>5} {'floor ms':>9} {'step ms':>8} {'x floor':>8} {'host ms':>8}")
    for row in rows:
        print(
            f"{row['model']:<14} {row['batch']:>5} {row['floor_ms']:>9.3f} {row['step_ms']:>8.3f} "
            f"{row['step_ms'] / row['floor_ms']:>8.2f} {row['host_ms']:>8.3f}"
        )
    about = {"bench": "decode", "device": args.device, "dtype": args.dtype, "context": args.context}
    print(json.dumps(about | {"rows": rows}))


def _measure(name: str, folder: Path, args: argparse.Namespace) -> list[dict[str, float | str]]:
    import torch

    from inference.config import EngineConfig
    from inference.runner.loader import load
    from tests.testkit.local_engine import local_engine

    started = time.perf_counter()
    longest = args.context + args.new_tokens + 64
    config = EngineConfig(
        name, folder, random_weights=True, device=args.device, dtype=args.dtype, max_rows=max(args.batches),
        max_model_len=longest, kv_bytes=args.kv_gib << 30,
    )
    model = load(config)
    print(f"{name}: loaded in {time.perf_counter() - started:.1f} s", file=sys.stderr, flush=True)
    rows: list[dict[str, float | str]] = []
    for batch in args.batches:
        best_s, host_s = float("inf"), 0.0
        for round_number in range(args.rounds):
            engine = local_engine(model, max_rows=max(args.batches), max_step_tokens=8192)
            for index in range(batch):
                prompt = [(7 * index + 13 * position + round_number) % 30000 + 10 for position in range(args.context)]
                engine.submit(str(index), prompt, temperature=0, max_tokens=args.new_tokens, ignore_eos=True)
            while len(engine.chunks) < batch:
                engine.step()
            steps = 0
            started = time.perf_counter()
            while engine.engine.has_work:
                engine.step()
                steps += 1
            step_s = (time.perf_counter() - started) / steps
            best_s = min(best_s, step_s)
        host_s = _host_seconds(model, batch, args)
        floor_ms = decode_bytes(name) / args.bandwidth * 1e-9
        times = {"floor_ms": floor_ms, "step_ms": best_s * 1e3, "host_ms": host_s * 1e3}
        rows.append({"model": name, "batch": batch, **times})
        print(rows[-1], file=sys.stderr, flush=True)
    model.runner.close()
    del model
    gc.collect()
    if args.device == "cuda":
        torch.cuda.empty_cache()
    return rows


def _host_seconds(model: object, batch: int, args: argparse.Namespace) -> float:
    """The host's own work a step: planning and launching, without the wait for the device."""
    from inference.step import DECODES
    from tests.testkit.local_engine import local_engine

    engine = local_engine(model, max_rows=max(args.batches), max_step_tokens=8192)  # type: ignore[arg-type]
    for index in range(batch):
        engine.submit(str(index), [index + 5] * 20, temperature=0, max_tokens=60, ignore_eos=True)
    for _ in range(10):
        engine.step()
    inner = engine.engine
    launched = deque(step.handle for step in inner._launched[DECODES])
    inner._launched[DECODES].clear()
    spent = 0.0
    for _ in range(30):
        started = time.perf_counter()
        plan = inner._scheduler.plan()
        launched.append(inner._runner.launch(plan))
        spent += time.perf_counter() - started
        result = launched.popleft().wait()
        started = time.perf_counter()
        inner._scheduler.take_in(result)
        inner._scheduler.take_chunks()
        spent += time.perf_counter() - started
    for handle in launched:
        inner._scheduler.take_in(handle.wait())
        inner._scheduler.take_chunks()
    engine.run()
    return spent / 30


def _arguments() -> argparse.Namespace:
    def numbers(text: str) -> list[int]:
        return [int(part) for part in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    models = ["qwen3-0.6b", "llama-3.2-1b", "qwen3-8b"]
    parser.add_argument("--models", type=lambda text: text.split(","), default=models)
    parser.add_argument("--batches", type=numbers, default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--new-tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--kv-gib", type=int, default=16)
    parser.add_argument("--bandwidth", type=float, default=4.3, help="TB/s, for the floor")
    return parser.parse_args()


if __name__ == "__main__":
    main()
