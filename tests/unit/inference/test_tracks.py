"""Prefills that run beside decodes: no turn reads or writes what a step of the other track still uses, and nobody waits
for a mask. The runner runs the two tracks in any order that the plans allow."""

import json
import random
from collections import defaultdict

import pytest

from inference.engine import Engine
from inference.grammar.compile import GrammarCompiler
from inference.grammar.vocabulary import Vocabulary
from inference.new_sequence import SchedulerLimits
from inference.paged_kv.block_pool import BlockPool
from inference.paged_kv.prefix_index import PrefixIndex
from inference.scheduler import Scheduler
from inference.step import DECODES, PREFILLS, StepBounds
from inference.types import SamplingParams, TurnRequest
from tests.testkit.grammar_kit import schema_source
from tests.testkit.matchers import RandomMatcher
from tests.testkit.paged_runner import PagedRunner, best_of, expected_output

APART = StepBounds(
    prefills_apart=True, sizes=(3, 5, 8), longest_run=6, run_keys=100, masks_may_be_late=True
)
TOGETHER = StepBounds(longest_run=6, run_keys=100)


class Bench:
    def __init__(
        self, *, vocab_size=997, num_blocks=64, block_size=4, max_rows=8, max_step_tokens=32, bounds=APART, seed=0,
        max_model_len=80, **limits,
    ):  # fmt: skip
        self.vocab_size = vocab_size
        self.pool = BlockPool(num_blocks, block_size, PrefixIndex())
        self.runner = PagedRunner(num_blocks, block_size, vocab_size, bounds, seed)
        bound = SchedulerLimits(max_rows, max_step_tokens, max_model_len, (), bounds=bounds, **limits)
        self.engine = Engine(Scheduler(self.pool, bound), self.runner)
        self.tokens = defaultdict(list)

    def submit(self, turn_id, prompt, *, n=1, matchers=(), **params):
        self.engine.submit(TurnRequest(turn_id, tuple(prompt), SamplingParams(**params), n=n), matchers)

    def step(self):
        chunks = self.engine.step()
        for chunk in chunks:
            self.tokens[chunk.turn_id, chunk.choice] += chunk.token_ids
        self.pool.check_integrity()
        return chunks

    def run(self, limit=20_000):
        while self.engine.has_work:
            self.step()
            limit -= 1
            assert limit, "the engine makes no progress"
        assert self.pool.num_in_use == 0
        return self.engine.stats()


def test_decodes_go_on_while_a_prompt_is_prefilled():
    bench = Bench(max_step_tokens=8)
    bench.submit("talks", [1, 2, 3], max_tokens=60)
    while not bench.tokens["talks", 0]:
        bench.step()
    bench.submit("reads", list(range(70)), max_tokens=4)
    bench.runner.run_something = lambda: None  # no step ends before somebody waits for it
    said = len(bench.tokens["talks", 0])
    for _ in range(12):
        bench.runner.run_next(DECODES) if bench.engine._launched[DECODES] else None
        bench.step()
    tracks = [plan.track for plan in bench.runner.plans[-10:]]
    assert tracks.count(PREFILLS) <= 2, "at most two chunks are on their way"
    assert len(bench.tokens["talks", 0]) > said + 5
    assert not bench.tokens["reads", 0]


def test_a_turn_alone_is_decoded_behind_its_prefill_without_waiting_for_its_token():
    bench = Bench()
    bench.submit("a", [1, 2, 3], max_tokens=5)
    assert bench.step() == []
    assert [(plan.track, plan.follows) for plan in bench.runner.plans] == [(PREFILLS, False), (DECODES, True)]
    bench.run()
    assert bench.tokens["a", 0] == expected_output([1, 2, 3], 5, 997)


def test_a_turn_that_has_company_decodes_when_its_prefill_is_done():
    bench = Bench()
    bench.submit("a", [1, 2, 3], max_tokens=40)
    for _ in range(6):
        bench.step()
    num_alone = len(bench.runner.plans)
    bench.submit("b", [4, 5, 6], max_tokens=20)
    bench.run()
    assert not any(plan.follows for plan in bench.runner.plans[num_alone:] if plan.track == DECODES)
    assert bench.tokens["b", 0] == expected_output([4, 5, 6], 20, 997)


@pytest.mark.parametrize("apart", [True, False])
def test_two_long_prompts_that_fit_only_one_after_the_other_are_both_read(apart):
    """Each was let in when there was room for it, and then nobody decodes who could make room for either."""
    bounds = APART if apart else StepBounds()
    bench = Bench(num_blocks=11, block_size=4, max_step_tokens=4, bounds=bounds)
    bench.submit("a", list(range(32)), max_tokens=3)
    bench.step()
    bench.submit("b", list(range(100, 124)), max_tokens=3)
    bench.run()
    assert bench.tokens["a", 0] == expected_output(list(range(32)), 3, 997)
    assert bench.tokens["b", 0] == expected_output(list(range(100, 124)), 3, 997)


