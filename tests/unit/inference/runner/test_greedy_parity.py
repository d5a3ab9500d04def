"""Greedy output is Transformers' own, token for token: alone, batched, chunked oddly, and over a warm prefix cache."""

import random

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.testkit.greedy_reference import greedy_after
from tests.testkit.local_engine import loaded, local_engine
from tests.testkit.tiny_models import CONFIGS, LONGROPE_ORIGINAL, UNFUSED_CONFIGS, VOCAB, save_tiny_model

NUM_NEW = 12


def _check_greedy(folder, prompts, outputs):
    assert all(len(tokens) == NUM_NEW for tokens in outputs.values())
    assert greedy_after(folder, prompts, outputs) == outputs


def _prompts(count, longest=70):
    rng = random.Random(7)
    return {f"t{i}": [rng.randrange(3, VOCAB) for _ in range(rng.randint(1, longest))] for i in range(count)}


@pytest.mark.parametrize("name", [*CONFIGS, *UNFUSED_CONFIGS])
def test_a_batch_in_odd_chunks_and_again_over_a_warm_cache_equals_transformers(name, tmp_path, caplog):
    folder = save_tiny_model(name, tmp_path / name)
    prompts = _prompts(10)
    with caplog.at_level("INFO", logger="headrace.engine"), loaded(folder, block_size=4) as model:
        fused = 0 if name in UNFUSED_CONFIGS else 3
        assert f"fused {fused} of 3 layers" in caplog.text
        engine = local_engine(model, max_step_tokens=23, block_size=4)
        for attempt in ("cold", "warm"):
            for turn_id, prompt in prompts.items():
                engine.submit(turn_id + attempt, prompt, temperature=0, max_tokens=NUM_NEW, ignore_eos=True)
            engine.run()
        outputs = {turn_id: engine.tokens(f"{turn_id}cold") for turn_id in prompts}
        assert {turn_id: engine.tokens(f"{turn_id}warm") for turn_id in prompts} == outputs
        assert any(engine.chunks[f"{turn_id}warm", 0][0].num_cached_tokens for turn_id in prompts)
    assert len({token for tokens in outputs.values() for token in tokens}) > 25, "who says one thing shows little"
    _check_greedy(folder, prompts, outputs)


@pytest.mark.parametrize("max_model_len", [LONGROPE_ORIGINAL, 128])
def test_longrope_takes_the_factors_of_the_longest_sequence_admitted(max_model_len, tmp_path):
    folder = save_tiny_model("phi3_longrope", tmp_path / "phi3")
    rng = random.Random(3)
    lengths = (3, 17) if max_model_len == LONGROPE_ORIGINAL else (LONGROPE_ORIGINAL + 1, 80)
    prompts = {f"t{length}": [rng.randrange(3, VOCAB) for _ in range(length)] for length in lengths}
    with loaded(folder, max_model_len=max_model_len) as model:
        engine = local_engine(model, max_step_tokens=11)
        for turn_id, prompt in prompts.items():
            engine.submit(turn_id, prompt, temperature=0, max_tokens=NUM_NEW, ignore_eos=True)
        engine.run()
        for turn_id, prompt in prompts.items():
            outputs = {turn_id: engine.tokens(turn_id)}
            _check_greedy(folder, {turn_id: prompt}, outputs)


@pytest.mark.parametrize("max_step_tokens", [1, 7, 256])
def test_alone_then_again_over_a_warm_cache_equals_transformers(max_step_tokens, tmp_path):
    folder = save_tiny_model("qwen3", tmp_path / "qwen3")
    prompts = _prompts(4)
    with loaded(folder) as model:
        engine = local_engine(model, max_step_tokens=max_step_tokens)
        for attempt in ("cold", "warm"):
            for turn_id, prompt in prompts.items():
                engine.submit(turn_id + attempt, prompt, temperature=0, max_tokens=NUM_NEW, ignore_eos=True)
                engine.run()
        outputs = {turn_id: engine.tokens(f"{turn_id}cold") for turn_id in prompts}
        assert {turn_id: engine.tokens(f"{turn_id}warm") for turn_id in prompts} == outputs
        warm = engine.chunks["t3warm", 0][0].num_cached_tokens
        assert warm == (len(prompts["t3"]) - 1) // 16 * 16
    _check_greedy(folder, prompts, outputs)


def test_an_unfused_model_gives_the_same_tokens(tmp_path, monkeypatch):
    folder = save_tiny_model("mistral", tmp_path / "mistral")
    prompts = _prompts(5)
    monkeypatch.setattr("inference.runner.loader.fuse_layers", lambda model, make_linear: (0, 3))
    with loaded(folder, block_size=4) as model:
        engine = local_engine(model, max_step_tokens=9, block_size=4)
        for turn_id, prompt in prompts.items():
            engine.submit(turn_id, prompt, temperature=0, max_tokens=NUM_NEW, ignore_eos=True)
        engine.run()
        outputs = {turn_id: engine.tokens(turn_id) for turn_id in prompts}
    _check_greedy(folder, prompts, outputs)


def test_bf16_differs_only_where_the_reference_is_undecided(tmp_path):
    """A bf16 token may differ from fp32's only where fp32's two best logits are within 2 % of their spread."""
    folder = save_tiny_model("llama", tmp_path / "llama")
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    prompts = _prompts(12)
    with loaded(folder, dtype="bf16") as model:
        engine = local_engine(model)
        for turn_id, prompt in prompts.items():
            engine.submit(turn_id, prompt, temperature=0, max_tokens=1, ignore_eos=True)
        engine.run()
    num_equal = 0
    for turn_id, prompt in prompts.items():
        logits = reference(torch.tensor([prompt])).logits[0, -1]
        (token,) = engine.tokens(turn_id)
        num_equal += token == int(logits.argmax())
        assert logits.max() - logits[token] <= 0.02 * (logits.max() - logits.min())
    assert num_equal >= 9
