"""Random text through every dialect: nothing raises, the promises hold, and the cut does not matter.

    python -m tests.soak.fuzz_parser --seconds 600 [--seed N] [--dialect NAME]

Text is put together from the dialect's own markers and headers, those of others, JSON, prose, odd characters and lone
surrogates. Prints the first text that breaks a promise, with the seed that repeats it, and exits with 1.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence

from stream_parser.dialect import Dialect
from stream_parser.dialects import DETECTION_ORDER
from stream_parser.events import FinishReason, collect
from stream_parser.patterns import plain
from stream_parser.renderer import WrittenCall, render
from tests.testkit.parser_streams import comparable, parse, random_pieces, tool

TOOLS = [
    tool(
        "put_note",
        text={"type": "string"},
        level={"type": "integer"},
        tags={"type": "array", "items": {"type": "string"}},
    ),
    tool("ping", host={"type": "string"}),
    tool("bare"),
]
CALLS = [
    WrittenCall("put_note", {"text": 'a "b" <c>\nd', "level": 3, "tags": ["x", "y z"]}),
    WrittenCall("ping", {"host": "db-1"}),
    WrittenCall("bare", {}),
    WrittenCall("unknown", {"q": None}),
]
SCRAPS = [
    "text",
    " ",
    "\n",
    "\n\n",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    '"',
    "'",
    "\\",
    "\\n",
    ":",
    ",",
    ";",
    "=",
    "<",
    ">",
    "</",
    "|",
    "put_note",
    "ping",
    "name",
    "arguments",
    '"name": "ping"',
    '"arguments": {',
    '{"name": "put_note", "arguments": {"text": "',
    'ping(host="',
    "put_note(",
    "true",
    "None",
    "null",
    "1e400",
    "-0",
    "007",
    "é",
    "🙂",
    "\ud83d",
    "\ude42",
    "\x00",
    "\u2028",
    "```",
    "```json\n",
    "functions.ping:0",
    " to=functions.ping",
    "to=self",
    "call:ping{",
    "text",
    "level",
    "host",
]
REASONS: tuple[FinishReason, ...] = ("stop", "length", "tool_calls", "cancelled", "error")


def markers_of(dialect: Dialect) -> list[str]:
    spans = (*dialect.reasoning, *dialect.answer, *dialect.sections)
    found = [m for span in spans for m in (*span.opens, *span.closes, *span.bare_opens)]
    found += [m for call in dialect.calls for m in (*call.opens, *call.tails, *call.closes)]
    found += [head.replace("{name}", "ping") for call in dialect.calls for head in call.heads]
    found += [m for call in dialect.calls for m in getattr(call.body, "params", ())]
    found += [m for call in dialect.calls for m in getattr(call.body, "closes", ())]
    if dialect.messages:
        found += [*dialect.messages.starts, *dialect.messages.ends, dialect.messages.message, *dialect.messages.tokens]
        found += [route.render.replace("{name}", "ping") for route in dialect.messages.routes]
    found += [*dialect.drop, *dialect.noise, *dialect.special]
    return [plain(m).replace("{key}", "text").replace("{type}", "string") for m in found if m]


OWN = {dialect.name: markers_of(dialect) for dialect in DETECTION_ORDER}
ALL = sorted({marker for markers in OWN.values() for marker in markers})


def random_text(dialect: Dialect, rng: random.Random) -> str:
    own = OWN[dialect.name] or ALL
    parts: list[str] = []
    for _ in range(rng.randint(1, 14)):
        kind = rng.random()
        if kind < 0.45:
            parts.append(rng.choice(own))
        elif kind < 0.55:
            parts.append(rng.choice(ALL))
        elif kind < 0.65 and (dialect.calls or dialect.messages):
            written = render(dialect, calls=[rng.choice(CALLS) for _ in range(rng.randint(1, 2))])
            start, end = sorted((rng.randint(0, len(written)), rng.randint(0, len(written))))
            parts.append(written if rng.random() < 0.5 else written[start:end])
        elif kind < 0.68:
            parts.append(rng.choice(own)[: rng.randint(0, 12)])
        else:
            parts.append(rng.choice(SCRAPS))
    return "".join(parts)


def check(dialect: Dialect, text: str, tail: str, reason: FinishReason, rng: random.Random) -> None:
    tools = rng.choice((TOOLS, TOOLS, TOOLS, [], None))
    whole = comparable(collect(parse(dialect, [text], tools, reason, tail)))
    for pieces in (list(text), random_pieces(text, rng)):
        cut = comparable(collect(parse(dialect, pieces, tools, reason, tail)))
        assert cut == whole, f"the cut matters: {pieces!r}\n  {cut}\n  {whole}"


def fuzz(dialects: Sequence[Dialect], seconds: float, seed: int) -> int:
    """Returns how many texts were read. Raises what the first bad one raised, with its seed in a note."""
    deadline = time.monotonic() + seconds
    count = 0
    while time.monotonic() < deadline:
        rng = random.Random(seed + count)
        dialect = rng.choice(dialects)
        text = random_text(dialect, rng)
        tail = random_text(dialect, rng) if rng.random() < 0.3 else ""
        reason = rng.choice(REASONS)
        try:
            check(dialect, text, tail, reason, rng)
        except Exception as error:
            error.add_note(f"seed {seed + count}, {dialect.name}, {reason}, prompt {tail!r}, text {text!r}")
            raise
        count += 1
    return count


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=float, default=600)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--dialect")
    options = arguments.parse_args()
    dialects = [d for d in DETECTION_ORDER if options.dialect in (None, d.name)]
    count = fuzz(dialects, options.seconds, options.seed)
    print(f"{count} texts in {options.seconds:g} s, no promise broken")
    return 0


if __name__ == "__main__":
    sys.exit(main())
