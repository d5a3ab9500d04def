"""What constrained turns cost, and what they cost the others: a batch in which none, half or all are held to a grammar.

Decode steps of the engine alone, random weights in real shapes, a real tokenizer's vocabulary. Every constrained row
writes a list of objects such as five tools take; the others write freely. Prints a table and, last, one JSON line.

    python tests/bench/constrained.py --tokenizer FOLDER [--model qwen3-0.6b] [--batch 16] [--device cuda]
                                      [--steps 150] [--rounds 3] [--num-processes N] [--min-forced-run 3]
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[2]))

from inference.config import EngineConfig
from inference.grammar.build import build_grammar
from inference.grammar.policy import CallPolicy, JsonSchema
from inference.grammar.special_tokens import special_tokens_of
from inference.grammars import Grammars
from inference.runner.loader import load
from stream_parser import DIALECTS
from tests.bench.shapes import SHAPES, write_config
from tests.testkit.local_engine import local_engine

SHARES = (0.0, 0.5, 1.0)
_TEXT = {"type": "string", "maxLength": 40}
_SCHEMAS = {
    "read_file": {"path": _TEXT, "first_line": {"type": "integer"}, "last_line": {"type": "integer"}},
    "run": {"command": _TEXT, "timeout_s": {"type": "integer", "minimum": 1, "maximum": 600}},
    "weather": {"city": _TEXT, "unit": {"enum": ["celsius", "fahrenheit"]}},
    "send": {"to": {"type": "array", "items": _TEXT, "maxItems": 3}, "subject": _TEXT, "urgent": {"type": "boolean"}},
    "search": {"query": _TEXT, "filter": {"type": "object", "properties": {"year": {"type": "integer"}, "tag": _TEXT}}},
}


def main() -> None:
    args = _arguments()
    with tempfile.TemporaryDirectory() as scratch:
        config = EngineConfig(
            args.model, write_config(args.model, Path(scratch)), random_weights=True, device=args.device,
            dtype="bf16" if args.device == "cuda" else "fp32", max_rows=args.batch, max_model_len=1024,
            kv_bytes=args.kv_gib << 30,
        )  # fmt: skip
        model = load(config)
    # The shapes name no end token, and no row is to end.
    grammars = Grammars(args.tokenizer, replace(model, eos_token_ids=(0,)), num_processes=args.num_processes)
    sys.setswitchinterval(0.0005)  # as in the engine's process, like what follows
    gc.collect()
    gc.freeze()
    # What is set up on first use: lexers, too, learn the states that they come to, and keep them.
    _window(model, grammars, args, 1.0, args.steps)
    found: dict[float, list[dict[str, float]]] = {share: [] for share in SHARES}
    for _ in range(args.rounds):
        for share in SHARES:
            found[share].append(_window(model, grammars, args, share, args.steps))
    medians = {
        share: {name: median(window[name] for window in windows) for name in windows[0]}
        for share, windows in found.items()
    }
    _report(args, medians)
    model.runner.close()
    grammars.close()


def _source(args: argparse.Namespace):  # type: ignore[no-untyped-def]
    """A list of many small objects, as arguments are; long enough that no row ends while it is watched."""
    objects = [
        {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
        for fields in _SCHEMAS.values()
    ]
    listed = JsonSchema({"type": "array", "items": {"anyOf": objects}, "minItems": 100, "maxItems": 100})
    special = special_tokens_of((args.tokenizer / "tokenizer.json").read_text(encoding="utf-8"))
    return build_grammar(DIALECTS["hermes"], CallPolicy(), listed, special_tokens=special, max_reasoning_tokens=0)


def _window(  # type: ignore[no-untyped-def]
    model, grammars, args: argparse.Namespace, share: float, steps: int
) -> dict[str, float]:
    """Steps with the whole batch decoding: the median time between two tokens of a row that is free (or of any, if none
    is), all tokens a second, how often a row sat a step out, and the mean time of a mask."""
    engine = local_engine(model, max_rows=args.batch, max_step_tokens=2048, min_forced_run=args.min_forced_run)
    source = _source(args)
    num_held = round(share * args.batch)
    for index in range(args.batch):
        prompt = [(7 * index + 13 * position) % 30_000 + 10 for position in range(128)]
        matchers = [grammars.matcher(source)] if index < num_held else []
        engine.submit(
            str(index), prompt, matchers=matchers, temperature=1.0, seed=index, max_tokens=800, ignore_eos=True
        )
    while len(engine.chunks) < args.batch:
        engine.step()
    before, gaps = engine.engine.stats(), []
    watched = str(num_held) if num_held < args.batch else "0"  # a free row, if there is one
    started = last = time.perf_counter()
    while len(gaps) < steps:
        if any(chunk.turn_id == watched for chunk in engine.step()):
            now = time.perf_counter()
            gaps.append((now - last) * 1e3)
            last = now
    wall_s, after = last - started, engine.engine.stats()
    assert after.num_running == args.batch, "a row has ended within the window"
    for index in range(args.batch):
        engine.engine.cancel(str(index))
    engine.run()
    num_late = after.num_late_masks - before.num_late_masks
    tokens = after.num_generated_tokens - before.num_generated_tokens
    return {
        "itl_ms": _percentile(gaps, 0.5), "itl_p99_ms": _percentile(gaps, 0.99), "tokens_per_s": tokens / wall_s,
        "steps_per_s": (after.num_steps - before.num_steps) / wall_s,
        "late_share": num_late / max(1, num_held * (after.num_steps - before.num_steps)),
        "forced_share": (after.num_forced_tokens - before.num_forced_tokens) / tokens,
        "redrawn_a_step": (after.num_redrawn_tokens - before.num_redrawn_tokens) / (after.num_steps - before.num_steps),
        "mask_ms": (after.mask_s - before.mask_s) / max(1, after.num_masks - before.num_masks) * 1e3,
    }  # fmt: skip


def _percentile(values: list[float], q: float) -> float:
    return sorted(values)[min(len(values) - 1, int(q * len(values)))] if values else 0.0


def _report(args: argparse.Namespace, medians: dict[float, dict[str, float]]) -> None:
    print(f"{args.model}, batch {args.batch}, {args.device}; medians of {args.rounds} rounds")
    names = tuple(medians[0.0])
    print(("{:>12}" + "{:>15}" * len(names)).format("constrained", *names))
    for share, row in medians.items():
        print(("{:>12.0%}" + "{:>15.3f}" * len(names)).format(share, *(row[name] for name in names)))
    ratios = {
        "itl_half_to_none": medians[0.5]["itl_ms"] / medians[0.0]["itl_ms"],
        "throughput_all_to_none": medians[1.0]["tokens_per_s"] / medians[0.0]["tokens_per_s"],
    }
    rows = {f"{share:.0%}": row for share, row in medians.items()}
    print(json.dumps({"bench": "constrained", "model": args.model, "batch": args.batch, **ratios, "rows": rows}))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", type=Path, required=True, help="a folder with tokenizer.json")
    parser.add_argument("--model", default="qwen3-0.6b", choices=sorted(SHAPES))
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kv-gib", type=int, default=4)
    parser.add_argument("--num-processes", type=int, help="that follow constrained rows")
    parser.add_argument("--min-forced-run", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
