"""Whatever is batched, shared, forked, preempted or cancelled, each turn's tokens depend on its own history alone."""

import random
from collections import defaultdict

import pytest

from inference.engine import Engine
from inference.new_sequence import SchedulerLimits
from inference.paged_kv.block_pool import BlockPool
from inference.paged_kv.prefix_index import PrefixIndex
from inference.scheduler import Scheduler
from inference.types import SamplingParams, TurnRequest
from tests.testkit.paged_runner import PagedRunner, expected_output

VOCAB = 997


class Bench:
    """An engine over the checking runner, with every chunk collected by (turn, choice)."""

    def __init__(self, *, num_blocks=64, block_size=4, max_rows=8, max_step_tokens=16, eos=(), max_model_len=200):
        self.pool = BlockPool(num_blocks, block_size, PrefixIndex())
        self.runner = PagedRunner(num_blocks, block_size, VOCAB)
        limits = SchedulerLimits(max_rows, max_step_tokens, max_model_len, tuple(eos))
        self.engine = Engine(Scheduler(self.pool, limits), self.runner)
        self.tokens = defaultdict(list)
        self.chunks = defaultdict(list)

    def submit(self, turn_id, prompt, *, n=1, salt="", **params):
        self.engine.submit(TurnRequest(turn_id, tuple(prompt), SamplingParams(**params), n=n, cache_salt=salt))

    def step(self):
        for chunk in self.engine.step():
            self.tokens[chunk.turn_id, chunk.choice] += chunk.token_ids
            self.chunks[chunk.turn_id, chunk.choice].append(chunk)
        self.pool.check_integrity()

    def run(self, limit=5000):
        while self.engine.has_work:
            self.step()
            limit -= 1
            assert limit, "the engine makes no progress"
        assert self.pool.num_in_use == 0
        return self


def test_one_turn_yields_its_tokens_and_ends_with_length():
    bench = Bench()
    bench.submit("a", [1, 2, 3], max_tokens=10)
    bench.run()
    assert bench.tokens["a", 0] == expected_output([1, 2, 3], 10, VOCAB)
    assert bench.chunks["a", 0][-1].finish_reason == "length"
    assert all(chunk.finish_reason is None for chunk in bench.chunks["a", 0][:-1])


@pytest.mark.parametrize("max_step_tokens", [1, 2, 3, 5, 7, 16, 64])
def test_chunked_prefill_at_any_chunk_size_gives_the_same_tokens(max_step_tokens):
    bench = Bench(max_step_tokens=max_step_tokens)
    prompts = {f"t{i}": [i] * (5 + 7 * i) for i in range(5)}
    for turn_id, prompt in prompts.items():
        bench.submit(turn_id, prompt, max_tokens=9)
    bench.run()
    for turn_id, prompt in prompts.items():
        assert bench.tokens[turn_id, 0] == expected_output(prompt, 9, VOCAB)
    assert max(plan.num_tokens for plan in bench.runner.plans) <= max_step_tokens


def test_a_step_is_planned_while_the_one_before_still_runs():
    bench = Bench()
    bench.submit("a", [1, 2, 3], max_tokens=5)
    bench.step()
    assert len(bench.runner.plans) == 1
    assert bench.tokens["a", 0] == []
    bench.step()
    assert len(bench.runner.plans) == 2, "the second step is launched before the first one's token is read"
    assert len(bench.tokens["a", 0]) == 1
    bench.run()


def test_an_end_token_costs_at_most_one_surplus_step():
    prompt = [4, 5, 6]
    output = expected_output(prompt, 20, VOCAB)
    bench = Bench(eos=(output[7],))
    bench.submit("a", prompt, max_tokens=20)
    bench.run()
    count = output.index(output[7]) + 1
    assert bench.tokens["a", 0] == output[:count]
    last = bench.chunks["a", 0][-1]
    assert (last.finish_reason, last.stop_token_id) == ("stop", output[7])
    assert len(bench.runner.plans) <= count + 1


def test_length_is_known_ahead_so_it_costs_no_surplus_step():
    bench = Bench()
    bench.submit("a", [1, 2, 3], max_tokens=6)
    bench.run()
    assert len(bench.runner.plans) == 6


