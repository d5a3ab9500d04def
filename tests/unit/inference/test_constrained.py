"""Turns held to a grammar, in an engine over a tiny model: what they write, and what their neighbours do not notice."""

from __future__ import annotations

import random

import pytest

from inference.step import StepBounds
from tests.testkit.local_engine import loaded, local_engine
from tests.testkit.matchers import RandomMatcher
from tests.testkit.tiny_models import VOCAB, save_tiny_model

PROMPTS = [[random.Random(i).randrange(3, VOCAB) for _ in range(5 + 3 * i)] for i in range(6)]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = save_tiny_model("llama", tmp_path_factory.mktemp("constrained") / "llama")
    with loaded(folder) as model:
        yield model


def _matcher(index: int, length: int = 20, forced_share: float = 0.5) -> RandomMatcher:
    return RandomMatcher(index, length, VOCAB, forced_share)


def _run_constrained(model, **limits):
    engine = local_engine(model, **limits)
    matchers = [_matcher(i) for i in range(len(PROMPTS))]
    for i, prompt in enumerate(PROMPTS):
        engine.submit(str(i), prompt, matchers=[matchers[i]], temperature=1.0, seed=i, max_tokens=50, ignore_eos=True)
    engine.run()
    for i, matcher in enumerate(matchers):
        assert engine.tokens(str(i)) == matcher.accepted
        assert matcher.is_done
        assert engine.chunks[str(i), 0][-1].finish_reason == "stop"
    return engine


def test_each_token_is_one_that_its_matcher_allows(model):
    stats = _run_constrained(model).engine.stats()
    assert stats.num_generated_tokens == 20 * len(PROMPTS)
    assert stats.num_masks > 0


def test_forced_tokens_change_nothing_but_the_number_of_steps(model):
    with_runs, without = _run_constrained(model), _run_constrained(model, min_forced_run=10**6)
    for i in range(len(PROMPTS)):
        assert with_runs.tokens(str(i)) == without.tokens(str(i))
    assert with_runs.engine.stats().num_forced_tokens > 10
    assert with_runs.engine.stats().num_steps < without.engine.stats().num_steps


FULL = StepBounds(sizes=tuple(range(1, 33)), longest_run=6)


def test_where_the_rows_fill_their_step_what_is_forced_comes_token_by_token(model):
    room, full = _run_constrained(model), _run_constrained(model, bounds=FULL)
    never = _run_constrained(model, min_forced_run=10**6)
    for i in range(len(PROMPTS)):
        assert full.tokens(str(i)) == room.tokens(str(i))
    # What comes first is read with the prompt.
    assert full.engine.stats().num_forced_tokens == never.engine.stats().num_forced_tokens
    assert full.engine.stats().num_forced_tokens < room.engine.stats().num_forced_tokens


def test_a_run_that_is_read_as_prompts_are_needs_no_room_beside_the_rows(model):
    class Long(RandomMatcher):
        def allowed(self, place):
            return [5, 6] if place in (3, 7) else [9]

    engine = local_engine(model, bounds=FULL)
    engine.submit("a", PROMPTS[0], matchers=[Long(0, 25, VOCAB)], temperature=0, max_tokens=30)
    engine.run()
    assert [token for token in engine.tokens("a") if token != 9] == engine.tokens("a")[3:8:4]
    assert engine.engine.stats().num_forced_tokens == 2 + 17, "three come first, three are too few, and 17 end it"
    assert engine.engine.stats().num_steps < 15


class _Slow(RandomMatcher):
    """Its masks never come before the tokens that they are for."""

    has_mask = False


def test_what_is_forced_is_taken_in_only_where_the_mask_is_there_with_the_same_outcome(model):
    outputs, stats = [], []
    for kind in (RandomMatcher, _Slow):
        engine = local_engine(model)
        for i, prompt in enumerate(PROMPTS):
            engine.submit(str(i), prompt, matchers=[kind(i, 20, VOCAB)], temperature=1.0, seed=i, ignore_eos=True)
        engine.run()
        outputs.append([engine.tokens(str(i)) for i in range(len(PROMPTS))])
        stats.append(engine.engine.stats())
    assert outputs[0] == outputs[1]
    # What comes first is read with the prompt, whenever the first mask comes.
    assert stats[1].num_forced_tokens < stats[0].num_forced_tokens


def test_a_run_that_is_forced_from_the_start_is_read_with_the_prompt(model):
    engine = local_engine(model)
    matcher = _matcher(1, length=12, forced_share=1.0)
    engine.submit("a", PROMPTS[0], matchers=[matcher], temperature=0, max_tokens=11)
    engine.run()
    assert engine.tokens("a") == [*matcher.accepted]
    assert len(matcher.accepted) == 11
    assert engine.engine.stats().num_steps <= 2


