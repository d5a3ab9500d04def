"""Guessing from a turn's own history: passes and time with and without, where an answer copies and where it never does.

A bundled model on the CPU, one stream, greedy where it copies, hot where it does not. The texts must be the same. On a
CUDA device, random weights in a real shape: greedy, they soon repeat themselves, as a copy does; hot, never.
Prints a table and, last, one JSON line.

    python tests/bench/guesses.py [--model qwen2.5-coder-0.5b] [--dtype int8] [--most 8] [--tokens 160] [--rounds 2]
    python tests/bench/guesses.py --device cuda --dtype bf16 --model qwen3-0.6b --tokens 400

With --tokenizer FOLDER what is written is a strict call with a long text among its arguments.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from inference.grammar.build import build_grammar
from inference.grammar.policy import CallPolicy, Tool
from inference.grammar.special_tokens import special_tokens_of
from inference.grammars import Grammars
from inference.mask_ledger import TokenMatcher
from inference.models import resolve
from inference.runner.loader import LoadedModel
from inference.tokenizer import CheckpointTokenizer
from stream_parser import DIALECTS
from tests.bench.shapes import write_config
from tests.testkit.local_engine import loaded, local_engine

TEXT = """def area(shape):
    if shape.kind == "circle":
        return 3.14159 * shape.radius ** 2
    if shape.kind == "square":
        return shape.side ** 2
    if shape.kind == "rectangle":
        return shape.width * shape.height
    raise ValueError("unknown shape: " + shape.kind)
"""
COPY = f"Repeat this program word for word, and write nothing else:\n\n{TEXT}"
TELL = "Tell a story about a lighthouse."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="qwen2.5-coder-0.5b", help="a bundled model; the smallest copies badly")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", default="int8")
    parser.add_argument("--most", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--tokenizer", type=Path, help="a folder with tokenizer.json: constrained turns")
    args = parser.parse_args()
    rows = []
    with _model(args) as (model, prompts), _matchers(args, model) as matcher:
        for (name, prompt), sampling in zip(prompts.items(), ({"temperature": 0.0}, {"temperature": 1.2}), strict=True):
            # The first run of each warms the prefix cache, so that only decoding is compared.
            runs: dict[int, list[tuple[list[int], float, int, int, int]]] = {0: [], args.most: []}
            for _ in range(args.rounds + 1):
                for most in runs:
                    runs[most].append(_run(model, prompt, most, args.tokens, sampling, matcher))
            rows.append(_row(name, runs[0][1:], runs[args.most][1:]))
    print(f"{'workload':<10}{'tokens':>8}{'passes':>8}{'with':>7}{'s':>8}{'with':>8}{'guessed':>9}{'right':>7}  same")
    for row in rows:
        print(
            f"{row['workload']:<10}{row['tokens']:>8}{row['passes']:>8}{row['passes_with']:>7}{row['s']:>8.2f}"
            f"{row['s_with']:>8.2f}{row['guessed']:>9}{row['right']:>7}  {row['same']}"
        )
    print(json.dumps({"bench": "guesses", "model": args.model, "dtype": args.dtype, "most": args.most, "rows": rows}))


@contextmanager
def _model(args: argparse.Namespace):  # type: ignore[no-untyped-def]
    """The model, and what it is asked for: a copy, and what repeats nothing."""
    if args.device == "cpu":
        folder = resolve(args.model).folder
        tokenizer = CheckpointTokenizer.from_folder(folder)
        prompts = {
            name: tokenizer.encode(tokenizer.render_chat([{"role": "user", "content": text}]))
            for name, text in (("copies", COPY), ("tells", TELL))
        }
        with loaded(folder, dtype=args.dtype, kv_bytes=256 << 20) as model:
            yield model, prompts
        return
    prompt = [13 * position % 30_000 + 10 for position in range(256)]
    with tempfile.TemporaryDirectory() as scratch:
        folder = write_config(args.model, Path(scratch))
        options = {"device": "cuda", "dtype": args.dtype, "random_weights": True, "max_model_len": 4096}
        with loaded(folder, kv_bytes=4 << 30, max_rows=16, **options) as model:
            yield model, {"repeats": prompt, "tells": prompt}


@contextmanager
def _matchers(args: argparse.Namespace, model: LoadedModel) -> Iterator[Callable[[], list[TokenMatcher]]]:
    """What holds a turn to a strict call that writes a file, if a tokenizer is given."""
    if args.tokenizer is None:
        yield list
        return
    fields = {"path": {"type": "string", "maxLength": 20}, "content": {"type": "string", "maxLength": 60_000}}
    schema = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    policy = CallPolicy("required", (Tool("write_file", schema, strict=True),))
    special = special_tokens_of((args.tokenizer / "tokenizer.json").read_text(encoding="utf-8"))
    source = build_grammar(DIALECTS["hermes"], policy, special_tokens=special, max_reasoning_tokens=0)
    grammars = Grammars(args.tokenizer, replace(model, eos_token_ids=(0,)))
    try:
        yield lambda: [grammars.matcher(source)]
    finally:
        grammars.close()


def _run(  # type: ignore[no-untyped-def]
    model: LoadedModel, prompt: list[int], most: int, tokens: int, sampling: dict[str, float], matcher
):
    engine = local_engine(model, max_step_tokens=256, max_guess=most)
    engine.submit("a", prompt, matchers=matcher(), max_tokens=tokens, ignore_eos=True, seed=4, **sampling)
    while ("a", 0) not in engine.chunks:
        engine.step()
    first = engine.engine.stats().num_steps
    started = time.perf_counter()
    engine.run()
    stats = engine.engine.stats()
    passed_s = time.perf_counter() - started
    return engine.tokens("a"), passed_s, stats.num_steps - first, stats.num_guessed_tokens, stats.num_right_guesses


def _row(name: str, without, with_guesses) -> dict[str, object]:  # type: ignore[no-untyped-def]
    plain, guessing = (min(runs, key=lambda run: run[1]) for runs in (without, with_guesses))
    return {
        "workload": name, "tokens": len(plain[0]), "passes": plain[2], "passes_with": guessing[2], "s": plain[1],
        "s_with": guessing[1], "faster": plain[1] / guessing[1], "guessed": guessing[3], "right": guessing[4],
        "same": plain[0] == guessing[0],
    }  # fmt: skip


if __name__ == "__main__":
    main()
