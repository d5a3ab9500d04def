"""Heads between their projection and attention: norm, rotation, and the new token's way into the cache.

`finish_heads` is the end of the QKV product for few rows (kernels.linear); `store_heads` does the same to packed rows
after theirs. Attention then finds the new token among the cached ones.

The dimensions of query and key heads come in pairs, those that a rotation mixes side by side: `pairwise` brings weights
into that order. Scores do not change by it, as long as all queries and keys have it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl


@dataclass(frozen=True, slots=True)
class HeadShape:
    """num_heads query heads over num_kv_heads, head_dim wide each; qkv rows are [q heads, k heads, v heads]."""

    num_heads: int
    num_kv_heads: int
    head_dim: int

    @property
    def qkv_width(self) -> int:
        return (self.num_heads + 2 * self.num_kv_heads) * self.head_dim

    @property
    def query_width(self) -> int:
        return self.num_heads * self.head_dim


@dataclass(frozen=True, slots=True)
class LayerAttention:
    """What one layer's attention is made of. keys, values: [blocks, block_size, num_kv_heads, head_dim];
    query_norm, key_norm: [head_dim], pairwise, or None; window: tokens seen, or None."""

    keys: torch.Tensor
    values: torch.Tensor
    scale: float
    window: int | None
    query_norm: torch.Tensor | None = None
    key_norm: torch.Tensor | None = None
    eps: float = 0.0


@dataclass(frozen=True, slots=True)
class HeadTargets:
    """Where a QKV product's heads go: queries to its output, keys and values to `slots` of the layer's cache.

    slots: [B] int32, block * block_size + offset; rotations: [B, head_dim] float32, the cosines and sines of each
    row's position.
    """

    shape: HeadShape
    layer: LayerAttention
    slots: torch.Tensor
    rotations: torch.Tensor


def pairwise(heads: torch.Tensor, head_dim: int) -> torch.Tensor:
    """Rows of a projection's weight, a bias or a norm's weight, in pairs: dimension 0, half, 1, half + 1, ..."""
    halves = heads.view(-1, 2, head_dim // 2, *heads.shape[1:])
    return halves.transpose(1, 2).reshape(heads.shape)


@triton.jit
def finish_heads(
    acc, head, rows, live, slots, cos, sin, norm, out, keys, values, eps,
    NUM_HEADS: tl.constexpr, NUM_KV_HEADS: tl.constexpr, DIM: tl.constexpr, HAS_NORM: tl.constexpr,
    BLOCK_M: tl.constexpr,
):  # fmt: skip
    """acc: [DIM, BLOCK_M] float32, a head of each row; norm: [DIM]; slots: [BLOCK_M]; cos, sin: [DIM // 2, BLOCK_M]."""
    dims = tl.arange(0, DIM)
    at_slot = (slots.to(tl.int64) * NUM_KV_HEADS + (head - NUM_HEADS) % NUM_KV_HEADS) * DIM
    if head >= NUM_HEADS + NUM_KV_HEADS:
        tl.store(values + at_slot[None, :] + dims[:, None], acc.to(values.dtype.element_ty), mask=live[None, :])
    else:
        if HAS_NORM:
            scale = tl.rsqrt(tl.sum(acc * acc, axis=0) / DIM + eps)
            acc = acc * scale[None, :] * norm.to(tl.float32)[:, None]
        first, second = tl.split(tl.permute(tl.reshape(acc, [DIM // 2, 2, BLOCK_M]), [0, 2, 1]))
        turned = tl.join(first * cos - second * sin, second * cos + first * sin)
        turned = tl.reshape(tl.permute(turned, [0, 2, 1]), [DIM, BLOCK_M]).to(keys.dtype.element_ty)
        if head < NUM_HEADS:
            target = out + (rows.to(tl.int64) * NUM_HEADS + head)[None, :] * DIM
        else:
            target = keys + at_slot[None, :]
        tl.store(target + dims[:, None], turned, mask=live[None, :])


@triton.jit
def _rotated(base, norm_weight, cos, sin, eps, DIM: tl.constexpr, HAS_NORM: tl.constexpr):
    """The head at base, normed and rotated: [DIM] float32."""
    dims = tl.arange(0, DIM)
    head = tl.load(base + dims).to(tl.float32)
    if HAS_NORM:
        head = head * tl.rsqrt(tl.sum(head * head, axis=0) / DIM + eps)
        head = head * tl.load(norm_weight + dims).to(tl.float32)
    first, second = tl.split(tl.reshape(head, [DIM // 2, 2]))
    return tl.reshape(tl.join(first * cos - second * sin, second * cos + first * sin), [DIM])


@triton.jit
def _store_kernel(
    qkv, keys, values, slots, positions, cos_sin, query_norm, key_norm, eps: tl.constexpr,
    NUM_HEADS: tl.constexpr, NUM_KV_HEADS: tl.constexpr, DIM: tl.constexpr, HAS_NORM: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    dims = tl.arange(0, DIM)
    base = qkv + (token * (NUM_HEADS + 2 * NUM_KV_HEADS) + head) * DIM
    slot = tl.load(slots + token).to(tl.int64)
    if head >= NUM_HEADS + NUM_KV_HEADS:
        target = values + (slot * NUM_KV_HEADS + head - NUM_HEADS - NUM_KV_HEADS) * DIM
        tl.store(target + dims, tl.load(base + dims))
    else:
        half = tl.arange(0, DIM // 2)
        turns = cos_sin + tl.load(positions + token).to(tl.int64) * DIM
        cos = tl.load(turns + half)
        sin = tl.load(turns + DIM // 2 + half)
        if head < NUM_HEADS:
            tl.store(base + dims, _rotated(base, query_norm, cos, sin, eps, DIM, HAS_NORM).to(keys.dtype.element_ty))
        else:
            target = keys + (slot * NUM_KV_HEADS + head - NUM_HEADS) * DIM
            tl.store(target + dims, _rotated(base, key_norm, cos, sin, eps, DIM, HAS_NORM).to(keys.dtype.element_ty))


def store_heads(
    shape: HeadShape, layer: LayerAttention, qkv: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor,
    cos_sin: torch.Tensor,
) -> None:  # fmt: skip
    """Norm and rotate packed queries in place, and keys on their way into the cache; store the values.

    qkv: [T, qkv_width]; slots, positions: [T] int32; cos_sin: [max_model_len, head_dim] float32. Grid (T, all heads).
    """
    _store_kernel[(qkv.shape[0], shape.num_heads + 2 * shape.num_kv_heads)](
        qkv, layer.keys, layer.values, slots, positions, cos_sin, layer.query_norm, layer.key_norm, layer.eps,
        NUM_HEADS=shape.num_heads, NUM_KV_HEADS=shape.num_kv_heads, DIM=shape.head_dim,
        HAS_NORM=layer.query_norm is not None, num_warps=1,
    )  # fmt: skip
