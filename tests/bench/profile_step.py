"""Where a step's time goes: microseconds of each kernel of a decode step by its place in the layer, and of each kind of
kernel of a prefill of one row's chunk.

    python tests/bench/profile_step.py MODEL [--batches 1,8,32] [--context 384] [--prefills 256]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

sys.path.insert(0, str(Path(__file__).parents[2]))

from inference.config import EngineConfig
from inference.runner.loader import load
from inference.step import ScheduledRow
from tests.bench.shapes import write_config

PLACES = ("qkv", "attention", "out", "gate_up", "down")
BESIDE = ("_look_kernel", "_copy_kernel")  # of masks, while the head's product runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--batches", type=lambda text: [int(part) for part in text.split(",")], default=[1, 8, 32])
    parser.add_argument("--prefills", type=lambda text: [int(part) for part in text.split(",")], default=[])
    parser.add_argument("--context", type=int, default=384)
    parser.add_argument("--attention", choices=("auto", "triton", "flash"), default="auto")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        config = EngineConfig(
            args.model, write_config(args.model, Path(scratch)), random_weights=True, device="cuda", dtype="bf16",
            max_rows=max(args.batches), max_model_len=args.context + 4096, kv_bytes=8 << 30, attention=args.attention,
        )  # fmt: skip
        runner = load(config).runner
    for batch in args.batches:
        _profile(runner, batch, args.context, f"{args.model} batch {batch}")
    for count in args.prefills:
        _profile_prefill(runner, count, args.context, f"{args.model} prefill of {count} at {args.context}")
    runner.close()


@torch.inference_mode()
def _profile_prefill(runner, count: int, context: int, title: str) -> None:
    chunk = (ScheduledRow(0, context, count, True),)
    blocks = (context + count) // 16 + 8
    runner.rows.block_table[0, :blocks] = torch.arange(blocks, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(runner.prefills.stream):
        runner.prefills.run(chunk)
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(10):
            runner.prefills.run(chunk)
        end.record()
        end.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as trace:
            runner.prefills.run(chunk)
            torch.cuda.synchronize()
    print(f"{title}: {start.elapsed_time(end) * 100:.0f} us", flush=True)
    spent, counts = defaultdict(float), defaultdict(int)
    for event in trace.events():
        spent[event.name[:70]] += event.time_range.elapsed_us()
        counts[event.name[:70]] += 1
    for name, us in sorted(spent.items(), key=lambda item: -item[1])[:12]:
        print(f"    {us:8.1f} us  {counts[name]:4d} x  {name}")


@torch.inference_mode()
def _profile(runner, batch: int, context: int, title: str) -> None:
    rows = runner.rows
    blocks = context // 16 + 8
    for row in range(batch):
        rows.block_table[row, :blocks] = torch.arange(row * blocks, (row + 1) * blocks, device="cuda")
    rows.lengths[:batch] = context
    rows.entry_rows[:batch] = torch.arange(batch, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(runner.decodes.stream):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(20):
            runner.decodes._graphs[batch].replay()
        end.record()
        end.synchronize()
        step_us = start.elapsed_time(end) / 20 * 1e3
        with profile(activities=[ProfilerActivity.CUDA]) as trace:
            for _ in range(5):
                runner.decodes._graphs[batch].replay()
            torch.cuda.synchronize()
    _report(f"{title}: {step_us:.0f} us a step", [
        (event.name, event.time_range.start, event.time_range.end)
        for event in trace.events() if "_kernel" in event.name
    ])  # fmt: skip


def _report(title: str, kernels: list[tuple[str, float, float]], num_steps: int = 5) -> None:
    """kernels: name, begin and end in microseconds. One that starts early waits for the one before: that counts too."""
    beside = {name: [end - begin for other, begin, end in kernels if name in other] for name in BESIDE}
    line = sorted((begin, end) for name, begin, end in kernels if not any(other in name for other in BESIDE))
    per_step = len(line) // num_steps
    layers = (per_step - 3) // 5
    spent, gaps = defaultdict(float), 0.0
    for step in range(num_steps):
        part = line[step * per_step : (step + 1) * per_step]
        places = ["gather", *PLACES * layers, "head", "sample"]
        for index, (place, (begin, end)) in enumerate(zip(places, part, strict=True)):
            spent[place] += (end - begin) / num_steps
            if index:
                gaps += max(0.0, begin - part[index - 1][1]) / num_steps
    print(f"{title}, {len(kernels) // num_steps} kernels, gaps {gaps:.0f} us in all", flush=True)
    each = {place: us / (layers if place in PLACES else 1) for place, us in spent.items()}
    each |= {name.strip("_"): sum(times) / num_steps for name, times in beside.items()}
    print("   ", "  ".join(f"{place} {us:.2f}" for place, us in each.items()))


if __name__ == "__main__":
    main()
