"""Each row draws from its own distribution, as its parameters say, whatever is beside it."""

import pytest
import torch

from inference.runner.request_rows import RequestRows
from inference.runner.sampler import adjust, exponential_noise, restrict, sample
from inference.step import NewRow, StepPlan
from inference.types import SamplingParams

VOCAB = 40


def _rows(*params, prompt=(1, 2, 3), end=(9,), keys=None):
    rows = RequestRows(max_rows=len(params), max_model_len=64, block_size=4)
    new = tuple(
        NewRow(row, prompt, len(prompt), one, keys[row] if keys else row + 17, len(prompt) + one.min_tokens, end)
        for row, one in enumerate(params)
    )
    rows.apply(StepPlan(rows=(), num_decodes=0, num_stepped=0, new_rows=new))
    return rows


def _draws(params, logits, count, position=3):
    """`count` independent rows, drawn in batches."""
    tokens = []
    for start in range(0, count, 50):
        rows = _rows(*[params] * 50, keys=list(range(1000 + start, 1050 + start)))
        tokens += sample(logits.expand(50, -1), list(range(50)), [position] * 50, rows)[0].tolist()
    return torch.tensor(tokens)


def test_temperature_zero_takes_the_likeliest():
    logits = torch.randn(3, VOCAB)
    tokens, logprobs = sample(logits, [0, 1, 2], [3, 3, 3], _rows(*[SamplingParams(temperature=0)] * 3))
    assert torch.equal(tokens, logits.argmax(-1))
    assert logprobs == [None] * 3


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_draws_follow_the_softmax(temperature):
    logits = torch.randn(VOCAB) * 2
    count = 4000
    tokens = _draws(SamplingParams(temperature=temperature), logits, count)
    expected = (logits / temperature).softmax(-1) * count
    observed = torch.bincount(tokens, minlength=VOCAB)
    common = expected >= 5  # Pearson's chi-squared is for counts that are not tiny
    chi_squared = ((observed - expected) ** 2 / expected)[common].sum()
    degrees = int(common.sum()) - 1
    assert chi_squared < degrees + 5 * (2 * degrees) ** 0.5


def test_a_seeded_row_draws_the_same_alone_and_in_a_batch():
    logits = torch.randn(5, VOCAB)
    params = SamplingParams(temperature=1.3)
    batch, _ = sample(logits, [0, 1, 2, 3, 4], [3, 4, 5, 6, 7], _rows(*[params] * 5))
    for row in range(5):
        alone, _ = sample(logits[row : row + 1], [row], [3 + row], _rows(*[params] * 5))
        assert alone[0] == batch[row]


def test_noise_changes_with_key_position_and_token():
    noise = exponential_noise(1, 1, 1000)
    assert len(noise.unique()) > 990
    assert not torch.equal(noise, exponential_noise(2, 1, 1000))
    assert not torch.equal(noise, exponential_noise(1, 2, 1000))
    assert torch.equal(noise, exponential_noise(1, 1, 1000))
    assert noise.min() > 0
    assert abs(noise.mean() - 1) < 0.15


def test_top_k_top_p_and_min_p_keep_the_likeliest():
    logits = torch.tensor([4.0, 3.0, 2.0, 1.0, 0.0])
    assert restrict(logits, 2, 1.0, 0.0).isfinite().tolist() == [True, True, False, False, False]
    probabilities = logits.softmax(-1)
    just_two = float(probabilities[:2].sum()) - 1e-4
    assert restrict(logits, 0, just_two, 0.0).isfinite().tolist() == [True, True, False, False, False]
    assert restrict(logits, 0, 1e-9, 0.0).isfinite().tolist() == [True, False, False, False, False]
    min_p = float(probabilities[2] / probabilities[0]) - 1e-4
    assert restrict(logits, 0, 1.0, min_p).isfinite().tolist() == [True, True, True, False, False]
    assert torch.equal(restrict(logits, 0, 1.0, 0.0), logits)


