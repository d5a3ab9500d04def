"""Paged varlen attention in plain torch, called as flash_attn.cute.flash_attn_varlen_func is."""

from __future__ import annotations

import torch


def flash_attn_varlen_func(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, cu_seqlens_q: torch.Tensor, seqused_k: torch.Tensor,
    page_table: torch.Tensor, softmax_scale: float, causal: bool, window_size: tuple[int | None, int | None],
    softcap: float,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    """q: [T, heads, dim]; k, v: [pages, page_size, kv_heads, dim]. Tokens of no sequence come out as nan."""
    assert causal
    assert q.dtype == k.dtype == v.dtype
    assert page_table.shape[0] == len(seqused_k) == len(cu_seqlens_q) - 1
    assert {cu_seqlens_q.dtype, seqused_k.dtype, page_table.dtype} == {torch.int32}
    out = torch.full(q.shape, float("nan"), dtype=q.dtype, device=q.device)
    bounds = cu_seqlens_q.tolist()
    for table, begin, end, num_keys in zip(page_table, bounds, bounds[1:], seqused_k.tolist(), strict=False):
        if begin == end:
            continue
        pages = table[: -(-num_keys // k.shape[1])].long()
        keys, values = (cache[pages].flatten(0, 1)[:num_keys].float() for cache in (k, v))
        group = q.shape[1] // k.shape[2]
        keys, values = keys.repeat_interleave(group, 1), values.repeat_interleave(group, 1)
        scores = torch.einsum("qhd,khd->hqk", q[begin:end].float(), keys) * softmax_scale
        if softcap:
            scores = softcap * torch.tanh(scores / softcap)
        behind = torch.arange(num_keys - (end - begin), num_keys, device=q.device)[:, None] - torch.arange(
            num_keys, device=q.device
        )
        left, right = window_size
        assert right in (None, 0)
        seen = (behind >= 0) & (behind <= (num_keys if left is None else left))
        weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
        out[begin:end] = torch.einsum("hqk,khd->qhd", weights, values).to(q.dtype)
    return out, None
