"""Guessing a turn's tokens from its history: never another text, fewer steps where it copies, few in vain elsewhere."""

from __future__ import annotations

import random
from collections import defaultdict

import numpy as np
import pytest

from inference.engine import Engine
from inference.new_sequence import SchedulerLimits
from inference.paged_kv.block_pool import BlockPool
from inference.paged_kv.block_table import BlockTable
from inference.paged_kv.prefix_index import PrefixIndex
from inference.prompt_lookup import PromptLookup
from inference.scheduler import Scheduler
from inference.sequence import Sequence
from inference.types import SamplingParams, TurnRequest
from tests.testkit.local_engine import loaded, local_engine
from tests.testkit.matchers import RandomMatcher
from tests.testkit.paged_runner import PagedRunner, expected_output
from tests.testkit.tiny_models import VOCAB, save_tiny_model


def test_a_guess_is_what_came_after_the_same_three_tokens_last():
    tokens = [1, 2, 3, 4, 5, 6, 1, 2, 3]
    lookup = PromptLookup(tokens, most=8)
    assert lookup.guess(100) == (4, 5, 6, 1)
    assert lookup.guess(2) == (4, 5)
    tokens += [7, 1, 2, 3]
    assert lookup.guess(100) == (7, 1, 2, 3), "the latest occurrence counts"
    tokens.append(9)
    assert lookup.guess(100) == ()


def test_guesses_grow_while_they_hold_and_rest_when_they_do_not():
    tokens = [1, 2, 3] * 40
    lookup = PromptLookup(tokens, most=16)
    sizes = []
    for _ in range(3):
        sizes.append(len(lookup.guess(100)))
        lookup.learn(sizes[-1], sizes[-1])
    assert sizes[0] <= 4
    lookup.learn(3, 0)
    assert lookup.guess(100) == ()
    tokens += [1, 2, 3] * 5
    assert lookup.guess(100) == ()
    tokens += [1, 2, 3]
    assert lookup.guess(100) != ()


class Bench:
    def __init__(self, vocab_size, *, num_blocks=64, block_size=4, max_rows=8, max_step_tokens=32, max_guess=8, eos=()):
        self.vocab_size = vocab_size
        self.pool = BlockPool(num_blocks, block_size, PrefixIndex())
        self.runner = PagedRunner(num_blocks, block_size, vocab_size)
        limits = SchedulerLimits(max_rows, max_step_tokens, 60, tuple(eos), max_guess=max_guess)
        self.engine = Engine(Scheduler(self.pool, limits), self.runner)
        self.tokens = defaultdict(list)
        self.reasons = {}

    def submit(self, turn_id, prompt, *, n=1, **params):
        self.engine.submit(TurnRequest(turn_id, tuple(prompt), SamplingParams(**params), n=n))

    def step(self):
        for chunk in self.engine.step():
            self.tokens[chunk.turn_id, chunk.choice] += chunk.token_ids
            self.reasons[chunk.turn_id, chunk.choice] = chunk.finish_reason
        self.pool.check_integrity()

    def run(self):
        while self.engine.has_work:
            self.step()
        assert self.pool.num_in_use == 0
        return self.engine.stats()


@pytest.mark.parametrize("vocab_size", [1, 2, 3, 997])
def test_a_turn_writes_what_it_writes_without_guesses(vocab_size):
    bench = Bench(vocab_size)
    prompts = {f"t{i}": [(7 * i + j) % vocab_size for j in range(4 + i)] for i in range(5)}
    for turn_id, prompt in prompts.items():
        bench.submit(turn_id, prompt, max_tokens=30)
    bench.run()
    for turn_id, prompt in prompts.items():
        assert bench.tokens[turn_id, 0] == expected_output(prompt, 30, vocab_size)


def test_a_turn_that_copies_takes_fewer_steps_and_one_that_never_does_hardly_more():
    steps = {}
    for vocab_size in (1, 997):
        for max_guess in (0, 8):
            bench = Bench(vocab_size, max_guess=max_guess)
            bench.submit("a", [0, 0, 0, 0], max_tokens=50)
            steps[vocab_size, max_guess] = bench.run().num_steps
    assert steps[1, 8] * 3 < steps[1, 0]
    assert steps[997, 8] <= steps[997, 0] + 1


def test_an_end_token_among_right_guesses_ends_the_turn_there():
    bench = Bench(1, eos=(0,))
    bench.submit("a", [0, 0, 0, 0], max_tokens=40, min_tokens=13)
    bench.run()
    assert bench.tokens["a", 0] == [0] * 14, "thirteen that may be no end, and the end"
    assert bench.reasons["a", 0] == "stop"


@pytest.mark.parametrize("seed", range(12))
def test_random_traffic_with_guesses_never_mixes_turns_or_leaks_blocks(seed):
    rng = random.Random(seed)
    vocab_size = rng.choice([1, 2, 3, 5])
    bench = Bench(
        vocab_size, num_blocks=rng.randint(30, 60), block_size=rng.choice([1, 2, 4, 8]), max_rows=rng.randint(1, 6),
        max_step_tokens=rng.randint(1, 30), max_guess=rng.randint(1, 9),
    )  # fmt: skip
    prompts, cancelled = {}, set()
    for number in range(50):
        turn_id = f"t{number}"
        prompts[turn_id] = [rng.randrange(vocab_size) for _ in range(rng.randint(1, 9))], rng.randint(1, 20)
        bench.submit(turn_id, prompts[turn_id][0], max_tokens=prompts[turn_id][1], n=rng.randint(1, 2))
        for _ in range(rng.randint(0, 4)):
            bench.step()
        if rng.random() < 0.2:
            victim = f"t{rng.randrange(number + 1)}"
            bench.engine.cancel(victim)
            cancelled.add(victim)
    bench.run()
    for (turn_id, _), got in bench.tokens.items():
        prompt, count = prompts[turn_id]
        expected = expected_output(prompt, count, vocab_size)
        assert got == (expected[: len(got)] if turn_id in cancelled else expected)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    with loaded(save_tiny_model("llama", tmp_path_factory.mktemp("guesses") / "llama")) as model:
        yield model


