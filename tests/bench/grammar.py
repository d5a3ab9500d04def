"""What constrained decoding costs the host: compile times of varied schemas, and masks a step at 4 to 32 rows.

    python tests/bench/grammar.py [--tokenizer TOKENIZER.json ...] [--rows 4 8 16 32]

Without --tokenizer, the default model's. Prints tables for llguidance, which we use, and for xgrammar where it can be
imported (install it beside the environment and set PYTHONPATH), and last one JSON line. Rows stand at different places
of the same texts, as a batch of requests does; a step is one mask for each row, one after another, and one token
accepted. Beside a device's engine there are up to four processes that each do so for their share of the rows. In `one`
steps all rows are under one grammar. A `token` is what the host does with one beside its mask: it is accepted, and then
the matcher is asked whether it is done, in error, or forced.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np

from inference.grammar.build import build_grammar
from inference.grammar.compile import GrammarCompiler
from inference.grammar.errors import GrammarError
from inference.grammar.policy import CallPolicy, JsonSchema
from inference.grammar.vocabulary import Vocabulary
from inference.models import resolve
from stream_parser.dialects import DIALECTS

STRING, INTEGER = {"type": "string"}, {"type": "integer"}


def record(required: Sequence[str], **properties: object) -> dict[str, Any]:
    return {
        "type": "object", "properties": properties, "required": list(required), "additionalProperties": False,
    }  # fmt: skip


TREE = record(["id"], id=INTEGER, kids={"type": "array", "items": {"$ref": "#/$defs/tree"}})
CASES: dict[str, tuple[dict[str, Any], object]] = {
    "weather": (
        record(["city"], city=STRING, days=INTEGER, units={"enum": ["metric", "imperial"]}),
        {"city": "Oslo, where it rains for most of the year", "days": 3, "units": "metric"},
    ),
    "nested": (
        record(
            ["user"],
            user=record(["name"], name=STRING, tags={"type": "array", "items": STRING}, on={"type": "boolean"}),
        ),
        {"user": {"name": "Ada Lovelace", "tags": ["first", "second of them", "third"], "on": True}},
    ),
    "formats": (
        record(["at"], at={"type": "string", "format": "date-time"}, mail={"type": "string", "format": "email"}),
        {"at": "2026-11-30T10:00:00Z", "mail": "ada.lovelace@example.org"},
    ),
    "pattern": (
        record(["code"], code={"type": "string", "pattern": "^[A-Z]{2}-[0-9]{4,8}$"}, note=STRING),
        {"code": "AB-123456", "note": "to be sent on Monday morning, not before nine"},
    ),
    "ranges": (
        record(
            ["a"],
            a={"type": "integer", "minimum": 1, "maximum": 366},
            b={"type": "number", "minimum": 0.5, "maximum": 2},
        ),
        {"a": 120, "b": 1.25},
    ),
    "recursive": (
        TREE | {"$defs": {"tree": TREE}},
        {"id": 1, "kids": [{"id": 2, "kids": [{"id": 3}]}, {"id": 4, "kids": []}]},
    ),
    "anyOf": (
        record(["v"], v={"anyOf": [INTEGER, STRING, record(["k"], k=STRING), {"type": "array", "items": INTEGER}]}),
        {"v": {"k": "a text in one of four kinds of value"}},
    ),
    "free": ({"type": "object"}, {"a": [1, {"b": "any value at all"}], "c": None, "d": 2.5}),
    "40 optional": (
        record([], **{f"field_{i}": STRING for i in range(40)}),
        {f"field_{i}": "some text" for i in range(0, 40, 5)},
    ),
    "10,000 enum": ({"enum": [f"value {i * 7919 % 100_003}" for i in range(10_000)]}, "value 7919"),
    "60 levels": (
        json.loads('{"type": "object", "properties": {"a": ' * 60 + "{}" + "}}" * 60),
        {"a": {"a": {"a": {}}}},
    ),
    "catastrophic": ({"type": "string", "pattern": "^(a|a?)+$"}, "aaaaaaaaaaaaaaaa"),
    "exponential": (
        {"allOf": [{"anyOf": [record([], **{f"p{i}{j}": STRING}) for j in range(4)]} for i in range(12)]},
        {},
    ),
    "look-around": ({"type": "string", "pattern": "^(?!x).*$"}, "abc"),
}
HOSTILE = ("10,000 enum", "60 levels", "catastrophic", "exponential", "look-around")


@dataclass(frozen=True, slots=True)
class Spread:
    mean_us: float
    p50_us: float
    p99_us: float
    max_us: float

    @classmethod
    def of(cls, times_s: Sequence[float]) -> Spread:
        ordered = sorted(times_s)
        near_last = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
        found = (statistics.fmean(ordered), statistics.median(ordered), near_last, ordered[-1])
        return cls(*(round(1e6 * time_s, 1) for time_s in found))


def timed(work: Callable[[], object]) -> tuple[float, object]:
    begun_s = time.perf_counter()
    result = work()
    return time.perf_counter() - begun_s, result


class OurGrammars:
    """llguidance behind our own seam."""

    name = "llguidance"

    def __init__(self, tokenizer: Path) -> None:
        text = tokenizer.read_text()
        config = json.loads(text)
        highest = max([*config["model"]["vocab"].values(), *(t["id"] for t in config["added_tokens"])])
        self.vocab_size = (highest + 1 + 127) // 128 * 128
        end = next(t["id"] for t in config["added_tokens"] if t["content"] in ("<|im_end|>", "<|endoftext|>"))
        self.setup_s, vocabulary = timed(lambda: Vocabulary.from_tokenizer_json(text, self.vocab_size, [end]))
        assert isinstance(vocabulary, Vocabulary)
        self.compiler = GrammarCompiler(vocabulary)
        self.tokenizer = vocabulary.tokenizer

    def compile(self, schema: dict[str, Any]) -> Any:
        source = build_grammar(DIALECTS["plain"], CallPolicy(), JsonSchema(schema), max_reasoning_tokens=0)
        assert source is not None
        self.compiler.check(source, 20)
        return source

    def matcher(self, source: Any) -> Any:
        return self.compiler.matcher(source)

    def masks(self, num_rows: int) -> np.ndarray[Any, Any]:
        return np.zeros((num_rows, (self.vocab_size + 31) // 32), dtype=np.int32)

    def fill(self, matcher: Any, masks: Any, row: int) -> None:
        matcher.mask(masks[row])

    def accept(self, matcher: Any, token_id: int) -> bool:
        return bool(matcher.accept(token_id))

    def follow(self, matcher: Any, token_id: int) -> None:
        assert matcher.accept(token_id)
        assert not matcher.error
        if not matcher.is_done:
            matcher.forced()


class XGrammars:
    """xgrammar, for comparison; with its own JSON Schema converter."""

    name = "xgrammar"

    def __init__(self, tokenizer: Path, vocab_size: int) -> None:
        import xgrammar
        from transformers import PreTrainedTokenizerFast

        self._xgrammar = xgrammar
        hugging = PreTrainedTokenizerFast(tokenizer_file=str(tokenizer))
        self.setup_s, info = timed(lambda: xgrammar.TokenizerInfo.from_huggingface(hugging, vocab_size=vocab_size))
        self._compiler = xgrammar.GrammarCompiler(info)
        self.vocab_size = vocab_size

    def compile(self, schema: dict[str, Any]) -> Any:
        return self._compiler.compile_json_schema(
            json.dumps(schema), any_whitespace=False, separators=(", ", ": "), strict_mode=False
        )

    def matcher(self, compiled: Any) -> Any:
        return self._xgrammar.GrammarMatcher(compiled)

    def masks(self, num_rows: int) -> Any:
        return self._xgrammar.allocate_token_bitmask(num_rows, self.vocab_size)

    def fill(self, matcher: Any, masks: Any, row: int) -> None:
        matcher.fill_next_token_bitmask(masks, row)

    def accept(self, matcher: Any, token_id: int) -> bool:
        return bool(matcher.accept_token(token_id))

    def follow(self, matcher: Any, token_id: int) -> None:
        assert matcher.accept_token(token_id)
        if not matcher.is_terminated():
            matcher.find_jump_forward_string()


def compile_all(library: Any) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """What could be compiled, and for each schema its time, or why it was refused."""
    compiled, report = {}, {}
    for name, (schema, _) in CASES.items():
        begun_s = time.perf_counter()
        refusal = ""
        try:
            compiled[name] = library.compile(schema)
        except (GrammarError, RuntimeError, ValueError) as error:
            refusal = str(error).splitlines()[0][:90]
        report[name] = {"ms": round(1e3 * (time.perf_counter() - begun_s), 2), "refused": refusal}
        print(f"  {name:14} {report[name]['ms']:9.2f} ms  {refusal}")
    return compiled, report


def steps(library: Any, compiled: dict[str, Any], texts: dict[str, list[int]], num_rows: int) -> Spread:
    """Times of whole steps; each row begins its text anew when it ends, and rows begin at different places."""
    names = list(compiled)
    rows = [(name, library.matcher(compiled[name]), 0) for name in (names * num_rows)[:num_rows]]
    for index, (name, matcher, _) in enumerate(rows):
        skipped = index % max(len(texts[name]) - 1, 1)
        assert all(library.accept(matcher, token) for token in texts[name][:skipped])
        rows[index] = (name, matcher, skipped)
    masks, times_s = library.masks(num_rows), []
    gc.disable()
    for _ in range(400):
        matchers = [matcher for _, matcher, _ in rows]
        begun_s = time.perf_counter()
        for row, matcher in enumerate(matchers):
            library.fill(matcher, masks, row)
        times_s.append(time.perf_counter() - begun_s)
        for index, (name, matcher, at) in enumerate(rows):
            library.accept(matcher, texts[name][at])
            done = at + 1 == len(texts[name])
            rows[index] = (name, library.matcher(compiled[name]), 0) if done else (name, matcher, at + 1)
    gc.enable()
    return Spread.of(times_s)


def single_masks(library: Any, compiled: dict[str, Any], texts: dict[str, list[int]]) -> Spread:
    """Times of one mask, along all texts."""
    masks, times_s = library.masks(1), []
    for name in (name for name in compiled if name not in HOSTILE):
        for _ in range(3):
            matcher = library.matcher(compiled[name])
            for token in texts[name]:
                times_s.append(timed(lambda m=matcher: library.fill(m, masks, 0))[0])  # type: ignore[misc]
                assert library.accept(matcher, token), (library.name, name)
    return Spread.of(times_s)


def single_tokens(library: Any, compiled: dict[str, Any], texts: dict[str, list[int]]) -> Spread:
    """Times of what is done with a token, along all texts; masks come between, as they do in a batch."""
    masks, times_s = library.masks(1), []
    for name in (name for name in compiled if name not in HOSTILE):
        for _ in range(5):
            matcher = library.matcher(compiled[name])
            for token in texts[name]:
                library.fill(matcher, masks, 0)
                times_s.append(timed(lambda m=matcher, t=token: library.follow(m, t))[0])  # type: ignore[misc]
    return Spread.of(times_s)


def measure(library: Any, texts: dict[str, list[int]], num_rows: Sequence[int]) -> dict[str, Any]:
    print(f"{library.name}, {library.vocab_size} tokens, ready in {library.setup_s:.2f} s")
    compiled, report = compile_all(library)
    found: dict[str, Any] = {"setup_s": round(library.setup_s, 3), "compile": report}
    found["mask"] = asdict(single_masks(library, compiled, texts))
    found["token"] = asdict(single_tokens(library, compiled, texts))
    usual = {name: grammar for name, grammar in compiled.items() if name not in HOSTILE}
    for rows in num_rows:
        for kind, grammars in (("step", usual), ("one", {"nested": usual["nested"]})):
            found[f"{kind}_{rows}"] = asdict(steps(library, grammars, texts, rows))
    for kind in (key for key in found if key.startswith(("mask", "token", "step", "one"))):
        spread = found[kind]
        shown = f"mean {spread['mean_us']:8.1f}  p50 {spread['p50_us']:8.1f}"
        print(f"  {kind:16} {shown}  p99 {spread['p99_us']:8.1f}  max {spread['max_us']:8.1f} us")
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--tokenizer", type=Path, nargs="*")
    options.add_argument("--rows", type=int, nargs="*", default=[4, 8, 16, 32])
    given = options.parse_args()
    results = []
    for path in given.tokenizer or [resolve(None).folder / "tokenizer.json"]:
        ours = OurGrammars(path)
        texts = {
            name: ours.tokenizer.tokenize_str(json.dumps(value, ensure_ascii=False))
            for name, (_, value) in CASES.items()
        }
        libraries: list[Any] = [ours]
        if importlib.util.find_spec("xgrammar"):
            libraries.append(XGrammars(path, ours.vocab_size))
        for library in libraries:
            found = measure(library, texts, given.rows)
            results.append({"library": library.name, "vocab_size": library.vocab_size, **found})
    print(json.dumps({"bench": "grammar", "results": results}))


if __name__ == "__main__":
    main()
