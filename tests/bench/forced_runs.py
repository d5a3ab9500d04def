"""Forward passes a call, with and without forced runs: what the grammar leaves no choice in is not sampled.

The default model, greedy, one call at a time, five tools as agents have them. Prints a table and, last, one JSON line;
exits with 1 if a call's tokens differ, or if fewer than 30 % of the passes are saved. In int8 a run's pass may round
differently than its tokens one by one, so only fp32 promises equal tokens: --dtype fp32 (the default) is exact.

    python tests/bench/forced_runs.py [--dtype fp32] [--dialect hermes] [--min-run 2]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from inference.grammar.build import build_grammar
from inference.grammar.compile import GrammarCompiler
from inference.grammar.policy import CallPolicy, Tool
from inference.mask_ledger import TokenMatcher
from inference.models import resolve
from inference.runner.loader import LoadedModel
from inference.tokenizer import CheckpointTokenizer
from stream_parser.dialects import DIALECTS
from tests.testkit.call_schemas import BOOLEAN, array, closed, listed, text, whole
from tests.testkit.local_engine import loaded, local_engine

TOOLS: dict[str, tuple[str, dict[str, Any]]] = {
    "get_weather": (
        "What will the weather be in Oslo for the next three days, in celsius?",
        closed(
            "city", "unit", "days", city=text(maxLength=40), unit=listed("celsius", "fahrenheit"), days=whole(1, 14)
        ),
    ),
    "read_file": (
        "Show me the first 20 lines of src/main.py.",
        closed("path", "first_line", path=text(maxLength=60), first_line=whole(1, 99_999), last_line=whole(1, 99_999)),
    ),
    "send_message": (
        "Tell Ada and Bob that lunch is at noon.",
        closed(
            "recipients", "subject", "body", recipients=array(text(maxLength=20), minItems=1, maxItems=3),
            subject=text(maxLength=40), body=text(maxLength=120), urgent=BOOLEAN,
        ),
    ),
    "search_orders": (
        "Find the open orders of customer 1204, newest first.",
        closed(
            "filter", "sort", sort=listed("newest", "oldest"),
            filter=closed("customer_id", "status", customer_id=whole(1, 9_999), status=listed("open", "paid", "sent")),
        ),
    ),
    "create_event": (
        "Put the team meeting into my calendar on 12 May 2027 at nine.",
        closed(
            "title", "start_date", "start_time", "attendees_notified", title=text(maxLength=40),
            start_date=text(format="date"), start_time=text(pattern="^[0-2][0-9]:[0-5][0-9]$"),
            attendees_notified=BOOLEAN,
        ),
    ),
}  # fmt: skip
TARGET = 0.3


class WithoutRuns:
    """A matcher that never says what must come next: every token is sampled under its mask, the first as well."""

    def __init__(self, inner: TokenMatcher) -> None:
        self._inner = inner

    @property
    def is_done(self) -> bool:
        return self._inner.is_done

    @property
    def error(self) -> str:
        return self._inner.error

    def accept(self, token_id: int) -> bool:
        return self._inner.accept(token_id)

    def forced(self) -> tuple[int, ...]:
        return ()

    lets_most_through = writes_text = False
    has_mask = is_answered = True

    def expect(self, token_id: int) -> None:
        """`accept` does it all."""

    def mask(self, out: Any) -> bool:
        return self._inner.mask(out)


@dataclass(frozen=True, slots=True)
class Run:
    """num_passes: engine steps from the prompt's to the call's last token."""

    token_ids: tuple[int, ...]
    num_passes: int
    num_forced: int
    seconds: float


def measure(model: LoadedModel, prompt: list[int], matcher: TokenMatcher, min_run: int) -> Run:
    engine = local_engine(model, max_rows=1, max_step_tokens=512, min_forced_run=min_run)
    begun_s = time.perf_counter()
    engine.submit("call", prompt, matchers=[matcher], temperature=0, max_tokens=400)
    engine.run()
    seconds, stats = time.perf_counter() - begun_s, engine.engine.stats()
    assert engine.chunks["call", 0][-1].finish_reason == "stop", engine.chunks["call", 0][-1]
    return Run(tuple(engine.tokens("call")), stats.num_steps, stats.num_forced_tokens, seconds)


def compare(
    model: LoadedModel, compiler: GrammarCompiler, tokenizer: CheckpointTokenizer, dialect: str, name: str, min_run: int
) -> dict[str, Any]:
    question, schema = TOOLS[name]
    function = {"name": name, "description": f"{name}.", "parameters": schema}
    tools = [{"type": "function", "function": function}]
    prompt = tokenizer.encode(tokenizer.render_chat([{"role": "user", "content": question}], tools))
    ends = [text for text, token_id in tokenizer.special_tokens.items() if token_id in model.eos_token_ids]
    source = build_grammar(
        DIALECTS[dialect], CallPolicy("required", (Tool(name, schema, strict=True),), parallel=False),
        special_tokens=tokenizer.special_tokens, end_tokens=ends, max_reasoning_tokens=0,
    )  # fmt: skip
    assert source is not None
    plain = measure(model, prompt, WithoutRuns(compiler.matcher(source)), min_run)
    runs = measure(model, prompt, compiler.matcher(source), min_run)
    same = runs.token_ids == plain.token_ids
    print(
        f"{name:14} {len(plain.token_ids):6} {plain.num_passes:7} {runs.num_passes:10} "
        f"{1 - runs.num_passes / plain.num_passes:6.0%} {runs.num_forced:7} "
        f"{plain.seconds:6.2f} {runs.seconds:6.2f}  {same}"
    )
    for written in dict.fromkeys(tokenizer.decode(run.token_ids) for run in (plain, runs)):
        print("   ", json.dumps(written, ensure_ascii=False))
    return {
        "tool": name, "tokens": len(plain.token_ids), "passes": plain.num_passes,
        "passes_with_runs": runs.num_passes, "forced": runs.num_forced, "same": same,
        "seconds": round(plain.seconds, 3), "seconds_with_runs": round(runs.seconds, 3),
    }  # fmt: skip


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--dtype", default="fp32")
    options.add_argument("--dialect", default="hermes")
    options.add_argument("--min-run", type=int, default=2)
    given = options.parse_args()
    folder = resolve(None).folder
    tokenizer = CheckpointTokenizer.from_folder(folder)
    titles = ("tokens", "passes", "with runs", "saved", "forced", "s", "with")
    print("{:14} {:>6} {:>7} {:>10} {:>6} {:>7} {:>6} {:>6}  same".format("tool", *titles))
    with loaded(folder, dtype=given.dtype, kv_bytes=128 << 20) as model:
        compiler = GrammarCompiler.from_folder(folder, model.vocab_size, model.eos_token_ids)
        results = [compare(model, compiler, tokenizer, given.dialect, name, given.min_run) for name in TOOLS]
    saved = 1 - sum(result["passes_with_runs"] for result in results) / sum(result["passes"] for result in results)
    all_same = all(result["same"] for result in results)
    print(json.dumps({
        "bench": "forced_runs", "dtype": given.dtype, "dialect": given.dialect, "saved": round(saved, 3),
        "same": all_same, "results": results,
    }))  # fmt: skip
    return 0 if all_same and saved >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
