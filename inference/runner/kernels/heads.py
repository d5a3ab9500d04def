"""Heads between their projection and attention: norm, rotation, and the new token's way into the cache.

`finish_heads` is the end of the QKV product for few rows (kernels.tiled_linear); `store_heads` does the same to packed
rows after theirs. Attention then finds the new token among the cached ones.

The dimensions of query and key heads come in pairs, those that a rotation mixes side by side, as
inference.runner.head_layout has them.
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
        return self.query_width + 2 * self.key_width

    @property
    def key_width(self) -> int:
        return self.num_kv_heads * self.head_dim

    @property
    def query_width(self) -> int:
        return self.num_heads * self.head_dim


@dataclass(frozen=True, slots=True)
class LayerAttention:
    """What one layer's attention is made of. keys, values: [blocks, block_size, num_kv_heads, head_dim];
    query_norm, key_norm: [head_dim], in pairs, or None; window: tokens seen, or None; soft_cap: 0 is none; rotates:
    whether queries and keys are told their positions."""

    keys: torch.Tensor
    values: torch.Tensor
    scale: float
    window: int | None
    query_norm: torch.Tensor | None = None
    key_norm: torch.Tensor | None = None
    eps: float = 0.0
    soft_cap: float = 0.0
    rotates: bool = True


@dataclass(frozen=True, slots=True)
class HeadTargets:
    """Where a QKV product's heads go: queries to its output, keys and values to `slots` of the layer's cache.

    slots: [B] int32, block * block_size + offset; rotations: [B, head_dim] float32, rows maybe apart, the cosines
    and sines of each row's position.
    """

    shape: HeadShape
    layer: LayerAttention
    slots: torch.Tensor
    rotations: torch.Tensor


@triton.jit
def finish_heads(
    acc, head, rows, live, slots, cos, sin, norm, out, keys, values, eps,
    NUM_HEADS: tl.constexpr, NUM_KV_HEADS: tl.constexpr, DIM: tl.constexpr, HAS_NORM: tl.constexpr,
    ROTATES: tl.constexpr, BLOCK_M: tl.constexpr,
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
        turned = acc
        if ROTATES:
            first, second = tl.split(tl.permute(tl.reshape(acc, [DIM // 2, 2, BLOCK_M]), [0, 2, 1]))
            turned = tl.join(first * cos - second * sin, second * cos + first * sin)
            turned = tl.reshape(tl.permute(turned, [0, 2, 1]), [DIM, BLOCK_M])
        turned = turned.to(keys.dtype.element_ty)
        if head < NUM_HEADS:
            target = out + (rows.to(tl.int64) * NUM_HEADS + head)[None, :] * DIM
        else:
            target = keys + at_slot[None, :]
        tl.store(target + dims[:, None], turned, mask=live[None, :])


@triton.jit
def _turn_heads(
    source, target, norm_weight, cos, sin, eps, HEADS: tl.constexpr, HEADS_POW2: tl.constexpr, DIM: tl.constexpr,
    HAS_NORM: tl.constexpr, ROTATES: tl.constexpr,
):  # fmt: skip
    """Norm and rotate HEADS heads that lie one after another at source; write them to target likewise."""
    heads = tl.arange(0, HEADS_POW2)
    dims = tl.arange(0, DIM)
    offsets = heads[:, None] * DIM + dims[None, :]
    live = (heads < HEADS)[:, None]
    x = tl.load(source + offsets, mask=live, other=0.0).to(tl.float32)
    if HAS_NORM:
        x = x * tl.rsqrt(tl.sum(x * x, axis=1) / DIM + eps)[:, None]
        x = x * tl.load(norm_weight + dims).to(tl.float32)[None, :]
    if ROTATES:
        first, second = tl.split(tl.reshape(x, [HEADS_POW2, DIM // 2, 2]))
        low = first * cos[None, :] - second * sin[None, :]
        high = second * cos[None, :] + first * sin[None, :]
        x = tl.reshape(tl.join(low, high), [HEADS_POW2, DIM])
    tl.store(target + offsets, x.to(target.dtype.element_ty), mask=live)


@triton.jit
def _store_kernel(
    qkv, keys, values, slots, positions, cos_sin, query_norm, key_norm, eps: tl.constexpr,
    NUM_HEADS: tl.constexpr, HEADS_POW2: tl.constexpr, NUM_KV_HEADS: tl.constexpr, KV_POW2: tl.constexpr,
    DIM: tl.constexpr, HAS_NORM: tl.constexpr, ROTATES: tl.constexpr, ROTATION_STRIDE: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    half = tl.arange(0, DIM // 2)
    turns = cos_sin + tl.load(positions + token).to(tl.int64) * ROTATION_STRIDE
    cos = tl.load(turns + half)
    sin = tl.load(turns + DIM // 2 + half)
    slot = tl.load(slots + token).to(tl.int64) * NUM_KV_HEADS * DIM
    query = qkv + token * (NUM_HEADS + 2 * NUM_KV_HEADS) * DIM
    key = query + NUM_HEADS * DIM
    _turn_heads(query, query, query_norm, cos, sin, eps, NUM_HEADS, HEADS_POW2, DIM, HAS_NORM, ROTATES)
    _turn_heads(key, keys + slot, key_norm, cos, sin, eps, NUM_KV_HEADS, KV_POW2, DIM, HAS_NORM, ROTATES)
    offsets = tl.arange(0, KV_POW2 * DIM)
    live = offsets < NUM_KV_HEADS * DIM
    tl.store(values + slot + offsets, tl.load(key + NUM_KV_HEADS * DIM + offsets, mask=live), mask=live)


def store_heads(
    shape: HeadShape, layer: LayerAttention, qkv: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor,
    cos_sin: torch.Tensor,
) -> None:  # fmt: skip
    """Norm and rotate packed queries in place, and keys on their way into the cache; store the values.

    qkv: [T, qkv_width]; slots, positions: [T] int32; cos_sin: [max_model_len, head_dim] float32, rows maybe
    apart. One program a token.
    """
    _store_kernel[(qkv.shape[0],)](
        qkv, layer.keys, layer.values, slots, positions, cos_sin, layer.query_norm, layer.key_norm, layer.eps,
        NUM_HEADS=shape.num_heads, HEADS_POW2=triton.next_power_of_2(shape.num_heads),
        NUM_KV_HEADS=shape.num_kv_heads, KV_POW2=triton.next_power_of_2(shape.num_kv_heads), DIM=shape.head_dim,
        HAS_NORM=layer.query_norm is not None, ROTATES=layer.rotates, ROTATION_STRIDE=cos_sin.stride(0), num_warps=4,
    )  # fmt: skip
