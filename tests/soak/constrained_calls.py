"""A thousand calls that the default model samples at temperature 1.5 under its grammar: each parses, and is valid.

    python -m tests.soak.constrained_calls [--dialects hermes ...] [--tools get_time ...] [--rounds 1] [--dtype int8]

Forty schemas in five syntaxes, in batches of 16 on an engine in this process, under `required`, a named tool, `auto`
with strict tools, and `none`. Prints what was wrong as it happens, a table, and last one JSON line; exits with 1 if
anything was. How often the model calls with no grammar at all is told beside it: otherwise `none` would prove nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence

from tqdm import tqdm

from tests.testkit.call_schemas import CALL_SCHEMAS
from tests.testkit.sampled_calls import ALWAYS_CALL, UNWRITABLE, Answer, Case, Mode, call_sampler

# A codec each: JSON, tags, Python, lax objects with string delimiters, elements.
SYNTAXES = ("hermes", "qwen3_coder", "pythonic", "gemma4", "minimax_m3")
_MODES: tuple[Mode, ...] = ("required", "required", "named", "opened", "none")
_FREE_MODES: tuple[Mode, ...] = ("example", "unheld")


def cases(dialects: Sequence[str], tools: Sequence[str], rounds: int, temperature: float) -> Iterator[Case]:
    """By tool, so that the prompts of what runs together begin alike."""
    for number, tool in enumerate(tools):
        for place in range(rounds * len(_MODES)):
            for dialect in dialects:
                if (dialect, tool) not in UNWRITABLE:
                    yield Case(dialect, tool, _MODES[place % len(_MODES)], 1000 * number + place, temperature)
        dialect = dialects[number % len(dialects)]
        if (dialect, tool) not in UNWRITABLE:
            # Cooler: this is about what the model would like to do.
            yield from (Case(dialect, tool, mode, number, 0.7) for mode in (*_FREE_MODES, "none"))


class Tally:
    def __init__(self) -> None:
        self.num_rows: Counter[Mode] = Counter()
        self.num_calls: Counter[Mode] = Counter()
        self.num_calling: Counter[Mode] = Counter()
        self.by_dialect: Counter[str] = Counter()
        self.problems: Counter[str] = Counter()
        self.num_tokens = 0

    def add(self, answer: Answer) -> None:
        mode = answer.case.mode
        self.num_rows[mode] += 1
        self.num_calls[mode] += answer.num_calls
        self.num_calling[mode] += answer.num_calls > 0
        self.num_tokens += answer.num_tokens
        if mode != "unheld":
            self.by_dialect[answer.case.dialect] += answer.num_calls
        if answer.problem:
            self.problems[answer.problem] += 1

    @property
    def num_checked(self) -> int:
        return sum(count for mode, count in self.num_calls.items() if mode != "unheld")

    def table(self) -> str:
        lines = [f"{'policy':10} {'turns':>6} {'calling':>8} {'calls':>6}"]
        lines += [
            f"{mode:10} {count:6} {self.num_calling[mode]:8} {self.num_calls[mode]:6}"
            for mode, count in self.num_rows.items()
        ]
        return "\n".join([*lines, *(f"WRONG: {problem}: {count}" for problem, count in self.problems.items())])


def is_proof(tally: Tally) -> bool:
    """Without a failure, and not for want of trying."""
    always = all(tally.num_calling[mode] == tally.num_rows[mode] > 0 for mode in ALWAYS_CALL)
    return always and not tally.problems and tally.num_rows["none"] > 0 and tally.num_calls["none"] == 0


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--dialects", nargs="+", default=list(SYNTAXES))
    options.add_argument("--tools", nargs="+", default=list(CALL_SCHEMAS))
    options.add_argument("--rounds", type=int, default=1)
    options.add_argument("--dtype", default="int8")
    options.add_argument("--temperature", type=float, default=1.5)
    given = options.parse_args()
    tally, begun_s = Tally(), time.monotonic()
    wanted = list(cases(given.dialects, given.tools, given.rounds, given.temperature))
    with call_sampler(given.dtype) as sampler, tqdm(total=len(wanted), unit="turn") as bar:
        for answer in sampler.run(wanted):
            tally.add(answer)
            bar.update()
            bar.set_postfix(calls=tally.num_checked, wrong=tally.problems.total())
            if answer.problem:
                bar.write(f"{answer.problem} ({answer.detail:.300}): {answer.case}\n  {answer.text!r}")
        stats = sampler.engine.engine.stats()

    print(tally.table())
    summary = {
        "soak": "constrained_calls", "dtype": given.dtype, "temperature": given.temperature,
        "schemas": len(given.tools), "calls": tally.num_checked, "calls_by_dialect": tally.by_dialect,
        "turns": tally.num_rows, "turns_with_calls": tally.num_calling, "problems": tally.problems,
        "tokens": tally.num_tokens, "forced_tokens": stats.num_forced_tokens, "steps": stats.num_steps,
        "mask_s": round(stats.mask_s, 3), "seconds": round(time.monotonic() - begun_s, 1),
    }  # fmt: skip
    print(json.dumps(summary))
    return 0 if is_proof(tally) else 1


if __name__ == "__main__":
    sys.exit(main())
