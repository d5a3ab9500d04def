"""A picture of some consecutive decode steps: what the host does and what the device does, on one time line.

    python tests/bench/trace_steps.py OUT.svg [--model qwen3-0.6b] [--batch 8] [--steps 4]

Prints, last, one JSON line: the gaps between the device's last kernel of a step and the next step's first, and the
host's time a step.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
from collections import deque
from pathlib import Path
from statistics import median

import torch
from torch.profiler import ProfilerActivity, profile, record_function

sys.path.insert(0, str(Path(__file__).parents[2]))

from inference.config import EngineConfig
from inference.runner.loader import load
from inference.step import DECODES
from tests.bench.shapes import SHAPES, write_config
from tests.testkit.local_engine import local_engine

WIDTH, LANE = 1200, 26
HOST = {"plan": "#7a9e3f", "launch": "#3f7a9e", "wait": "#d8d8d8", "apply": "#9e7a3f"}
KERNELS = {"_linear": "#4c78a8", "decode": "#e45756", "_sample": "#72b7b2", "_gather": "#b279a2", "": "#999999"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", default="qwen3-0.6b", choices=sorted(SHAPES))
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=4)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        config = EngineConfig(
            args.model, write_config(args.model, Path(scratch)), random_weights=True, device="cuda", dtype="bf16",
            max_rows=args.batch, max_model_len=1024, kv_bytes=4 << 30,
        )  # fmt: skip
        model = load(config)
    kernels, host = _trace(model, args)
    model.runner.close()
    steps = _steps(kernels)
    gaps = [later[0][0] - earlier[-1][1] for earlier, later in itertools.pairwise(steps)]
    lengths = [step[-1][1] - step[0][0] for step in steps]
    middle = len(steps) // 2
    shown = steps[middle : middle + args.steps]
    args.out.write_text(_svg(shown, host, f"{args.model}, batch {args.batch}: {args.steps} decode steps"))
    working = sum(end - begin for name, begin, end in host if name != "wait") / max(1, len(steps))
    print(json.dumps({
        "bench": "trace_steps", "model": args.model, "batch": args.batch, "step_us": round(median(lengths), 1),
        "gap_us_median": round(median(gaps), 1), "gap_us_max": round(max(gaps), 1), "host_us_a_step": round(working, 1),
    }))  # fmt: skip


def _trace(model, args: argparse.Namespace):  # type: ignore[no-untyped-def]
    """Kernels as (begin, end, name), and the host's spans as (what, begin, end), in microseconds."""
    engine = local_engine(model, max_rows=args.batch, max_step_tokens=2048)
    for index in range(args.batch):
        prompt = [(7 * index + 13 * position) % 30_000 + 10 for position in range(256)]
        engine.submit(str(index), prompt, temperature=0, max_tokens=300, ignore_eos=True)
    for _ in range(60):
        engine.step()
    scheduler, runner = engine.engine._scheduler, engine.engine._runner
    launched = deque(step.handle for step in engine.engine._launched[DECODES])
    engine.engine._launched[DECODES].clear()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as trace:
        for _ in range(24):
            with record_function("headrace.plan"):
                plan = scheduler.plan()
            with record_function("headrace.launch"):
                launched.append(runner.launch(plan))
            with record_function("headrace.wait"):
                result = launched.popleft().wait()
            with record_function("headrace.apply"):
                scheduler.take_in(result)
                scheduler.take_chunks()
        torch.cuda.synchronize()
    for handle in launched:
        scheduler.take_in(handle.wait())
        scheduler.take_chunks()
    engine.run()
    # The profiler shows the host's spans a second time, as the kernels that were launched within them.
    spans = [
        (event.name, event.time_range.start, event.time_range.end)
        for event in trace.events()
        if "_kernel" in event.name or event.device_type.name == "CPU"
    ]
    kernels = sorted((begin, end, name) for name, begin, end in spans if "_kernel" in name)
    host = [(name.removeprefix("headrace."), begin, end) for name, begin, end in spans if name.startswith("headrace.")]
    return kernels, host


def _steps(kernels):  # type: ignore[no-untyped-def]
    """Cut at each gather, the first kernel of a step; what is left over at the ends is dropped."""
    starts = [index for index, (_, _, name) in enumerate(kernels) if "_gather" in name]
    return [kernels[begin:end] for begin, end in itertools.pairwise(starts)]


def _svg(steps, host, title: str) -> str:  # type: ignore[no-untyped-def]
    first, last = steps[0][0][0], steps[-1][-1][1]
    scale = (WIDTH - 120) / (last - first)

    def bar(begin: float, end: float, lane: int, colour: str, label: str) -> str:
        x, width = 110 + (begin - first) * scale, max(0.3, (end - begin) * scale)
        about = f"{label}: {end - begin:.1f} us"
        return (
            f'<rect x="{x:.1f}" y="{30 + lane * LANE}" width="{width:.1f}" height="{LANE - 6}" fill="{colour}">'
            f"<title>{about}</title></rect>"
        )

    parts = [bar(begin, end, 0, HOST.get(name, "#000"), name) for name, begin, end in host if first < end < last]
    for step in steps:
        for begin, end, name in step:
            colour = next(colour for part, colour in KERNELS.items() if part in name)
            parts.append(bar(begin, end, 1, colour, name))
    legend = [*HOST.items(), *((name.strip("_") or "other", colour) for name, colour in KERNELS.items())]
    for index, (name, colour) in enumerate(legend):
        x = 110 + index * 110
        parts.append(f'<rect x="{x}" y="92" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{x + 14}" y="101">{name}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="112" font-family="sans-serif" font-size="11">'
        '<rect width="100%" height="100%" fill="white"/>'
        f'<text x="8" y="16">{title}, {(last - first) / 1e3:.2f} ms</text>'
        f'<text x="8" y="46">host</text><text x="8" y="{46 + LANE}">device</text>{"".join(parts)}</svg>\n'
    )


if __name__ == "__main__":
    main()