def test_ignore_eos_stop_tokens_and_min_tokens():
    prompt = [4, 5, 6]
    output = expected_output(prompt, 12, VOCAB)
    bench = Bench(eos=(output[3],))
    bench.submit("ignores", prompt, max_tokens=12, ignore_eos=True)
    bench.submit("stops", prompt, max_tokens=12, ignore_eos=True, stop_token_ids=(output[5],))
    bench.submit("waits", prompt, max_tokens=12, min_tokens=len(output))
    bench.run()
    assert bench.tokens["ignores", 0] == output
    assert bench.tokens["stops", 0] == output[: output.index(output[5]) + 1]
    assert bench.tokens["waits", 0] == output
    waits = next(new for plan in bench.runner.plans for new in plan.new_rows if new.no_end_before > len(prompt))
    assert waits.no_end_before == len(prompt) + 12
    assert waits.end_token_ids == (output[3],)


def test_a_turn_that_fills_the_context_ends_with_length():
    bench = Bench(max_model_len=20, num_blocks=6)
    bench.submit("a", range(15))
    bench.run()
    assert bench.tokens["a", 0] == expected_output(list(range(15)), 5, VOCAB)
    assert bench.chunks["a", 0][-1].finish_reason == "length"


def test_a_shared_prefix_is_computed_once_also_within_one_step():
    bench = Bench(max_step_tokens=64)
    prefix = list(range(100, 124))
    bench.submit("a", [*prefix, 1], max_tokens=3)
    bench.submit("b", [*prefix, 2], max_tokens=3)
    bench.run()
    bench.submit("c", [*prefix, 3], max_tokens=3)
    bench.run()
    for turn_id, last in (("a", 1), ("b", 2), ("c", 3)):
        assert bench.tokens[turn_id, 0] == expected_output([*prefix, last], 3, VOCAB)
    cached = {turn_id: bench.chunks[turn_id, 0][0].num_cached_tokens for turn_id in "abc"}
    assert cached == {"a": 0, "b": 24, "c": 24}


def test_the_next_turn_of_a_session_finds_its_own_output_cached():
    bench = Bench()
    bench.submit("a", range(10), max_tokens=9)
    bench.run()
    history = [*range(10), *bench.tokens["a", 0]]
    bench.submit("b", [*history, 7], max_tokens=2)
    bench.run()
    assert bench.chunks["b", 0][0].num_cached_tokens == 16
    assert bench.tokens["b", 0] == expected_output([*history, 7], 2, VOCAB)


def test_salts_do_not_share():
    bench = Bench()
    bench.submit("a", range(16), max_tokens=2, salt="x")
    bench.run()
    bench.submit("b", range(16), max_tokens=2, salt="y")
    bench.run()
    assert bench.chunks["b", 0][0].num_cached_tokens == 0


@pytest.mark.parametrize("prompt_length", [3, 4, 5, 8, 9])
def test_choices_fork_the_prompt_and_do_not_disturb_each_other(prompt_length):
    bench = Bench(max_step_tokens=6)
    prompt = list(range(50, 50 + prompt_length))
    bench.submit("a", prompt, n=4, max_tokens=10)
    bench.run()
    for choice in range(4):
        assert bench.tokens["a", choice] == expected_output(prompt, 10, VOCAB)
    computed = sum(row.num_tokens for plan in bench.runner.plans for row in plan.rows[plan.num_decodes :])
    assert computed <= prompt_length + 3, "each further choice computes one prompt token at most"


def test_choices_draw_different_noise_and_a_seed_repeats_it():
    keys = []
    for _ in range(2):
        bench = Bench()
        bench.submit("a", [1, 2], n=3, seed=5, max_tokens=2)
        bench.run()
        keys.append([new.noise_key for plan in bench.runner.plans for new in plan.new_rows])
    assert keys[0] == keys[1]
    assert len(set(keys[0])) == 3


def test_when_blocks_run_out_the_youngest_is_preempted_and_resumes_unharmed():
    bench = Bench(num_blocks=12, max_model_len=40)
    prompts = {f"t{i}": [i, i + 1, i + 2] for i in range(4)}
    for turn_id, prompt in prompts.items():
        bench.submit(turn_id, prompt, max_tokens=25)
    bench.run()
    assert bench.engine.stats().num_preemptions > 0
    for turn_id, prompt in prompts.items():
        assert bench.tokens[turn_id, 0] == expected_output(prompt, 25, VOCAB)