def test_a_flat_distribution_needs_the_whole_vocabulary_for_its_nucleus():
    falling = torch.linspace(0, 1e-4, 1000)
    kept = restrict(falling, 0, 0.9, 0.0).isfinite()
    assert 899 <= kept.sum() <= 901
    assert not kept[:95].any()


def test_equally_likely_tokens_stay_together():
    assert restrict(torch.zeros(1000), 0, 0.9, 0.0).isfinite().all()
    logits = torch.tensor([5.0, 1.0, 1.0, 1.0, 0.0])
    assert restrict(logits, 0, 0.97, 0.0).isfinite().tolist() == [True, True, True, True, False]


def test_penalties_by_their_definitions():
    rows = _rows(SamplingParams(presence_penalty=0.5, frequency_penalty=0.25, repetition_penalty=2.0))
    logits = torch.ones(VOCAB)
    logits[3] = -1.0
    history = torch.tensor([1, 2, 3, 7, 7, 3])  # 1 2 3 is the prompt
    got = adjust(logits, rows.sampling[0], history, 6)
    expected = logits.clone()
    expected[[1, 2, 7]] = 0.5
    expected[3] = -2.0
    expected[7] -= 0.5 + 2 * 0.25
    expected[3] -= 0.5 + 1 * 0.25
    assert torch.allclose(got, expected)
    assert logits[1] == 1, "the given logits stay as they were"


def test_bias_moves_a_token_and_forbids_one():
    logits = torch.zeros(1, VOCAB)
    logits[0, 5] = 3
    rows = _rows(SamplingParams(temperature=0, logit_bias=((5, -100.0), (8, 1.0))))
    assert sample(logits, [0], [3], rows)[0].tolist() == [8]


def test_no_end_token_before_min_tokens():
    logits = torch.zeros(1, VOCAB)
    logits[0, 9] = 10
    logits[0, 4] = 5
    rows = _rows(SamplingParams(temperature=0, min_tokens=2))
    assert [sample(logits, [0], [position], rows)[0].item() for position in (3, 4, 5)] == [4, 4, 9]


def test_logprobs_are_the_models_own():
    logits = torch.randn(1, VOCAB)
    rows = _rows(SamplingParams(temperature=0, logprobs=3, logit_bias=((11, 100.0),)))
    tokens, (logprobs,) = sample(logits, [0], [3], rows)
    expected = logits[0].log_softmax(-1)
    assert tokens.tolist() == [11]
    assert logprobs.token_id == 11
    assert logprobs.logprob == pytest.approx(float(expected[11]), abs=1e-5)
    best = expected.topk(3)
    assert [token for token, _ in logprobs.top] == best.indices.tolist()
    assert [value for _, value in logprobs.top] == pytest.approx(best.values.tolist(), abs=1e-5)
    assert sample(logits, [0], [3], _rows(SamplingParams(logprobs=0)))[1][0].top == ()


def test_a_vocabulary_smaller_than_the_alternatives_asked_for_gives_all_that_it_has():
    logits = torch.randn(1, 5)
    _, (logprobs,) = sample(logits, [0], [3], _rows(SamplingParams(temperature=0, logprobs=20)))
    assert [token for token, _ in logprobs.top] == logits[0].argsort(descending=True).tolist()


@pytest.mark.parametrize("odd", [-torch.inf, torch.inf, torch.nan])
def test_log_probabilities_are_numbers_whatever_the_logits_are(odd):
    logits = torch.full((1, 5), odd)
    logits[0, 2:] = torch.tensor([1.0, 2.0, 3.0])
    (token,), (logprobs,) = sample(logits, [0], [3], _rows(SamplingParams(temperature=0, logprobs=5)))
    assert 0 <= token < 5
    values = [logprobs.logprob, *(value for _, value in logprobs.top)]
    assert all(-9999 <= value <= 0 for value in values)
    assert -9999 in values
