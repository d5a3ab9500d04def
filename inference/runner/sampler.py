"""Draws one token a row from its logits, each row by its own parameters.

The noise of a draw is a hash of the row's key, the position and the token id, so a seeded row draws the same token
alone, in any batch, and after being preempted. Plain torch: the reference for device kernels.
"""

from __future__ import annotations

import math

import torch

from inference.runner.masks import HostMasks
from inference.runner.request_rows import RequestRows, RowSampling
from inference.types import TokenLogprobs

_GOLDEN = -7046029254386353131  # 2^64 / golden ratio as int64: the increment of SplitMix64 (Steele et al., OOPSLA 2014)
_MIX_1 = -4658895280553007687
_MIX_2 = -7723592293110705685
_MASK_64 = 2**64 - 1
# What OpenAI's API says where JSON has no number: the logarithm of nothing, or of what a narrow dtype made no number.
_IMPOSSIBLE = -9999.0


def sample(
    logits: torch.Tensor, row_ids: list[int], positions: list[int], rows: RequestRows, masks: HostMasks | None = None
) -> tuple[torch.Tensor, list[TokenLogprobs | None]]:
    """logits: [num_samples, vocab]; positions[i] is where row_ids[i]'s new token will stand.

    Returns the tokens, [num_samples] int64, and the log-probabilities of the rows that asked for them. Those are the
    model's own: taken before masks, penalties, bias and temperature.
    """
    own = logits.clone() if any(_sampling(rows, row).params.logprobs is not None for row in row_ids) else logits
    for index, (row, position) in enumerate(zip(row_ids, positions, strict=True)):
        holder = rows.mask_holders[row]
        allowed = masks.wait_for(row, holder, position) if masks is not None and holder else None
        if allowed is not None:
            logits[index].masked_fill_(~torch.from_numpy(allowed), -torch.inf)
    tokens = logits.argmax(dim=-1)
    logprobs: list[TokenLogprobs | None] = [None] * len(row_ids)
    for index, (row, position) in enumerate(zip(row_ids, positions, strict=True)):
        sampling = _sampling(rows, row)
        if not sampling.is_plain_greedy:
            tokens[index] = draw(logits[index], sampling, rows.token_ids[row, :position], position)
            logprobs[index] = read_logprobs(*gather_logprobs(own[index], tokens[index], sampling))
    return tokens, logprobs


def _sampling(rows: RequestRows, row: int) -> RowSampling:
    sampling = rows.sampling[row]
    assert sampling is not None, "a scheduled row has entered"
    return sampling


def draw(logits: torch.Tensor, sampling: RowSampling, history: torch.Tensor, position: int) -> torch.Tensor:
    """One row's next token, a scalar; never waits for a device. logits: [vocab]; history: [position], prompt first."""
    params = sampling.params
    logits = adjust(logits.float(), sampling, history, position)
    if params.temperature == 0:
        return logits.argmax()
    logits = restrict(logits / params.temperature, params.top_k, params.top_p, params.min_p)
    # The race of exponentials: with E drawn from Exp(1), argmax(logit - log E) is a draw from softmax(logits).
    return (logits - exponential_noise(sampling.noise_key, position, logits.shape[0], logits.device).log()).argmax()


def adjust(logits: torch.Tensor, sampling: RowSampling, history: torch.Tensor, position: int) -> torch.Tensor:
    """Penalties, bias and the ban on early end tokens, on a copy."""
    params = sampling.params
    logits = logits.clone()
    if params.repetition_penalty != 1:
        seen = _counts(history, logits) > 0
        penalised = torch.where(logits > 0, logits / params.repetition_penalty, logits * params.repetition_penalty)
        logits = torch.where(seen, penalised, logits)
    if params.presence_penalty or params.frequency_penalty:
        counts = _counts(history[sampling.num_prompt_tokens :], logits)
        logits -= params.presence_penalty * (counts > 0) + params.frequency_penalty * counts
    if params.logit_bias:
        logits.index_add_(0, sampling.bias_ids, sampling.biases)
    if position < sampling.no_end_before:
        logits.index_fill_(0, sampling.end_ids, -torch.inf)
    return logits


def _counts(token_ids: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """How often each token of the vocabulary occurs. bincount would wait for the device."""
    ones = torch.ones(token_ids.shape[0], dtype=logits.dtype, device=logits.device)
    return torch.zeros_like(logits).index_add_(0, token_ids, ones)


def restrict(logits: torch.Tensor, top_k: int, top_p: float, min_p: float) -> torch.Tensor:
    """Rule out unlikely tokens, by min_p, then top_k, then top_p of what is left. The likeliest token always stays."""
    if min_p > 0:
        logits = logits.masked_fill(logits < logits.max() + math.log(min_p), -torch.inf)
    if 0 < top_k < logits.shape[0]:
        logits = logits.masked_fill(logits < logits.topk(top_k).values[-1], -torch.inf)
    if top_p < 1:
        logits = _keep_nucleus(logits, top_p)
    return logits


def _keep_nucleus(logits: torch.Tensor, top_p: float) -> torch.Tensor:
    """Keep the smallest set of likeliest tokens whose mass reaches top_p (arXiv:1904.09751)."""
    probabilities = logits.softmax(dim=-1)
    likeliest, ids = probabilities.sort(descending=True) if logits.is_cuda else _likeliest(probabilities, top_p)
    mass_before = likeliest.cumsum(dim=-1) - likeliest
    # Of equally likely tokens all stay: which of them come first is a matter of sorting.
    least = torch.where(mass_before < top_p, logits[ids], torch.inf).min()
    return logits.masked_fill(logits < least, -torch.inf)


def _likeliest(probabilities: torch.Tensor, top_p: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Enough of the likeliest tokens to hold the nucleus: mostly a few hundred, and sorting all is slow on a CPU."""
    few = probabilities.topk(min(256, probabilities.shape[0]))
    if few.values.sum() >= top_p:
        return few.values, few.indices
    everything = probabilities.sort(descending=True)
    return everything.values, everything.indices


def exponential_noise(
    key: int, position: int, vocab_size: int, device: torch.device | str = "cpu"
) -> torch.Tensor:
    """[vocab_size] float32 draws from Exp(1), a pure function of (key, position, token id)."""
    base = _signed(_mix(key + (position + 1) * (_GOLDEN & _MASK_64)))
    state = torch.arange(1, vocab_size + 1, device=device) * _GOLDEN + base
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


def gather_logprobs(
    logits: torch.Tensor, token: torch.Tensor, sampling: RowSampling
) -> tuple[torch.Tensor, torch.Tensor] | tuple[None, None]:
    """What the row asked for, on the device: ids and values, the chosen token first, then the likeliest."""
    count = sampling.params.logprobs
    if count is None:
        return None, None
    logprobs = logits.float().log_softmax(dim=-1)
    top = logprobs.topk(min(count, logprobs.shape[0]))
    ids = torch.cat([token.reshape(1).to(torch.int64), top.indices])
    return ids, torch.cat([logprobs.index_select(0, ids[:1]), top.values])


def read_logprobs(ids: torch.Tensor | None, values: torch.Tensor | None) -> TokenLogprobs | None:
    """The same on the host."""
    if ids is None or values is None:
        return None
    told = [value if math.isfinite(value) else _IMPOSSIBLE for value in values.tolist()]
    (token_id, *top_ids), (logprob, *top_values) = ids.tolist(), told
    return TokenLogprobs(token_id, logprob, tuple(zip(top_ids, top_values, strict=True)))