def _held(prompt, seed, length, vocab_size):
    """What a turn held by RandomMatcher(seed, length) must write: sampled among what is allowed, or forced."""
    matcher = RandomMatcher(seed, length, vocab_size)
    history = list(prompt)
    for place in range(length):
        history.append(best_of(history, matcher.allowed(place)))
    return history[len(prompt) :]


@pytest.mark.parametrize("bounds", [APART, TOGETHER], ids=["apart", "together"])
@pytest.mark.parametrize("seed", range(30))
def test_random_traffic_of_all_kinds_is_what_each_turn_would_write_alone(seed, bounds):
    rng = random.Random(seed)
    vocab_size = rng.choice([9, 12, 997])
    bench = Bench(
        vocab_size=vocab_size, bounds=bounds, num_blocks=rng.randint(58, 80), block_size=rng.choice([1, 2, 4, 8]),
        seed=seed, max_rows=rng.randint(1, 8), max_step_tokens=rng.randint(8, 40), max_guess=rng.choice([0, 5]),
        min_forced_run=rng.choice([1, 2, 3]), long_prompt=8, long_prompt_chunk=5,
    )  # fmt: skip
    expected, cancelled = {}, set()
    for number in range(60):
        turn_id = f"t{number}"
        prompt = [rng.randrange(3) for _ in range(rng.randint(1, 30))]
        count = rng.randint(1, 25)
        if rng.random() < 0.4:
            skips_masks, answers_late = rng.random() < 0.4, bounds.masks_may_be_late and rng.random() < 0.5
            matchers = [RandomMatcher(number, count, vocab_size, skips_masks=skips_masks, answers_late=answers_late)]
            matchers[0].writes_text = rng.random() < 0.3
            special = {"top_k": 3} if rng.random() < 0.3 else {}
            bench.submit(turn_id, prompt, matchers=matchers, max_tokens=count, **special)
            expected[turn_id, 0] = _held(prompt, number, count, vocab_size)
        else:
            choices = rng.choice([1, 1, 1, 3])
            bench.submit(turn_id, prompt, n=choices, max_tokens=count)
            for choice in range(choices):
                expected[turn_id, choice] = expected_output(prompt, count, vocab_size)
        for _ in range(rng.randint(0, 9)):
            bench.step()
        if rng.random() < 0.2:
            victim = f"t{rng.randrange(number + 1)}"
            bench.engine.cancel(victim)
            cancelled.add(victim)
    stats = bench.run()
    for (turn_id, choice), tokens in expected.items():
        got = bench.tokens[turn_id, choice]
        assert got == (tokens[: len(got)] if turn_id in cancelled else tokens), (turn_id, choice)
    assert stats.num_late_masks <= bench.runner.num_late


class _AlwaysMasked:
    """The same matcher, but for what it says of masks that could be left out."""

    lets_most_through = False

    def __init__(self, inner):
        self._inner = inner

    def __getattr__(self, name):
        return getattr(self._inner, name)


def test_text_is_drawn_without_masks_and_a_wrong_token_again_with_the_same_outcome():
    words = [b"rain", b" of", b" Oslo", b"the sea ", b" and so on and on", b"a word of some thirty characters"]
    tokens = [b"<end>", *(bytes([byte]) for byte in range(256)), *words, *(2 * word for word in words)]
    vocabulary = Vocabulary.from_token_bytes(tokens, len(tokens), [0], [0])
    compiler = GrammarCompiler(vocabulary)
    text = {"type": "string", "minLength": 30, "maxLength": 90}
    source = schema_source({"type": "array", "items": text, "minItems": 3, "maxItems": 3})
    written, stats = [], []
    for wrapped in (_AlwaysMasked, lambda matcher: matcher):
        bench = Bench(vocab_size=len(tokens), num_blocks=200, max_rows=4, max_model_len=400)
        for number in range(4):
            matchers = [wrapped(compiler.matcher(source))]
            bench.submit(f"t{number}", [number], matchers=matchers, max_tokens=390)
        stats.append(bench.run())
        written.append(dict(bench.tokens))
        assert all(len(json.loads(b"".join(map(vocabulary.bytes_of, ids)))) == 3 for ids in bench.tokens.values())
    assert written[0] == written[1]
    assert stats[0].num_redrawn_tokens == 0
    # Of each turn once or twice: for a while after, its tokens are drawn with their masks.
    assert 0 < stats[1].num_redrawn_tokens <= 8


class _NeverMasked(RandomMatcher):
    """Two tokens may come everywhere, and nobody has heard that its masks are there."""

    has_mask = False

    def allowed(self, place):
        return [3, 4]


@pytest.mark.parametrize("is_text", [False, True])
def test_nothing_is_guessed_while_a_mask_is_made_but_in_text_none_is_asked_for(is_text):
    written, stats = [], []
    for max_guess in (0, 5):
        bench = Bench(vocab_size=5, max_guess=max_guess)
        matcher = _NeverMasked(1, 70, 5)
        matcher.writes_text = is_text
        bench.submit("a", [1, 2], matchers=[matcher], max_tokens=70)
        stats.append(bench.run())
        written.append(bench.tokens["a", 0])
    assert written[0] == written[1]
    assert len(written[0]) == 70
    assert (stats[1].num_guessed_tokens > 0) == is_text
