"""Every family on CUDA, under the real scheduler: Transformers' greedy tokens, fused or not, graphs and all."""

from __future__ import annotations

import random

import pytest
import torch

from inference.errors import ModelLoadError
from tests.testkit.greedy_reference import greedy_after
from tests.testkit.local_engine import loaded, local_engine
from tests.testkit.tiny_models import (
    CONFIGS,
    CUDA_CONFIGS,
    FUSED_ON_CUDA,
    LONGROPE_ORIGINAL,
    UNFUSED_CONFIGS,
    VOCAB,
    save_tiny_model,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.timeout(400),
]
NUM_NEW = 16
OPTIONS = {"device": "cuda", "kv_bytes": 64 << 20, "max_model_len": 256, "max_rows": 12}


def _prompts(lengths):
    rng = random.Random(5)
    return {f"t{i}": [rng.randrange(3, VOCAB) for _ in range(length)] for i, length in enumerate(lengths)}


def _run(model, prompts, max_step_tokens):
    engine = local_engine(model, max_rows=12, max_step_tokens=max_step_tokens)
    for attempt in ("cold", "warm"):
        for turn_id, prompt in prompts.items():
            engine.submit(turn_id + attempt, prompt, temperature=0, max_tokens=NUM_NEW, ignore_eos=True)
        engine.run()
    outputs = {turn_id: engine.tokens(f"{turn_id}cold") for turn_id in prompts}
    assert {turn_id: engine.tokens(f"{turn_id}warm") for turn_id in prompts} == outputs
    return outputs


CAPTURABLE = [*CONFIGS, *(name for name in UNFUSED_CONFIGS if name != "mixtral"), *CUDA_CONFIGS, "gemma3_wide"]


def test_what_cannot_be_captured_is_refused_with_that_reason(tmp_path):
    folder = save_tiny_model("mixtral", tmp_path / "mixtral")  # how many tokens an expert gets depends on data
    with pytest.raises(ModelLoadError, match="cannot be captured"), loaded(folder, dtype="fp32", **OPTIONS):
        pass


@pytest.mark.parametrize("name", CAPTURABLE)
def test_fp32_greedy_tokens_equal_transformers(name, tmp_path, caplog):
    folder = save_tiny_model(name, tmp_path / name)
    prompts = _prompts((1, 5, 16, 17, 40, 63, 64, 65, 90, 150))
    with caplog.at_level("INFO", logger="headrace.engine"), loaded(folder, dtype="fp32", **OPTIONS) as model:
        assert ("fused all 3 layers" if name in FUSED_ON_CUDA else "fused none of 3 layers") in caplog.text
        outputs = _run(model, prompts, max_step_tokens=256)
        assert _run(model, prompts, max_step_tokens=37) == outputs
    assert greedy_after(folder, prompts, outputs, "cuda") == outputs


@pytest.mark.parametrize("max_model_len", [LONGROPE_ORIGINAL, 128])
def test_longrope_is_settled_before_steps_are_captured(max_model_len, tmp_path):
    folder = save_tiny_model("phi3_longrope", tmp_path / "phi3")
    prompts = _prompts((2, 12) if max_model_len == LONGROPE_ORIGINAL else (LONGROPE_ORIGINAL + 1, 80))
    with loaded(folder, dtype="fp32", **(OPTIONS | {"max_model_len": max_model_len})) as model:
        outputs = _run(model, prompts, max_step_tokens=256)
    for turn_id, prompt in prompts.items():
        alone = {turn_id: prompt}
        assert greedy_after(folder, alone, outputs, "cuda") == {turn_id: outputs[turn_id]}


@pytest.mark.parametrize("name", ["phi3", "granite", "smollm3", "gemma2", "olmo2", "gemma3_wide", "cohere2"])
def test_bf16_runs_and_mostly_agrees_with_fp32(name, tmp_path):
    """The first token may differ from fp32's only where fp32 is undecided; most do not."""
    folder = save_tiny_model(name, tmp_path / name)
    prompts = _prompts(range(3, 60, 3))
    with loaded(folder, dtype="bf16", **OPTIONS) as model:
        engine = local_engine(model, max_rows=12)
        for turn_id, prompt in prompts.items():
            engine.submit(turn_id, prompt, temperature=0, max_tokens=1, ignore_eos=True)
        engine.run()
        outputs = {turn_id: engine.tokens(turn_id) for turn_id in prompts}
    expected = greedy_after(folder, prompts, outputs, "cuda")
    assert sum(outputs[turn_id] == expected[turn_id] for turn_id in prompts) >= 0.7 * len(prompts)
