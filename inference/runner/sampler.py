"""Draws one token a row from its logits, each row by its own parameters.

The noise of a draw is a hash of the row's key, the position and the token id, so a seeded row draws the same token
alone, in any batch, and after being preempted. Plain torch: the reference for device kernels.
"""

from __future__ import annotations

import torch

from inference.runner.request_rows import RequestRows, RowSampling
from inference.types import TokenLogprobs

_GOLDEN = -7046029254386353131  # 2^64 / golden ratio as int64: the increment of SplitMix64 (Steele et al., OOPSLA 2014)
_MIX_1 = -4658895280553007687
_MIX_2 = -7723592293110705685
_MASK_64 = 2**64 - 1


def sample(
    logits: torch.Tensor, row_ids: list[int], positions: list[int], rows: RequestRows
) -> tuple[torch.Tensor, list[TokenLogprobs | None]]:
    """logits: [num_samples, vocab], left unchanged; positions[i] is where row_ids[i]'s new token will stand.

    Returns the tokens, [num_samples] int64, and the log-probabilities of the rows that asked for them. Those are the
    model's own: taken before penalties, bias and temperature.
    """
    samplings = [rows.sampling[row] for row in row_ids]
    tokens = logits.argmax(dim=-1)
    logprobs: list[TokenLogprobs | None] = [None] * len(row_ids)
    for index, sampling in enumerate(samplings):
        assert sampling is not None, "a scheduled row has entered"
        if sampling.is_plain_greedy:
            continue
        row_logits = logits[index].float()
        history = rows.token_ids[row_ids[index], : positions[index]]
        token = _draw(adjust(row_logits, sampling, history, positions[index]), sampling, positions[index])
        tokens[index] = token
        if sampling.params.logprobs is not None:
            logprobs[index] = _logprobs(row_logits, token, sampling.params.logprobs)
    return tokens, logprobs


def adjust(logits: torch.Tensor, sampling: RowSampling, history: torch.Tensor, position: int) -> torch.Tensor:
    """Penalties, bias and the ban on early end tokens, on a copy. history: [position] int64, the prompt first."""
    params = sampling.params
    logits = logits.clone()
    if params.repetition_penalty != 1:
        seen = history.unique()
        chosen = logits[seen]
        logits[seen] = torch.where(chosen > 0, chosen / params.repetition_penalty, chosen * params.repetition_penalty)
    if params.presence_penalty or params.frequency_penalty:
        output, counts = history[sampling.num_prompt_tokens :].unique(return_counts=True)
        logits[output] -= params.presence_penalty + params.frequency_penalty * counts
    if params.logit_bias:
        logits[sampling.bias_ids] += sampling.biases
    if position < sampling.no_end_before:
        logits[sampling.end_ids] = -torch.inf
    return logits


def _draw(logits: torch.Tensor, sampling: RowSampling, position: int) -> int:
    params = sampling.params
    if params.temperature == 0:
        return int(logits.argmax())
    logits = restrict(logits / params.temperature, params.top_k, params.top_p, params.min_p)
    # The race of exponentials: with E drawn from Exp(1), argmax(logit - log E) is a draw from softmax(logits).
    return int((logits - exponential_noise(sampling.noise_key, position, logits.shape[0]).log()).argmax())


def restrict(logits: torch.Tensor, top_k: int, top_p: float, min_p: float) -> torch.Tensor:
    """Rule out unlikely tokens, by min_p, then top_k, then top_p of what is left. The likeliest token always stays."""
    if min_p > 0:
        logits = logits.masked_fill(logits < logits.max() + torch.tensor(min_p).log(), -torch.inf)
    if 0 < top_k < logits.shape[0]:
        logits = logits.masked_fill(logits < logits.topk(top_k).values[-1], -torch.inf)
    if top_p < 1:
        logits = _keep_nucleus(logits, top_p)
    return logits


def _keep_nucleus(logits: torch.Tensor, top_p: float) -> torch.Tensor:
    """Keep the smallest set of likeliest tokens whose mass reaches top_p (arXiv:1904.09751)."""
    probabilities = logits.softmax(dim=-1)
    # The nucleus is mostly a few hundred tokens: sorting the whole vocabulary is the exception.
    for count in (min(256, logits.shape[0]), logits.shape[0]):
        likeliest, ids = probabilities.topk(count)
        mass_before = likeliest.cumsum(dim=-1) - likeliest
        kept = ids[mass_before < top_p]
        if len(kept) < count:
            break
    return torch.full_like(logits, -torch.inf).index_copy(0, kept, logits[kept])


def exponential_noise(key: int, position: int, vocab_size: int) -> torch.Tensor:
    """[vocab_size] float32 draws from Exp(1), a pure function of (key, position, token id)."""
    state = torch.arange(1, vocab_size + 1) * _GOLDEN + _signed(_mix(key + (position + 1) * (_GOLDEN & _MASK_64)))
    state = (state ^ _shift_right(state, 30)) * _MIX_1
    state = (state ^ _shift_right(state, 27)) * _MIX_2
    bits = _shift_right(state ^ _shift_right(state, 31), 11)
    uniform = (bits.double() + 0.5) * 2.0**-53
    return -torch.log1p(-uniform).float()


def _shift_right(x: torch.Tensor, count: int) -> torch.Tensor:
    """A logical shift: int64 shifts keep the sign."""
    return (x >> count) & ((1 << (64 - count)) - 1)


def _mix(x: int) -> int:
    x &= _MASK_64
    x = ((x ^ (x >> 30)) * (_MIX_1 & _MASK_64)) & _MASK_64
    x = ((x ^ (x >> 27)) * (_MIX_2 & _MASK_64)) & _MASK_64
    return x ^ (x >> 31)


def _signed(x: int) -> int:
    return x - 2**64 if x >= 2**63 else x


def _logprobs(logits: torch.Tensor, token: int, count: int) -> TokenLogprobs:
    logprobs = logits.log_softmax(dim=-1)
    top = logprobs.topk(count) if count else None
    return TokenLogprobs(
        token_id=token,
        logprob=float(logprobs[token]),
        top=tuple(zip(top.indices.tolist(), top.values.tolist(), strict=True)) if top is not None else (),
    )
