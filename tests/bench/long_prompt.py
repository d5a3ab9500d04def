"""What a long prompt does to those who already speak: the time between tokens of four running turns meanwhile.

The engine alone, random weights in real shapes. Prints a table and, last, one JSON line.

    python tests/bench/long_prompt.py [--model qwen3-0.6b] [--prompt 8192] [--running 4] [--chunk 128]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from inference.config import EngineConfig
from inference.runner.loader import load
from tests.bench.shapes import SHAPES, write_config
from tests.testkit.local_engine import local_engine


def main() -> None:
    args = _arguments()
    with tempfile.TemporaryDirectory() as scratch:
        config = EngineConfig(
            args.model, write_config(args.model, Path(scratch)), random_weights=True, device=args.device, dtype="bf16",
            max_rows=args.running + 1, max_model_len=args.prompt + 1024, kv_bytes=args.kv_gib << 30,
        )  # fmt: skip
        model = load(config)
    _run(model, args, salt=1)
    gaps, before, first_token_s = _run(model, args, salt=2)
    during = sorted(gaps[before:])
    everything = sorted(gaps)
    median, p99 = everything[len(everything) // 2], everything[int(0.99 * len(everything))]
    row = {
        "itl_p50_ms": median, "itl_p99_ms": p99, "during_p50_ms": during[len(during) // 2],
        "during_max_ms": during[-1], "steps_during": len(during), "long_ttft_ms": first_token_s * 1e3,
    }  # fmt: skip
    for name, value in row.items():
        print(f"{name:<16}{value:>10.2f}")
    about = {"bench": "long_prompt", "model": args.model, "prompt": args.prompt, "p99_to_p50": p99 / median}
    print(json.dumps(about | row))
    model.runner.close()


def _run(model, args: argparse.Namespace, salt: int) -> tuple[list[float], int, float]:  # type: ignore[no-untyped-def]
    """The gaps in ms between a running turn's tokens, how many came before the long prompt, and when it answers."""
    engine = local_engine(model, max_rows=args.running + 1, max_step_tokens=2048, long_prompt_chunk=args.chunk)
    for index in range(args.running):
        prompt = [(7 * index + 13 * position + salt) % 30_000 + 10 for position in range(256)]
        engine.submit(str(index), prompt, temperature=0, max_tokens=700, ignore_eos=True)
    while len(engine.chunks) < args.running:
        engine.step()
    gaps: list[float] = []
    last = time.perf_counter()

    def step() -> None:
        nonlocal last
        if any(chunk.turn_id == "0" for chunk in engine.step()):
            now = time.perf_counter()
            gaps.append((now - last) * 1e3)
            last = now

    while len(gaps) < args.steps_before:
        step()
    before = len(gaps)
    prompt = [(17 * position + salt) % 30_000 + 10 for position in range(args.prompt)]
    started = time.perf_counter()
    engine.submit("long", prompt, temperature=0, max_tokens=2, ignore_eos=True)
    while ("long", 0) not in engine.chunks:
        step()
    first_token_s = time.perf_counter() - started
    for index in range(args.running):
        engine.engine.cancel(str(index))
    engine.run()
    return gaps, before, first_token_s


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="qwen3-0.6b", choices=sorted(SHAPES))
    parser.add_argument("--prompt", type=int, default=8192)
    parser.add_argument("--running", type=int, default=4)
    parser.add_argument("--chunk", type=int, default=512, help="tokens of it that a step takes while others run")
    parser.add_argument("--steps-before", type=int, default=400)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--kv-gib", type=int, default=8)
    return parser.parse_args()


if __name__ == "__main__":
    main()
