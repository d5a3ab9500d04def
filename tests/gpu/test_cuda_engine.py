"""The CUDA runner under the real scheduler: Transformers' tokens, graph = kernels, one row = many, and no waiting."""

from __future__ import annotations

import random

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.testkit.local_engine import loaded, local_engine
from tests.testkit.matchers import RandomMatcher
from tests.testkit.tiny_models import VOCAB, save_tiny_model

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.timeout(400),
]

NUM_NEW = 24
OPTIONS = {"device": "cuda", "kv_bytes": 64 << 20, "max_model_len": 512, "max_rows": 32}


def _prompts(count, longest=90):
    rng = random.Random(11)
    return {f"t{i}": [rng.randrange(3, VOCAB) for _ in range(rng.randint(1, longest))] for i in range(count)}


@pytest.fixture(scope="module", params=["cuda_llama", "cuda_qwen3", "cuda_qwen2", "cuda_mistral"])
def folder(request, tmp_path_factory):
    return save_tiny_model(request.param, tmp_path_factory.mktemp("cuda") / request.param)


def _reference(folder, prompts):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).cuda()
    outputs = {}
    for turn_id, prompt in prompts.items():
        ids = torch.tensor([prompt], device="cuda")
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=NUM_NEW, do_sample=False, pad_token_id=0,
            eos_token_id=None,
        )  # fmt: skip
        outputs[turn_id] = out[0, len(prompt) :].tolist()
    return outputs


def _run(model, prompts, *, max_step_tokens=256, **params):
    engine = local_engine(model, max_step_tokens=max_step_tokens)
    options = {"temperature": 0, "max_tokens": NUM_NEW, "ignore_eos": True} | params
    for turn_id, prompt in prompts.items():
        engine.submit(turn_id, prompt, **options)
    engine.run()
    return {turn_id: engine.tokens(turn_id) for turn_id in prompts}


def test_fp32_equals_transformers_batched_chunked_and_alone(folder):
    prompts = _prompts(20)
    expected = _reference(folder, prompts)
    with loaded(folder, dtype="fp32", **OPTIONS) as model:
        assert _run(model, prompts) == expected
        assert _run(model, prompts, max_step_tokens=37) == expected
        for turn_id in ("t0", "t7"):
            assert _run(model, {turn_id: prompts[turn_id]}) == {turn_id: expected[turn_id]}


def test_contexts_of_several_splits_equal_transformers(folder):
    rng = random.Random(4)
    prompts = {f"t{i}": [rng.randrange(3, VOCAB) for _ in range(count)] for i, count in enumerate((120, 256, 300, 391))}
    expected = _reference(folder, prompts)
    with loaded(folder, dtype="fp32", **OPTIONS) as model:
        assert _run(model, prompts, max_step_tokens=1024) == expected
        assert _run(model, {"t3": prompts["t3"]}) == {"t3": expected["t3"]}


def test_graphs_give_what_single_kernels_give(folder):
    prompts = _prompts(9)
    with loaded(folder, dtype="bf16", **OPTIONS) as model:
        with_graphs = _run(model, prompts, temperature=0.8, seed=3)
        plain = _run_decode_eagerly(model, prompts)
    assert plain == with_graphs


def _run_decode_eagerly(model, prompts):
    """The same decode kernels, launched one by one instead of replayed."""
    runner = model.runner

    class _Eager:
        def __init__(self, size):
            self.size = size

        def replay(self):
            runner.decodes.compute(self.size)

    runner.decodes._graphs = {size: _Eager(size) for size in range(1, 33)}
    runner.prefills.forget()
    return _run(model, prompts, temperature=0.8, seed=3)


def test_several_decode_steps_are_replayed_with_nothing_from_the_host_in_between(folder):
    prompts = {f"t{i}": list(range(3 + i, 21 + i)) for i in range(4)}
    with loaded(folder, dtype="bf16", **OPTIONS) as model:
        check_replays(model, prompts, _run(model, prompts, temperature=0.9, seed=4))


def check_replays(model, prompts, expected, num_replays=6):
    """A captured step reads what it computes from the rows, and writes there what it draws: so it goes on by itself, as
    far as there are blocks."""
    engine, runner = local_engine(model), model.runner
    for turn_id, prompt in prompts.items():
        engine.submit(turn_id, prompt, temperature=0.9, seed=4, max_tokens=NUM_NEW, ignore_eos=True)
    rows = list(range(len(prompts)))
    while runner.decodes._entries[0] != tuple(rows):  # the next pass decodes them all
        engine.step()
    torch.cuda.synchronize()
    lengths = runner.rows.lengths[rows].tolist()
    with torch.cuda.stream(runner.decodes.stream):
        for _ in range(num_replays):
            runner.decodes._graphs[len(rows)].replay()
    torch.cuda.synchronize()
    assert runner.rows.lengths[rows].tolist() == [length + num_replays for length in lengths]
    for row, length, (turn_id, prompt) in zip(rows, lengths, prompts.items(), strict=True):
        written = [*prompt, *expected[turn_id]][: length + num_replays + 1]
        assert runner.rows.token_ids[row, : len(written)].tolist() == written
        engine.engine.cancel(turn_id)
    engine.run()


