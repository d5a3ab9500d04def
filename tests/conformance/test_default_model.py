"""The embedded model, for real: its greedy text is Transformers' own, and it answers sensibly in int8 and bf16."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

from inference.models import resolve
from inference.tokenizer import CheckpointTokenizer
from tests.testkit.local_engine import loaded, local_engine

pytestmark = [pytest.mark.model, pytest.mark.timeout(280)]

NUM_NEW = 6
QUESTIONS = [
    "What is the capital of France?", "Write a haiku about rain.", "Name three colours.", "What is 2 + 2?",
    "Who wrote Hamlet?", "Translate 'good morning' into Spanish.", "List the planets.", "What is a prime number?",
    "Tell me a joke.", "How do I boil an egg?", "What is the largest ocean?", "Explain gravity to a child.",
    "Write a Python function that adds two numbers.", "What is the opposite of hot?", "Describe a sunset.",
    "Why is the sky blue?", "Give me a word that rhymes with cat.", "What do bees make?", "Count from 1 to 5.",
    "Say something in French.",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder():
    return resolve(None).folder


@pytest.fixture(scope="module")
def prompts(folder):
    tokenizer = CheckpointTokenizer.from_folder(folder)
    return [tokenizer.encode(tokenizer.render_chat([{"role": "user", "content": text}])) for text in QUESTIONS]


@pytest.fixture(scope="module")
def expected(folder, prompts):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    outputs = []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=NUM_NEW, pad_token_id=0
        )
        outputs.append(out[0, len(prompt) :].tolist())
    return outputs


def _run(model, prompts, *, max_step_tokens=256, together=True):
    engine = local_engine(model, max_step_tokens=max_step_tokens)
    for index, prompt in enumerate(prompts):
        engine.submit(str(index), prompt, temperature=0, max_tokens=NUM_NEW)
        if not together:
            engine.run()
    engine.run()
    return engine


def test_twenty_prompts_in_fp32_equal_transformers_however_they_are_run(folder, prompts, expected):
    with loaded(folder, kv_bytes=256 << 20) as model:
        one_by_one = _run(model, prompts, together=False)
        assert [one_by_one.tokens(str(i)) for i in range(20)] == expected
        warm = one_by_one
        for index in range(20):
            warm.submit(f"warm{index}", prompts[index], temperature=0, max_tokens=NUM_NEW)
        warm.run()
        assert [warm.tokens(f"warm{i}") for i in range(20)] == expected
        assert all(warm.chunks[f"warm{i}", 0][0].num_cached_tokens >= 32 for i in range(20))

        batched = _run(model, prompts[:16])
        assert [batched.tokens(str(i)) for i in range(16)] == expected[:16]
        for odd in (13, 61):
            chunked = _run(model, prompts[:16], max_step_tokens=odd)
            assert [chunked.tokens(str(i)) for i in range(16)] == expected[:16], f"chunks of {odd}"


@pytest.mark.parametrize("dtype", ["int8", "bf16"])
def test_reduced_precision_keeps_most_first_tokens_and_the_facts(dtype, folder, prompts, expected):
    """Tolerance: at least 15 of 20 first tokens as in fp32, and the capital of France is still Paris."""
    tokenizer = CheckpointTokenizer.from_folder(folder)
    # Begun for the model: whether it begins "The" or "L'Étoile" is nearly a draw.
    begun = prompts[0] + tokenizer.encode("The capital of France is")
    with loaded(folder, dtype=dtype, kv_bytes=256 << 20) as model:
        engine = _run(model, [*prompts, begun])
    same_first = sum(engine.tokens(str(i))[0] == expected[i][0] for i in range(20))
    assert same_first >= 15
    assert tokenizer.decode(engine.tokens("20")).startswith(" Paris")


def test_int8_output_is_the_same_alone_and_in_a_batch(folder, prompts):
    with loaded(folder, dtype="int8", kv_bytes=256 << 20) as model:
        batched = _run(model, prompts)
        alone = _run(model, prompts[3:4])
    assert alone.tokens("0") == batched.tokens("3")