def test_what_is_forced_from_the_start_counts_as_no_part_of_the_prompt(model):
    engine = local_engine(model)
    for turn_id in ("a", "b"):
        # Beside the prompt it fills blocks of its own, which the second turn finds.
        forced = _matcher(1, length=80, forced_share=1.0)
        engine.submit(turn_id, PROMPTS[0], matchers=[forced], temperature=0, max_tokens=75)
        engine.run()
    assert engine.chunks["b", 0][0].num_cached_tokens == len(PROMPTS[0])
    stats = engine.engine.stats()
    assert (stats.num_prompt_tokens, stats.num_cached_prompt_tokens) == (2 * len(PROMPTS[0]), len(PROMPTS[0]))


def test_neighbours_of_a_constrained_turn_write_what_they_write_alone(model):
    options = {"temperature": 0.9, "seed": 5, "max_tokens": 30, "ignore_eos": True}
    alone = local_engine(model)
    for i, prompt in enumerate(PROMPTS):
        alone.submit(f"free{i}", prompt, **options)
    alone.run()
    mixed = local_engine(model)
    for i, prompt in enumerate(PROMPTS):
        mixed.submit(f"free{i}", prompt, **options)
        mixed.submit(f"held{i}", prompt, matchers=[_matcher(i)], max_tokens=40, ignore_eos=True)
    mixed.run()
    for i in range(len(PROMPTS)):
        assert mixed.tokens(f"free{i}") == alone.tokens(f"free{i}")


def test_a_constrained_turn_that_is_cut_by_its_limit_ends_there(model):
    engine = local_engine(model)
    engine.submit("a", PROMPTS[0], matchers=[_matcher(3)], temperature=0, max_tokens=7, ignore_eos=True)
    engine.run()
    assert len(engine.tokens("a")) == 7
    assert engine.chunks["a", 0][-1].finish_reason == "length"


def test_log_probabilities_are_the_models_own_and_one_a_token(model):
    engine = local_engine(model)
    engine.submit("a", PROMPTS[0], matchers=[_matcher(4)], temperature=0, max_tokens=20, logprobs=2, ignore_eos=True)
    engine.run()
    entries = [entry for chunk in engine.chunks["a", 0] for entry in chunk.logprobs]
    assert [entry.token_id for entry in entries] == engine.tokens("a")
    assert all(entry.logprob < 0 for entry in entries)
    assert engine.engine.stats().num_forced_tokens == 0


def test_a_token_that_the_matcher_refuses_ends_the_turn_with_an_error(model):
    matcher = _matcher(5, forced_share=0.0)
    matcher.mask = lambda out: False  # says that all may come, and then refuses
    engine = local_engine(model)
    engine.submit("a", PROMPTS[0], matchers=[matcher], temperature=1.0, seed=1, max_tokens=20, ignore_eos=True)
    engine.submit("b", PROMPTS[1], temperature=0, max_tokens=20, ignore_eos=True)
    engine.run()
    assert engine.chunks["a", 0][-1].finish_reason == "error"
    assert "came where none such may" in engine.chunks["a", 0][-1].error
    assert len(engine.tokens("b")) == 20


@pytest.mark.parametrize("seed", range(4))
def test_cancels_preemptions_and_rows_that_change_hands_leave_nobody_waiting(model, seed):
    rng = random.Random(seed)
    engine = local_engine(model, max_rows=3, max_step_tokens=rng.choice([7, 32, 256]))
    matchers = {}
    for i in range(40):
        held = rng.random() < 0.7
        matchers[i] = _matcher(i, rng.randint(1, 25), rng.choice([0.0, 0.5, 0.9])) if held else None
        engine.submit(
            str(i), rng.choice(PROMPTS), matchers=[matchers[i]] if held else [], max_tokens=30, ignore_eos=True,
            temperature=rng.choice([0.0, 1.0]), seed=i,
        )  # fmt: skip
        for _ in range(rng.randint(0, 6)):
            engine.step()
        if rng.random() < 0.3:
            engine.engine.cancel(str(rng.randint(0, i)))
        if rng.random() < 0.3 and engine.engine._scheduler._live.running:
            engine.engine._scheduler._live.preempt(rng.choice(engine.engine._scheduler._live.running))
    engine.run()
    for i, matcher in matchers.items():
        tokens = engine.tokens(str(i))
        if matcher is not None:
            assert tokens == matcher.accepted[: len(tokens)]


def test_choices_of_one_turn_are_held_each_by_its_own_matcher(model):
    engine = local_engine(model)
    matchers = [_matcher(7), _matcher(8), _matcher(9)]
    engine.submit("a", PROMPTS[2], n=3, matchers=matchers, temperature=1.0, seed=2, max_tokens=50, ignore_eos=True)
    engine.run()
    assert [engine.tokens("a", choice) for choice in range(3)] == [matcher.accepted for matcher in matchers]