def test_a_seeded_row_draws_the_same_alone_and_among_31_others(folder):
    prompts = _prompts(32, longest=40)
    with loaded(folder, dtype="bf16", **OPTIONS) as model:
        together = _run(model, prompts, temperature=1.0, seed=9)
        for turn_id in ("t0", "t13", "t31"):
            assert _run(model, {turn_id: prompts[turn_id]}, temperature=1.0, seed=9)[turn_id] == together[turn_id]


def test_mixed_traffic_never_waits_for_the_device(folder):
    prompts = _prompts(40, longest=120)
    rng = random.Random(2)
    choices = [
        {"temperature": 0.0}, {"temperature": 1.0, "seed": 1}, {"temperature": 0.7, "top_p": 0.9, "top_k": 20},
        {"temperature": 0.9, "min_p": 0.05, "presence_penalty": 0.5, "repetition_penalty": 1.1},
        {"temperature": 0.0, "logit_bias": ((5, 2.0),), "min_tokens": 4}, {"temperature": 0.0, "logprobs": 3},
    ]
    with loaded(folder, dtype="bf16", **OPTIONS) as model:
        engine = local_engine(model, max_step_tokens=128)
        launches = 0
        launch = model.runner.launch

        def checked(plan):
            nonlocal launches
            launches += 1
            if launches > 20:  # by then every operation has been set up once
                torch.cuda.set_sync_debug_mode("error")
            try:
                return launch(plan)
            finally:
                torch.cuda.set_sync_debug_mode("default")

        model.runner.launch = checked
        for turn_id, prompt in prompts.items():
            engine.submit(turn_id, prompt, max_tokens=rng.randint(20, 90), ignore_eos=True, **rng.choice(choices))
            for _ in range(rng.randint(0, 6)):
                engine.step()
        engine.run()
        assert launches > 200
        assert all(len(engine.tokens(turn_id)) >= 5 for turn_id in prompts)


def test_special_sampling_equals_the_cpu_reference_rules(folder):
    prompts = _prompts(3)
    with loaded(folder, dtype="fp32", **OPTIONS) as model:
        banned = _run(model, prompts, temperature=0)
        bias = tuple((token, -1000.0) for token in {tokens[0] for tokens in banned.values()})
        biased = _run(model, prompts, logit_bias=bias)
        assert all(not set(tokens) & {token for token, _ in bias} for tokens in biased.values())
        engine = local_engine(model)
        engine.submit("a", prompts["t0"], temperature=0, max_tokens=3, logprobs=4)
        engine.run()
        (first, *_), = [chunk.logprobs for chunk in engine.chunks["a", 0][:1]]
        assert first.token_id == banned["t0"][0] == first.top[0][0]
        assert first.logprob == pytest.approx(first.top[0][1])


def test_preempted_rows_resume_unharmed(folder):
    prompts = {f"t{i}": [i + 3] * 20 for i in range(8)}
    with loaded(folder, dtype="fp32", **(OPTIONS | {"kv_bytes": 3 << 20, "max_model_len": 120})) as model:
        alone = {turn_id: _run(model, {turn_id: prompt}, max_tokens=90)[turn_id] for turn_id, prompt in prompts.items()}
        engine = local_engine(model)
        for turn_id, prompt in prompts.items():
            engine.submit(turn_id, prompt, temperature=0, max_tokens=90, ignore_eos=True)
        engine.run()
        for turn_id in prompts:
            assert engine.tokens(turn_id) == alone[turn_id]


@pytest.mark.parametrize("sampling", [{"temperature": 1.0}, {"temperature": 0.8, "top_p": 0.9, "top_k": 50}])
def test_constrained_turns_keep_to_their_matchers_and_neighbours_do_not_notice(folder, sampling):
    prompts = _prompts(24, longest=40)
    free = {turn_id: prompt for index, (turn_id, prompt) in enumerate(prompts.items()) if index % 2}
    with loaded(folder, dtype="bf16", **OPTIONS) as model:
        alone = _run(model, free, temperature=0.9, seed=4)
        for min_forced_run in (2, 10**6):
            engine = local_engine(model, min_forced_run=min_forced_run)
            matchers = {}
            for index, (turn_id, prompt) in enumerate(prompts.items()):
                if turn_id in free:
                    engine.submit(turn_id, prompt, temperature=0.9, seed=4, max_tokens=NUM_NEW, ignore_eos=True)
                    continue
                matchers[turn_id] = RandomMatcher(index, 30, VOCAB)
                engine.submit(turn_id, prompt, matchers=[matchers[turn_id]], max_tokens=60, ignore_eos=True, **sampling)
            engine.run()
            assert {turn_id: engine.tokens(turn_id) for turn_id in free} == alone
            for turn_id, matcher in matchers.items():
                assert engine.tokens(turn_id) == matcher.accepted
                assert matcher.is_done
