"""Decodes and prefills side by side on a device, guesses verified there, and rows that do not wait for their masks."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from inference.step import DECODES, PREFILLS
from tests.testkit.local_engine import loaded, local_engine
from tests.testkit.matchers import RandomMatcher
from tests.testkit.tiny_models import VOCAB, save_tiny_model

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.timeout(400),
]

OPTIONS = {"device": "cuda", "dtype": "bf16", "kv_bytes": 64 << 20, "max_model_len": 512, "max_rows": 32}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    with loaded(save_tiny_model("cuda_qwen3", tmp_path_factory.mktemp("tracks") / "qwen3"), **OPTIONS) as model:
        yield model


def _prompt(rng, longest):
    return [rng.randrange(3, VOCAB) for _ in range(rng.randint(1, longest))]


def test_turns_write_the_same_beside_prefills_as_alone(model):
    rng = random.Random(5)
    turns = {f"t{i}": (_prompt(rng, 400), {"max_tokens": rng.randint(2, 90), "seed": i}) for i in range(48)}
    alone = {}
    for turn_id, (prompt, params) in turns.items():
        engine = local_engine(model, max_step_tokens=512)
        engine.submit(turn_id, prompt, ignore_eos=True, **params)
        alone[turn_id] = engine.run().tokens(turn_id)
    engine = local_engine(model, max_step_tokens=512)
    tracks = []
    launch = model.runner.launch
    model.runner.launch = lambda plan: (tracks.append(plan.track), launch(plan))[1]
    try:
        for turn_id, (prompt, params) in turns.items():
            engine.submit(turn_id, prompt, ignore_eos=True, **params)
            for _ in range(rng.randint(0, 12)):
                engine.step()
        engine.run()
    finally:
        model.runner.launch = launch
    assert tracks.count(PREFILLS) > 20
    assert tracks.count(DECODES) > 100
    assert {turn_id: engine.tokens(turn_id) for turn_id in turns} == alone


@pytest.mark.parametrize("sampling", [{"temperature": 0.0}, {"temperature": 0.5, "seed": 3, "top_k": 5}, {"seed": 8}])
def test_guesses_change_nothing_but_the_number_of_steps(model, sampling):
    rng = random.Random(1)
    prompts = [_prompt(rng, 60) for _ in range(5)]
    few = tuple((token_id, 60.0) for token_id in (7, 8))  # then it repeats itself
    bias = {"logit_bias": few} if "top_k" in sampling or sampling.get("temperature") == 0 else {}
    outputs, stats = [], []
    for max_guess in (0, 8):
        engine = local_engine(model, max_guess=max_guess)
        for i, prompt in enumerate(prompts):
            engine.submit(str(i), prompt, max_tokens=120, ignore_eos=True, **bias, **sampling)
        engine.run()
        outputs.append([engine.tokens(str(i)) for i in range(len(prompts))])
        stats.append(engine.engine.stats())
    assert outputs[0] == outputs[1]
    if bias:
        assert stats[1].num_right_guesses > 0


class _SlowMasks:
    """Each comes some milliseconds after it was asked for, and by another thread."""

    def __init__(self, masks):
        self._masks, self._thread = masks, ThreadPoolExecutor(1)

    @property
    def counts(self):
        return self._masks.counts

    def reset(self):
        self._masks.reset()

    def post(self, jobs):
        for job in jobs:
            self._thread.submit(self._post, job)

    def _post(self, job):
        time.sleep(0.004)
        self._masks.post([job])


def test_rows_without_masks_go_on_while_others_wait_for_theirs(model, monkeypatch):
    monkeypatch.setattr(model.runner, "_mask_maker", _SlowMasks(model.runner._masks))
    engine = local_engine(model)
    matchers = [RandomMatcher(i, 30, VOCAB, forced_share=0) for i in range(3)]
    for i, matcher in enumerate(matchers):
        engine.submit(f"held{i}", [5, 6, 7 + i], matchers=[matcher], max_tokens=60, ignore_eos=True)
    engine.submit("free", [9, 10], max_tokens=200, ignore_eos=True)
    engine.run()
    for i, matcher in enumerate(matchers):
        assert engine.tokens(f"held{i}") == matcher.accepted
        assert matcher.is_done
    assert engine.engine.stats().num_late_masks > 20
    steps = [len(chunk.token_ids) for chunk in engine.chunks["free", 0]]
    assert len(steps) == 200


def test_ten_thousand_random_operations_leave_the_pool_whole(model):
    rng = random.Random(77)
    engine = local_engine(model, max_step_tokens=128, block_size=16, max_guess=4)
    live, number = [], 0
    for operation in range(10_000):
        what = rng.random()
        if what < 0.08 and len(live) < 40:
            turn_id = f"t{number}"
            number += 1
            held = rng.random() < 0.3
            matchers = [RandomMatcher(number, rng.randint(1, 20), VOCAB)] if held else []
            choices = 1 if held else rng.choice([1, 1, 1, 2, 4])
            special = rng.choice([{}, {}, {"top_p": 0.8}, {"temperature": 0.0}])
            count = rng.randint(1, 30)
            engine.submit(turn_id, _prompt(rng, 60), n=choices, matchers=matchers, max_tokens=count, **special)
            live.append(turn_id)
        elif what < 0.11 and live:
            engine.engine.cancel(live.pop(rng.randrange(len(live))))
        else:
            engine.step()
        if operation % 500 == 0:
            engine.pool.check_integrity()
    engine.run()
    assert number > 300


@pytest.mark.parametrize(
    "filters", [{"top_k": 5}, {"top_p": 0.7}, {"min_p": 0.2}, {"top_k": 20, "top_p": 0.8, "temperature": 0.6}]
)
def test_filtered_rows_draw_what_the_host_would_draw_for_them(model, filters, monkeypatch):
    rng = random.Random(3)
    prompts = [_prompt(rng, 40) for _ in range(12)]

    def run():
        engine = local_engine(model)
        for i, prompt in enumerate(prompts):
            own = filters if i % 3 else {}
            matchers = [] if i % 4 else [RandomMatcher(i, 20, VOCAB)]
            engine.submit(str(i), prompt, matchers=matchers, max_tokens=20, ignore_eos=True, **({"seed": i} | own))
        engine.run()
        return [engine.tokens(str(i)) for i in range(len(prompts))]

    by_kernels = run()
    for place in ("inference.runner.request_rows", "inference.new_sequence"):
        monkeypatch.setattr(f"{place}.is_simple", lambda *_: False)
    assert run() == by_kernels