@pytest.mark.parametrize("sampling", [{"temperature": 0.0}, {"temperature": 0.4, "seed": 3, "top_k": 5}])
def test_a_real_model_writes_the_same_with_guesses_sampled_or_not(model, sampling):
    """Sampled tokens too: the noise of a place does not depend on how its token was come by."""
    rng = random.Random(1)
    prompts = [[rng.randrange(3, VOCAB) for _ in range(20)] for _ in range(5)]
    few = tuple((token_id, 50.0) for token_id in (7, 8, 9))  # then it repeats itself
    outputs, steps = [], []
    for max_guess in (0, 8):
        engine = local_engine(model, max_guess=max_guess)
        for i, prompt in enumerate(prompts):
            engine.submit(str(i), prompt, max_tokens=80, ignore_eos=True, logit_bias=few, **sampling)
        engine.run()
        outputs.append([engine.tokens(str(i)) for i in range(len(prompts))])
        steps.append(engine.engine.stats())
    assert outputs[0] == outputs[1]
    assert 0 < steps[1].num_right_guesses < steps[1].num_guessed_tokens


class _Few(RandomMatcher):
    """The same few tokens at every place, but for some where only others may come."""

    has_mask = True  # else it would be guessed at fewer places

    def __init__(self, length, vocab_size, *, odd_places=()):
        super().__init__(0, length, vocab_size, forced_share=0)
        self._odd_places = set(odd_places)

    def allowed(self, place):
        return [11, 12] if place in self._odd_places else [7, 8, 9]


@pytest.mark.parametrize("sampling", [{"temperature": 0.0}, {"temperature": 0.3, "seed": 3}])
@pytest.mark.parametrize("odd_places", [(), (20, 33, 34, 60)])
def test_a_constrained_turn_writes_the_same_with_guesses_in_fewer_steps(model, sampling, odd_places):
    rng = random.Random(1)
    prompts = [[rng.randrange(3, VOCAB) for _ in range(20)] for _ in range(4)]
    outputs, stats = [], []
    for max_guess in (0, 8):
        engine = local_engine(model, max_guess=max_guess)
        matchers = [_Few(80, VOCAB, odd_places=odd_places) for _ in prompts]
        for i, (prompt, matcher) in enumerate(zip(prompts, matchers, strict=True)):
            likely = ((7, 90.0), (8, 60.0), (9, 60.0))  # else nothing right would be guessed
            engine.submit(str(i), prompt, matchers=[matcher], max_tokens=80, logit_bias=likely, **sampling)
        engine.run()
        outputs.append([engine.tokens(str(i)) for i in range(len(prompts))])
        assert outputs[-1] == [matcher.accepted for matcher in matchers]
        stats.append(engine.engine.stats())
    assert outputs[0] == outputs[1]
    assert stats[1].num_right_guesses > 20
    assert stats[1].num_steps < 0.8 * stats[0].num_steps
    assert (stats[1].num_redrawn_tokens > 0) == bool(odd_places)


class _Spelled(_Few):
    """At some places a single token must come, though another one would pass that spells the same."""

    def __init__(self, *args, forced_at, **options):
        super().__init__(*args, **options)
        self._forced_at = forced_at

    def allowed(self, place):
        return [8, 7] if place in self._forced_at else super().allowed(place)

    def forced(self):
        return (8,) if len(self.accepted) in self._forced_at else ()

    def mask(self, out):
        super().mask(out)
        if self.forced():
            out.view(np.uint32)[0] = np.uint32(1 << 8)
        return True


def test_what_must_come_within_a_guess_is_spelled_as_it_is_without(model):
    outputs, stats = [], []
    for max_guess in (0, 8):
        engine = local_engine(model, max_guess=max_guess)
        matcher = _Spelled(80, VOCAB, forced_at=(20, 34, 35, 60))
        likely = ((7, 90.0), (8, 60.0), (9, 60.0))
        engine.submit("a", [5, 6, 7], matchers=[matcher], max_tokens=80, logit_bias=likely, temperature=0.0)
        engine.run()
        outputs.append(engine.tokens("a"))
        stats.append(engine.engine.stats())
    assert [place for place, token in enumerate(outputs[0]) if token == 8] == [20, 34, 35, 60]
    assert outputs[0] == outputs[1]
    assert stats[1].num_right_guesses > 20


def test_a_constrained_turn_with_filters_is_not_guessed(model):
    engine = local_engine(model, max_guess=8)
    engine.submit("a", [5, 6, 7], matchers=[_Few(60, VOCAB)], max_tokens=60, temperature=0.5, top_k=2)
    engine.run()
    assert engine.engine.stats().num_guessed_tokens == 0


def test_a_row_whose_guess_was_not_verified_computes_its_last_token_again():
    pool = BlockPool(8, 4, PrefixIndex())
    sequence = Sequence("a", 0, [5, 6, 7], SamplingParams(), BlockTable(pool, ""), 0, (), 20)
    sequence.guess, sequence.num_planned = (8, 9), 5  # the last known token, and both of the guess
    sequence.sit_out()
    assert (sequence.guess, sequence.num_planned, sequence.is_rewound) == ((), 2, True)
    sequence.num_planned, sequence.is_rewound = 4, False  # a token behind one that is on its way
    sequence.sit_out()
    assert (sequence.num_planned, sequence.is_rewound) == (3, False)
