"""What the parser costs: microseconds a token for ten dialects, on content, reasoning and one long string argument.

Time is that of the processor, so neighbours on the machine do not count. Tokens of about four characters are fed one at a time, as an engine gives them. Each kind of text is timed at 500 and at
8,000 tokens: the cost a token must not grow with the length. Prints a table and, last, one JSON line.

    python tests/bench/parser.py [--dialects hermes,qwen3_coder] [--tokens 500,4000,8000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from stream_parser import DIALECTS, StreamParser, collect
from stream_parser.renderer import WrittenCall, render

TYPICAL = (
    "hermes", "qwen3_coder", "llama3_json", "mistral_v13", "deepseek_v31", "kimi_k2", "glm47", "gemma4", "gpt_oss",
    "minimax_m2",
)  # fmt: skip
TOOL = {
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
_WORDS = "the quick brown fox jumps over lazy dogs while seven wise owls watch quietly from old oak trees".split()
# Most to spend a token: on arguments, and on content and reasoning.
LIMITS_US = {"arguments": 6.0, "content": 3.0, "reasoning": 3.0}
MOST_GROWTH = 1.3


def main() -> None:
    args = _arguments()
    rows = []
    for name in args.dialects:
        for kind in ("content", "reasoning", "arguments"):
            costs = {count: _cost_us(name, kind, count, args.rounds) for count in args.tokens}
            if None not in costs.values():
                rows.append({"dialect": name, "kind": kind, "us": {str(n): round(us, 2) for n, us in costs.items()}})
    print(f"{'dialect':<14} {'kind':<10}" + "".join(f"{count:>9}" for count in args.tokens) + f"{'growth':>8}")
    for row in rows:
        values = list(row["us"].values())
        row["growth"] = round(values[-1] / values[0], 2)
        over = values[-1] > LIMITS_US[row["kind"]] or row["growth"] > MOST_GROWTH
        line = f"{row['dialect']:<14} {row['kind']:<10}" + "".join(f"{us:>9.2f}" for us in values)
        print(line + f"{row['growth']:>8.2f}" + ("  over the limit" if over else ""))
    print(json.dumps({"bench": "parser", "unit": "us a token", "rows": rows}))


def _cost_us(name: str, kind: str, num_tokens: int, rounds: int) -> float | None:
    """The best of some rounds; None where the dialect has no such kind of text."""
    dialect = DIALECTS[name]
    body = _text(num_tokens)
    if kind == "content":
        text, tail = body, ""
    elif kind == "reasoning":
        if not dialect.reasoning_open:
            return None
        text, tail = body, dialect.reasoning_open
    else:
        text, tail = render(dialect, calls=[WrittenCall("write_file", {"path": "a.txt", "text": body})]), ""
    tokens = [text[i : i + 4] for i in range(0, len(text), 4)]

    best_s = float("inf")
    for _ in range(rounds):
        parser = StreamParser(name, tools=[TOOL], prompt_tail=tail)
        events = []
        started = time.thread_time()
        for token in tokens:
            events += parser.feed(token)
        best_s = min(best_s, time.thread_time() - started)
        _check(kind, body, [*events, *parser.finish("stop")])
    return best_s / len(tokens) * 1e6


def _check(kind: str, body: str, events: list[object]) -> None:
    """A fast answer must also be the right one."""
    message = collect(events)
    if kind == "arguments":
        (call,) = message.tool_calls
        assert json.loads(call.arguments) == {"path": "a.txt", "text": body}
    else:
        assert getattr(message, kind) == body


def _text(num_tokens: int) -> str:
    rng = random.Random(num_tokens)
    words: list[str] = []
    length = 0
    while length < 4 * num_tokens:
        words.append(rng.choice(_WORDS))
        length += len(words[-1]) + 1
    return " ".join(words)[: 4 * num_tokens].rstrip()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dialects", type=lambda text: text.split(","), default=list(TYPICAL))
    parser.add_argument("--tokens", type=lambda text: [int(part) for part in text.split(",")], default=[500, 4000, 8000])
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
