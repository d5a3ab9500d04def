"""Rows that other processes follow write what they would write here, and one of those that ends takes only its own rows
with it. With real processes, over a small tokenizer."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from inference.engine import Engine
from inference.grammar.build import build_grammar
from inference.grammar.compile import GrammarCompiler
from inference.grammar.errors import GrammarError
from inference.grammar.policy import CallPolicy, JsonSchema, Tool
from inference.grammar.source import GrammarSource
from inference.mask_ledger import MaskJob
from inference.new_sequence import SchedulerLimits
from inference.paged_kv.block_pool import BlockPool
from inference.paged_kv.prefix_index import PrefixIndex
from inference.remote_grammars import GrammarProcesses
from inference.remote_masks import RemoteMasks
from inference.remote_matcher import RemoteMatcher
from inference.scheduler import Scheduler
from inference.shared_masks import word_of
from inference.step import StepBounds
from inference.types import SamplingParams, TurnRequest
from stream_parser.dialects import DIALECTS
from tests.testkit.paged_runner import PagedRunner
from tests.testkit.remote_kit import SPECIAL_TOKENS, RemoteRunner, grammar_processes, write_tokenizer

END = SPECIAL_TOKENS["<end>"]
_TEXT = {"type": "string", "maxLength": 12}
_FIELDS = {"name": _TEXT, "sea": {"enum": ["rain", "the sea"]}, "n": {"type": "integer"}}
_OBJECT = {"type": "object", "properties": _FIELDS, "required": ["name", "sea"], "additionalProperties": False}
_PATTERN = {"type": "string", "pattern": "^ra(in)+$", "maxLength": 20}
APART = StepBounds(prefills_apart=True, sizes=(3, 5, 8), longest_run=6, run_keys=100, masks_may_be_late=True)


def _answer(schema: object) -> GrammarSource:
    found = build_grammar(DIALECTS["plain"], CallPolicy(), JsonSchema(schema), max_reasoning_tokens=0)  # type: ignore[arg-type]
    assert found is not None
    return found


def _calls(mode: str) -> GrammarSource:
    found = build_grammar(
        DIALECTS["hermes"], CallPolicy(mode, (Tool("rain", _OBJECT, strict=True),)), special_tokens=SPECIAL_TOKENS,  # type: ignore[arg-type]
        end_tokens=["<end>"], max_reasoning_tokens=0,
    )  # fmt: skip
    assert found is not None
    return found


SOURCES = {
    "object": _answer(_OBJECT),
    "bounded text": _answer({"type": "string", "minLength": 3, "maxLength": 30}),
    "pattern": _answer({"type": "array", "items": _PATTERN, "maxItems": 3}),
    "long constant": _answer({"const": "the sea, " * 40}),
    "demanded call": _calls("required"),
    "call in free text": _calls("auto"),
    "no call": _calls("none"),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    found = tmp_path_factory.mktemp("tokenizer")
    return found, write_tokenizer(found)


@pytest.fixture(scope="module")
def compiler(folder: tuple[Path, int]) -> GrammarCompiler:
    return GrammarCompiler.from_folder(*folder, [END], num_replicas=2)


@pytest.fixture(scope="module")
def processes(folder: tuple[Path, int]) -> Iterator[GrammarProcesses]:
    with grammar_processes(*folder) as found:
        yield found


def _mask(masks: RemoteMasks, processes: GrammarProcesses, matcher: RemoteMatcher, position: int) -> tuple[bool, bytes]:
    masks.post([MaskJob(0, 7, position, matcher)])
    word = word_of(7, position, is_open=False)
    until = time.monotonic() + 20
    while int(processes.shared.posted[0]) | 1 != word | 1:
        assert time.monotonic() < until, "no mask came"
    while not matcher.has_mask:
        assert time.monotonic() < until, "nobody said that the mask is there"
    masks.post([])
    return int(processes.shared.posted[0]) == word, processes.shared.words[0].tobytes()


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("seed", range(3))
def test_a_matcher_elsewhere_answers_at_every_place_of_a_random_walk_as_one_here(
    name: str, seed: int, processes: GrammarProcesses, compiler: GrammarCompiler
) -> None:
    rng = random.Random(seed)
    here, there, masks = compiler.matcher(SOURCES[name]), processes.matcher(SOURCES[name]), RemoteMasks(processes)
    words, vocab_size = np.zeros(compiler.vocabulary.mask_words, np.int32), compiler.vocabulary.vocab_size
    opening = compiler.vocabulary.tokens_of(compiler.vocabulary.encode("<tool_call>", SPECIAL_TOKENS))
    for position in range(90):
        asks_first, wants_mask = rng.random() < 0.3, rng.random() < 0.7
        if asks_first:
            assert there.forced() == here.forced()
        words[:] = -1
        is_masked = here.mask(words)
        if wants_mask:
            assert _mask(masks, processes, there, position) == (is_masked, words.tobytes() if is_masked else
                                                                processes.shared.words[0].tobytes())  # fmt: skip
        assert (there.is_done, there.error) == (here.is_done, here.error)
        if here.is_done:
            break
        if wants_mask:
            assert there.lets_most_through in (False, here.lets_most_through)
            assert there.forced() == here.forced()[:2048]
        forced = here.forced()
        allowed = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")[:vocab_size]).tolist()
        token = forced[0] if forced else rng.choice(allowed)
        if name == "call in free text" and position == 5:
            token = opening[0]
        if rng.random() < 0.2:
            token = rng.randrange(vocab_size)
        if rng.random() < 0.5:
            there.expect(token)
        assert there.accept(token) == here.accept(token)
    assert there.is_done == here.is_done


class _Bench:
    """The scheduler and a runner without a model; turns by their names."""

    def __init__(
        self, vocab_size: int, processes: GrammarProcesses | None, seed: int = 0, *, num_blocks: int = 400,
        max_model_len: int = 600, **limits: int,
    ) -> None:  # fmt: skip
        args = (num_blocks, 4, vocab_size, APART, seed)
        runner = PagedRunner(*args) if processes is None else RemoteRunner.over(processes, *args)
        bounds = SchedulerLimits(8, 32, max_model_len, (END,), bounds=APART, **limits)  # type: ignore[arg-type]
        self.pool = BlockPool(num_blocks, 4, PrefixIndex())
        self.engine = Engine(Scheduler(self.pool, bounds), runner)
        self.tokens: dict[str, list[int]] = defaultdict(list)
        self.ends: dict[str, tuple[str, str | None]] = {}

    def step(self) -> None:
        for chunk in self.engine.step():
            self.tokens[chunk.turn_id] += chunk.token_ids
            if chunk.finish_reason is not None:
                self.ends[chunk.turn_id] = chunk.finish_reason, chunk.error

    def run(self) -> None:
        until = time.monotonic() + 60
        while self.engine.has_work:
            self.step()
            assert time.monotonic() < until, "the engine makes no progress"
        self.pool.check_integrity()
        assert self.pool.num_in_use == 0


@pytest.mark.parametrize("seed", range(4))
def test_turns_of_all_kinds_write_the_same_whoever_follows_them(
    seed: int, processes: GrammarProcesses, compiler: GrammarCompiler
) -> None:
    written = []
    for remote in (None, processes):
        rng = random.Random(seed)
        bench = _Bench(compiler.vocabulary.vocab_size, remote, seed, min_forced_run=2, max_guess=rng.choice([0, 4]))
        cancelled = set()
        for number in range(30):
            source = SOURCES[rng.choice(list(SOURCES))]
            make = compiler.matcher if remote is None else remote.matcher
            prompt, held = tuple(rng.randrange(3, 40) for _ in range(rng.randint(1, 30))), rng.random() < 0.8
            params = SamplingParams(max_tokens=rng.randint(1, 60), top_k=rng.choice([0, 0, 3]))
            bench.engine.submit(TurnRequest(f"t{number}", prompt, params), [make(source)] if held else [])
            for _ in range(rng.randint(0, 6)):
                bench.step()
            if rng.random() < 0.15:
                victim = f"t{rng.randrange(number + 1)}"
                bench.engine.cancel(victim)
                cancelled.add(victim)
        bench.run()
        written.append({name: (bench.tokens[name], bench.ends[name]) for name in bench.ends if name not in cancelled})
    for name in written[0].keys() & written[1].keys():
        assert written[0][name] == written[1][name]
    assert len(written[0].keys() & written[1].keys()) > 10


def test_long_runs_that_are_forced_for_many_rows_at_once_lose_nothing(folder: tuple[Path, int]) -> None:
    text = "".join(chr(97 + number % 7) for number in range(1500))
    with grammar_processes(*folder, count=1) as own:
        bench = _Bench(folder[1], own, num_blocks=4000, max_model_len=2000)
        for number in range(8):
            request = TurnRequest(f"t{number}", (1, 2, 3), SamplingParams(max_tokens=1900))
            bench.engine.submit(request, [own.matcher(_answer({"anyOf": [{"const": text}, {"const": "b" + text}]}))])
        bench.run()
    assert set(bench.ends.values()) == {("stop", None)}
    assert all(len(tokens) > 1000 for tokens in bench.tokens.values())


def test_a_process_that_ends_takes_its_own_turns_along_and_is_replaced(
    folder: tuple[Path, int], compiler: GrammarCompiler
) -> None:
    long = _answer({"type": "array", "items": _OBJECT, "minItems": 8, "maxItems": 8})
    with grammar_processes(*folder) as own:
        bench = _Bench(folder[1], own)
        for number in range(4):
            request = TurnRequest(f"t{number}", (1, 2, 3), SamplingParams(max_tokens=590))
            bench.engine.submit(request, [own.matcher(long)])
        while len(bench.tokens) < 4:
            bench.step()
        os.kill(own.all[0].pid, signal.SIGKILL)
        bench.run()
        outcomes = sorted(bench.ends.values(), key=str)
        assert outcomes.count(("stop", None)) == 2
        assert [reason for reason, error in outcomes if error and "process" in error] == ["error", "error"]
        bench = _Bench(folder[1], own)
        for number in range(4):
            bench.engine.submit(
                TurnRequest(f"t{number}", (1, 2, 3), SamplingParams(max_tokens=500)), [own.matcher(SOURCES["object"])]
            )
        bench.run()
        assert set(bench.ends.values()) == {("stop", None)}


def test_nobody_waits_for_a_process_that_does_not_answer_and_its_turns_lose_nothing(
    folder: tuple[Path, int], compiler: GrammarCompiler
) -> None:
    alone = _Bench(folder[1], None)
    request = TurnRequest("held", (1, 2), SamplingParams(max_tokens=500))
    alone.engine.submit(request, [compiler.matcher(SOURCES["object"])])
    alone.run()
    with grammar_processes(*folder) as own:
        bench = _Bench(folder[1], own)
        matchers = [own.matcher(SOURCES[name]) for name in ("object", "bounded text")]
        for name, held in (("held", matchers[:1]), ("other", matchers[1:]), ("free", [])):
            bench.engine.submit(TurnRequest(name, (1, 2), SamplingParams(max_tokens=500)), held)
        while not bench.tokens["held"]:
            bench.step()
        os.kill(matchers[0].process.pid, signal.SIGSTOP)
        try:
            until = time.monotonic() + 30
            while len(bench.ends) < 2:
                bench.step()
                assert time.monotonic() < until, "somebody waits"
        finally:
            os.kill(matchers[0].process.pid, signal.SIGCONT)
        assert "held" not in bench.ends
        bench.run()
    assert bench.tokens["held"] == alone.tokens["held"]


def test_a_grammar_that_cannot_be_compiled_is_refused_with_its_reason(processes: GrammarProcesses) -> None:
    source = GrammarSource(lark="start: %json {", special_tokens=())
    with pytest.raises(GrammarError, match="cannot be compiled"):
        processes.matcher(source)
    assert processes.matcher(SOURCES["object"]).error == ""


def test_processes_that_cannot_begin_are_said_to_be_at_fault_and_not_begun_for_ever(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with grammar_processes(tmp_path, 64) as own, pytest.raises(GrammarError, match="as soon as they begin"):
        own.matcher(SOURCES["object"])
    said = capfd.readouterr().err
    assert f"grammars cannot be followed: {tmp_path / 'tokenizer.json'}" in said
    assert "Traceback" not in said


def test_the_processes_end_when_the_engine_is_gone(folder: tuple[Path, int]) -> None:
    with grammar_processes(*folder) as own:
        pids = [process.pid for process in own.all]
        matchers = [own.matcher(SOURCES["object"]) for _ in range(4)]
        assert {matcher.process for matcher in matchers} == set(own.all)
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
