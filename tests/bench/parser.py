"""What the parser costs a token, fed a token at a time: arguments, content and reasoning of typical dialects.

    python tests/bench/parser.py [--dialect NAME] [--repeat N]

Prints a table in microseconds a token at 500 and at 8,000 tokens, and last one JSON line. A token is four characters.
The least of `--repeat` runs is told: the machine's other work is no cost of the parser. Exits with 1 where a cost is
above its bound (6 us for arguments, 3 us for text) or grows with the length (by more than 1.3 x).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from stream_parser import DIALECTS, StreamParser
from stream_parser.renderer import WrittenCall, render

MAX_ARGUMENTS_US, MAX_TEXT_US, MAX_GROWTH = 6.0, 3.0, 1.3
SHORT, LONG = 500, 8000
MARK = "@@@@"
PROSE = "for item in list_of(things): do_the_work(item, 3) and a bit more of this; value = compute + other "
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "write_file",
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string"}, "text": {"type": "string"}},
                "required": ["path", "text"],
            },
        },
    }
]
TYPICAL = (
    "hermes", "qwen3_coder", "llama3_json", "mistral_v13", "deepseek_v31", "kimi_k2", "glm47", "gemma4", "harmony",
    "minimax_m2", "minimax_m3", "pythonic", "deepseek_v4",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cost:
    dialect: str
    stream: str
    short_us: float
    long_us: float

    @property
    def is_within(self) -> bool:
        bound = MAX_ARGUMENTS_US if self.stream == "arguments" else MAX_TEXT_US
        return self.long_us <= bound and self.long_us <= MAX_GROWTH * self.short_us


def tokens(count: int) -> list[str]:
    pieces = [PROSE[at : at + 4] for at in range(0, len(PROSE), 4)]
    return [pieces[n % len(pieces)] for n in range(count)]


def streams(name: str) -> dict[str, tuple[str, str]]:
    """What stands before each long stretch of text, and the prompt's end."""
    dialect = DIALECTS[name]
    call = render(dialect, calls=[WrittenCall("write_file", {"path": "a", "text": MARK})])
    found = {"arguments": (call.split(MARK)[0], ""), "content": ("", "")}
    if dialect.messages:
        found["content"] = (render(dialect, content=MARK).split(MARK)[0], "")
    if dialect.reasoning_open:
        found["reasoning"] = ("", dialect.reasoning_open)
    return found


def time_us(name: str, head: str, prompt_tail: str, count: int) -> float:
    parser = StreamParser(name, TOOLS, prompt_tail)
    parser.feed(head)
    feed, pieces = parser.feed, tokens(count)
    start = time.perf_counter()
    for piece in pieces:
        feed(piece)
    spent = time.perf_counter() - start
    parser.finish("length")
    return spent / count * 1e6


def measure(name: str, repeat: int) -> list[Cost]:
    costs = []
    for stream, (head, tail) in streams(name).items():
        short = min(time_us(name, head, tail, SHORT) for _ in range(repeat * 4))
        long = min(time_us(name, head, tail, LONG) for _ in range(repeat))
        costs.append(Cost(name, stream, round(short, 2), round(long, 2)))
    return costs


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--dialect", choices=sorted(DIALECTS))
    arguments.add_argument("--repeat", type=int, default=5)
    options = arguments.parse_args()

    costs: list[Cost] = []
    print(f"{'dialect':14}{'stream':12}{f'{SHORT} tokens':>14}{f'{LONG} tokens':>14}   us a token")
    for name in [options.dialect] if options.dialect else TYPICAL:
        for cost in measure(name, options.repeat):
            costs.append(cost)
            note = "" if cost.is_within else "   above its bound"
            print(f"{cost.dialect:14}{cost.stream:12}{cost.short_us:14.2f}{cost.long_us:14.2f}{note}")
    print(json.dumps({f"{c.dialect}.{c.stream}": [c.short_us, c.long_us] for c in costs}))
    return 0 if all(cost.is_within for cost in costs) else 1


if __name__ == "__main__":
    sys.exit(main())