def test_cancel_frees_blocks_at_once_wherever_the_turn_stands():
    bench = Bench(max_rows=2, max_step_tokens=4)
    bench.submit("decoding", [1], max_tokens=50)
    for _ in range(3):
        bench.step()
    bench.submit("prefilling", range(30), max_tokens=5)
    bench.submit("queued", [2], max_tokens=5)
    bench.step()
    for turn_id in ("queued", "prefilling", "decoding"):
        bench.engine.cancel(turn_id)
    assert bench.pool.num_in_use == 0
    bench.engine.cancel("unknown")
    bench.run()
    assert ("queued", 0) not in bench.tokens


@pytest.mark.parametrize("choice", range(3))
@pytest.mark.parametrize("num_steps", range(8))
def test_a_choice_can_be_cancelled_while_its_siblings_go_on(choice, num_steps):
    bench = Bench(max_rows=2, max_step_tokens=4)
    prompt = list(range(10))
    bench.submit("t", prompt, n=3, max_tokens=6)
    for _ in range(num_steps):
        bench.step()
    in_use = bench.pool.num_in_use
    num_before = len(bench.tokens["t", choice])
    bench.engine.cancel("t", choice)
    bench.engine.cancel("t", choice)
    assert bench.pool.num_in_use <= in_use
    bench.run()
    for sibling in {0, 1, 2} - {choice}:
        assert bench.tokens["t", sibling] == expected_output(prompt, 6, VOCAB)
    assert len(bench.tokens["t", choice]) == num_before


def test_cancelling_the_last_choice_ends_the_turn():
    bench = Bench()
    bench.submit("t", [1, 2, 3], n=2, max_tokens=50)
    for _ in range(4):
        bench.step()
    for choice in (1, 0):
        assert bench.engine.stats().num_running == choice + 1
        bench.engine.cancel("t", choice)
    assert bench.pool.num_in_use == 0
    bench.run()


def test_waiting_turns_run_in_order_once_a_row_is_free():
    bench = Bench(max_rows=1)
    for turn_id in "abc":
        bench.submit(turn_id, [ord(turn_id)], max_tokens=3)
    assert bench.engine.stats().num_waiting == 3
    order = []
    while bench.engine.has_work:
        before = dict(bench.tokens)
        bench.step()
        order += [key[0] for key in bench.tokens if key not in before]
    assert order == ["a", "b", "c"]


@pytest.mark.parametrize("seed", range(12))
def test_random_traffic_never_mixes_turns_or_leaks_blocks(seed):
    rng = random.Random(seed)
    bench = Bench(
        num_blocks=rng.randint(20, 40), block_size=rng.choice([1, 2, 4, 8]), max_rows=rng.randint(1, 6),
        max_step_tokens=rng.randint(1, 20), max_model_len=18,
    )
    prompts, cancelled = {}, set()
    prefixes = [[rng.randrange(VOCAB) for _ in range(9)] for _ in range(3)]
    for number in range(60):
        turn_id = f"t{number}"
        prompt = rng.choice(prefixes)[: rng.randint(1, 9)] + [rng.randrange(VOCAB) for _ in range(rng.randint(0, 3))]
        prompts[turn_id] = (prompt, rng.randint(1, 10), rng.randint(1, 3))
        bench.submit(turn_id, prompt, max_tokens=prompts[turn_id][1], n=prompts[turn_id][2])
        for _ in range(rng.randint(0, 4)):
            bench.step()
        if rng.random() < 0.3:
            victim = f"t{rng.randrange(number + 1)}"
            choice = rng.choice([None, 0, 1, 2])
            bench.engine.cancel(victim, choice)
            cancelled |= {(victim, each) for each in range(3) if choice in (None, each)}
    bench.run()
    for turn_id, (prompt, max_tokens, n) in prompts.items():
        count = min(max_tokens, 18 - len(prompt))
        for choice in range(n):
            expected = expected_output(prompt, count, VOCAB)
            got = bench.tokens[turn_id, choice]
            assert got == (expected[: len(got)] if (turn_id, choice) in cancelled else expected)


@pytest.mark.parametrize(("temperature", "drawn"), [(0.0, 0), (5e-324, 0), (1e-40, 0), (9e-7, 0), (1e-6, 1e-6), (2, 2)])
def test_a_temperature_that_logits_cannot_be_divided_by_is_greedy(temperature, drawn):
    bench = Bench()
    bench.submit("a", [1, 2, 3], temperature=temperature, max_tokens=1)
    bench.run()
    (new,) = bench.runner.plans[0].new_rows
    assert new.params.temperature == drawn
