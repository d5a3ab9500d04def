"""Attention over the paged cache: split-KV decode with everything around it fused, and varlen prefill.

Decode (flash-decoding, Dao et al. 2023): a row's keys are cut at fixed multiples of split_tokens; the programs of a row
and KV head take the cuts in turns, and the last to arrive adds the parts up in order. The cuts depend on the row alone,
so a row's result is the same bits in any batch. Queries of one KV head are packed into one tile (GQA).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

_LOG2E = 1.4426950408889634
_MOST_SPLITS = 256
_NO_WINDOW = 1 << 30
_TILE_KV = 64
TILE_QUERIES = 64


@triton.jit
def _halves(base, stride, rows, live, norm_weight, cos, sin, eps, HALF: tl.constexpr, HAS_NORM: tl.constexpr):
    """Heads at base + rows * stride, normed and rotated: the two halves, [rows, HALF] float32 each."""
    dims = tl.arange(0, HALF)
    first = tl.load(base + rows[:, None] * stride + dims[None, :], mask=live[:, None], other=0.0).to(tl.float32)
    second = tl.load(base + rows[:, None] * stride + HALF + dims[None, :], mask=live[:, None], other=0.0).to(tl.float32)
    if HAS_NORM:
        mean = (tl.sum(first * first, axis=1) + tl.sum(second * second, axis=1)) / (2 * HALF)
        scale = 1.0 / tl.sqrt(mean + eps)
        first = first * scale[:, None] * tl.load(norm_weight + dims).to(tl.float32)[None, :]
        second = second * scale[:, None] * tl.load(norm_weight + HALF + dims).to(tl.float32)[None, :]
    return first * cos[None, :] - second * sin[None, :], second * cos[None, :] + first * sin[None, :]


@triton.jit
def _decode_kernel(
    qkv, keys, values, out, row_ids, positions, block_table, table_stride, cos_sin, query_norm, key_norm,
    parts, part_stats, arrivals, scale_log2, window, eps: tl.constexpr,
    NUM_HEADS: tl.constexpr, NUM_KV_HEADS: tl.constexpr, HALF: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    HAS_NORM: tl.constexpr, GROUP: tl.constexpr, TILE_Q: tl.constexpr, TILE_KV: tl.constexpr, SPLIT: tl.constexpr,
    MAX_SPLITS: tl.constexpr,
):  # fmt: skip
    index = tl.program_id(0)
    kv_head = tl.program_id(1)
    program = tl.program_id(2)
    num_programs = tl.num_programs(2)
    DIM: tl.constexpr = 2 * HALF
    row = tl.load(row_ids + index).to(tl.int64)
    position = tl.load(positions + index)
    first_key = tl.maximum(position - window + 1, 0)
    first_split = first_key // SPLIT
    num_splits = position // SPLIT + 1
    if first_split + program < num_splits:
        dims = tl.arange(0, HALF)
        group = tl.arange(0, TILE_Q)
        in_group = group < GROUP
        cos = tl.load(cos_sin + position.to(tl.int64) * DIM + dims)
        sin = tl.load(cos_sin + position.to(tl.int64) * DIM + HALF + dims)
        qkv_row = qkv + index.to(tl.int64) * (NUM_HEADS + 2 * NUM_KV_HEADS) * DIM
        q1, q2 = _halves(
            qkv_row + kv_head * GROUP * DIM, DIM, group, in_group, query_norm, cos, sin, eps, HALF, HAS_NORM
        )
        q1 = (q1 * scale_log2).to(keys.dtype.element_ty)
        q2 = (q2 * scale_log2).to(keys.dtype.element_ty)
        one = tl.arange(0, 1)
        k1, k2 = _halves(
            qkv_row + (NUM_HEADS + kv_head) * DIM, DIM, one, one < 1, key_norm, cos, sin, eps, HALF, HAS_NORM
        )
        k1 = k1.to(keys.dtype.element_ty)
        k2 = k2.to(keys.dtype.element_ty)
        all_dims = tl.arange(0, DIM)
        v_new = tl.load(qkv_row + (NUM_HEADS + NUM_KV_HEADS + kv_head) * DIM + all_dims)

        # The program that takes the last split stores the new token; nobody reads that slot in this step.
        if (num_splits - 1 - first_split) % num_programs == program:
            block = tl.load(block_table + row * table_stride + position // BLOCK_SIZE).to(tl.int64)
            slot = (block * BLOCK_SIZE + position % BLOCK_SIZE) * NUM_KV_HEADS + kv_head
            tl.store(keys + slot * DIM + dims[None, :], k1)
            tl.store(keys + slot * DIM + HALF + dims[None, :], k2)
            tl.store(values + slot * DIM + all_dims, v_new)

        for split in range(first_split + program, num_splits, num_programs):
            peak = tl.full([TILE_Q], -1.0e30, tl.float32)
            total = tl.zeros([TILE_Q], tl.float32)
            acc = tl.zeros([TILE_Q, DIM], tl.float32)
            end = tl.minimum((split + 1) * SPLIT, position)
            for start in range(split * SPLIT, end, TILE_KV):
                at = start + tl.arange(0, TILE_KV)
                cached = (at < position) & (at >= first_key)
                blocks = tl.load(block_table + row * table_stride + at // BLOCK_SIZE, mask=cached, other=0).to(tl.int64)
                slots = (blocks * BLOCK_SIZE + at % BLOCK_SIZE) * NUM_KV_HEADS + kv_head
                ka = tl.load(keys + slots[:, None] * DIM + dims[None, :], mask=cached[:, None], other=0.0)
                kb = tl.load(keys + slots[:, None] * DIM + HALF + dims[None, :], mask=cached[:, None], other=0.0)
                v = tl.load(values + slots[:, None] * DIM + all_dims[None, :], mask=cached[:, None], other=0.0)
                scores = tl.dot(q1, tl.trans(ka), input_precision="ieee")
                scores = tl.dot(q2, tl.trans(kb), scores, input_precision="ieee")
                scores = tl.where(cached[None, :], scores, -1.0e30)
                new_peak = tl.maximum(peak, tl.max(scores, axis=1))
                weights = tl.where(cached[None, :], tl.exp2(scores - new_peak[:, None]), 0.0)
                shrink = tl.exp2(peak - new_peak)
                total = total * shrink + tl.sum(weights, axis=1)
                acc = acc * shrink[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
                peak = new_peak
            if split == num_splits - 1:
                # The new token itself, from registers: no program need wait for its key to be stored.
                score = tl.sum(q1.to(tl.float32) * k1.to(tl.float32), axis=1)
                score += tl.sum(q2.to(tl.float32) * k2.to(tl.float32), axis=1)
                new_peak = tl.maximum(peak, score)
                weight = tl.exp2(score - new_peak)
                shrink = tl.exp2(peak - new_peak)
                total = total * shrink + weight
                acc = acc * shrink[:, None] + weight[:, None] * v_new.to(tl.float32)[None, :]
                peak = new_peak

            at_out = out + (index * NUM_HEADS + kv_head * GROUP + group[:, None]) * DIM + all_dims[None, :]
            if num_splits - first_split == 1:
                y = acc / total[:, None]
                tl.store(at_out, y.to(out.dtype.element_ty), mask=in_group[:, None])
            else:
                base = (index * NUM_KV_HEADS + kv_head) * MAX_SPLITS + split
                at_part = parts + (base * GROUP + group[:, None]) * DIM + all_dims[None, :]
                tl.store(at_part, acc, mask=in_group[:, None], cache_modifier=".cg")
                at_stats = part_stats + (base * GROUP + group) * 2
                tl.store(at_stats, peak, mask=in_group, cache_modifier=".cg")
                tl.store(at_stats + 1, total, mask=in_group, cache_modifier=".cg")

        if num_splits - first_split > 1:
            tl.debug_barrier()
            counter = arrivals + index * NUM_KV_HEADS + kv_head
            num_active = tl.minimum(num_splits - first_split, num_programs)
            if tl.atomic_add(counter, 1, sem="acq_rel") == num_active - 1:
                tl.debug_barrier()
                peak = tl.full([TILE_Q], -1.0e30, tl.float32)
                total = tl.zeros([TILE_Q], tl.float32)
                acc = tl.zeros([TILE_Q, DIM], tl.float32)
                # Not pipelined: asynchronous copies of a few bytes go through the L1 cache, which may be stale.
                for split in range(first_split, num_splits):
                    base = (index * NUM_KV_HEADS + kv_head) * MAX_SPLITS + split
                    at_part = parts + (base * GROUP + group[:, None]) * DIM + all_dims[None, :]
                    at_stats = part_stats + (base * GROUP + group) * 2
                    part = tl.load(at_part, mask=in_group[:, None], other=0.0, cache_modifier=".cg")
                    part_peak = tl.load(at_stats, mask=in_group, other=-1.0e30, cache_modifier=".cg")
                    part_total = tl.load(at_stats + 1, mask=in_group, other=0.0, cache_modifier=".cg")
                    new_peak = tl.maximum(peak, part_peak)
                    shrink = tl.exp2(peak - new_peak)
                    grow = tl.exp2(part_peak - new_peak)
                    acc = acc * shrink[:, None] + part * grow[:, None]
                    total = total * shrink + part_total * grow
                    peak = new_peak
                tl.store(counter, 0)
                at_out = out + (index * NUM_HEADS + kv_head * GROUP + group[:, None]) * DIM + all_dims[None, :]
                y = acc / total[:, None]
                tl.store(at_out, y.to(out.dtype.element_ty), mask=in_group[:, None])


@triton.jit
def _store_kernel(
    qkv, keys, values, slots, positions, cos_sin, query_norm, key_norm, eps: tl.constexpr,
    NUM_HEADS: tl.constexpr, NUM_KV_HEADS: tl.constexpr, HALF: tl.constexpr, HAS_NORM: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    DIM: tl.constexpr = 2 * HALF
    dims = tl.arange(0, HALF)
    base = qkv + (token * (NUM_HEADS + 2 * NUM_KV_HEADS) + head) * DIM
    slot = tl.load(slots + token).to(tl.int64)
    if head >= NUM_HEADS + NUM_KV_HEADS:
        target = values + (slot * NUM_KV_HEADS + head - NUM_HEADS - NUM_KV_HEADS) * DIM
        tl.store(target + dims, tl.load(base + dims))
        tl.store(target + HALF + dims, tl.load(base + HALF + dims))
    else:
        position = tl.load(positions + token).to(tl.int64)
        cos = tl.load(cos_sin + position * DIM + dims)
        sin = tl.load(cos_sin + position * DIM + HALF + dims)
        one = tl.arange(0, 1)
        if head < NUM_HEADS:
            a, b = _halves(base, DIM, one, one < 1, query_norm, cos, sin, eps, HALF, HAS_NORM)
            target = base
        else:
            a, b = _halves(base, DIM, one, one < 1, key_norm, cos, sin, eps, HALF, HAS_NORM)
            target = keys + (slot * NUM_KV_HEADS + head - NUM_HEADS) * DIM
        tl.store(target + dims[None, :], a.to(keys.dtype.element_ty))
        tl.store(target + HALF + dims[None, :], b.to(keys.dtype.element_ty))


@triton.jit
def _prefill_kernel(
    qkv, keys, values, out, tiles, block_table, table_stride, scale_log2, window,
    NUM_HEADS: tl.constexpr, NUM_KV_HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    TILE_Q: tl.constexpr, TILE_KV: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    head = tl.program_id(1)
    kv_head = head // (NUM_HEADS // NUM_KV_HEADS)
    row = tl.load(tiles + tile * 4).to(tl.int64)
    first_token = tl.load(tiles + tile * 4 + 1)
    first_position = tl.load(tiles + tile * 4 + 2)
    count = tl.load(tiles + tile * 4 + 3)
    queries = tl.arange(0, TILE_Q)
    live = queries < count
    at_query = first_position + queries
    dims = tl.arange(0, DIM)
    stride: tl.constexpr = (NUM_HEADS + 2 * NUM_KV_HEADS) * DIM
    token = (first_token + queries).to(tl.int64)
    q = tl.load(qkv + token[:, None] * stride + head * DIM + dims[None, :], mask=live[:, None], other=0.0)

    peak = tl.full([TILE_Q], -1.0e30, tl.float32)
    total = tl.zeros([TILE_Q], tl.float32)
    acc = tl.zeros([TILE_Q, DIM], tl.float32)
    begin = tl.maximum(first_position - window + 1, 0) // TILE_KV * TILE_KV
    for start in range(begin, first_position + count, TILE_KV):
        at = start + tl.arange(0, TILE_KV)
        known = at < first_position + count
        block = tl.load(block_table + row * table_stride + at // BLOCK_SIZE, mask=known, other=0).to(tl.int64)
        slot = (block * BLOCK_SIZE + at % BLOCK_SIZE) * NUM_KV_HEADS + kv_head
        k = tl.load(keys + slot[:, None] * DIM + dims[None, :], mask=known[:, None], other=0.0)
        v = tl.load(values + slot[:, None] * DIM + dims[None, :], mask=known[:, None], other=0.0)
        seen = (at[None, :] <= at_query[:, None]) & (at[None, :] > at_query[:, None] - window)
        scores = tl.where(seen, tl.dot(q, tl.trans(k), input_precision="ieee") * scale_log2, -1.0e30)
        new_peak = tl.maximum(peak, tl.max(scores, axis=1))
        weights = tl.where(seen, tl.exp2(scores - new_peak[:, None]), 0.0)
        shrink = tl.exp2(peak - new_peak)
        total = total * shrink + tl.sum(weights, axis=1)
        acc = acc * shrink[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        peak = new_peak
    at_out = out + (token[:, None] * NUM_HEADS + head) * DIM + dims[None, :]
    tl.store(at_out, (acc / total[:, None]).to(out.dtype.element_ty), mask=live[:, None])


@dataclass(frozen=True, slots=True)
class HeadShape:
    """num_heads query heads over num_kv_heads, head_dim wide each; qkv rows are [q heads, k heads, v heads]."""

    num_heads: int
    num_kv_heads: int
    head_dim: int

    @property
    def qkv_width(self) -> int:
        return (self.num_heads + 2 * self.num_kv_heads) * self.head_dim


@dataclass(frozen=True, slots=True)
class LayerAttention:
    """What one layer's attention is made of. query_norm, key_norm: [head_dim] or None; window: tokens seen, or None."""

    keys: torch.Tensor
    values: torch.Tensor
    scale: float
    window: int | None
    query_norm: torch.Tensor | None = None
    key_norm: torch.Tensor | None = None
    eps: float = 0.0


@dataclass(frozen=True, slots=True)
class DecodeTiling:
    """split_tokens a program takes at a time, in tiles of tile_kv; see tests/bench/tune_attention.py."""

    split_tokens: int = 128
    tile_kv: int = 64
    num_warps: int = 4
    num_stages: int = 3


class PagedAttention:
    """Launches the kernels; holds what all layers share.

    block_table: [max_rows, max_blocks] int32; cos_sin: [max_model_len, head_dim] float32, each
    position's cosines and then its sines. One stream only: layers take turns with the scratch.
    """

    def __init__(
        self, shape: HeadShape, block_table: torch.Tensor, block_size: int, cos_sin: torch.Tensor, max_batch: int,
        tiling: DecodeTiling | None = None,
    ) -> None:  # fmt: skip
        self._tiling = tiling or DecodeTiling()
        self._shape, self._block_table, self._block_size, self._cos_sin = shape, block_table, block_size, cos_sin
        fewest = triton.next_power_of_2(triton.cdiv(cos_sin.shape[0], _MOST_SPLITS))
        self.split_tokens = max(self._tiling.split_tokens, fewest)
        self._max_splits = triton.cdiv(cos_sin.shape[0], self.split_tokens)
        self._group = shape.num_heads // shape.num_kv_heads
        num_parts = max_batch * shape.num_kv_heads * self._max_splits * self._group
        self._parts = cos_sin.new_empty(num_parts * shape.head_dim)
        self._part_stats = cos_sin.new_empty(num_parts * 2)
        self._arrivals = cos_sin.new_zeros(max_batch * shape.num_kv_heads, dtype=torch.int32)
        self._num_sms = torch.cuda.get_device_properties(cos_sin.device).multi_processor_count if cos_sin.is_cuda else 1

    def decode(
        self, layer: LayerAttention, qkv: torch.Tensor, row_ids: torch.Tensor, positions: torch.Tensor,
        out: torch.Tensor,
    ) -> None:  # fmt: skip
        """One new token a row: norm, rotate and store its key and value, attend, write out [B, heads * head_dim].

        qkv: [B, qkv_width], before norms and rotation; row_ids, positions: [B] int32.
        Grid (B, num_kv_heads, programs that share a row's splits).
        """
        shape, batch = self._shape, qkv.shape[0]
        wanted = triton.cdiv(4 * self._num_sms, batch * shape.num_kv_heads)
        _decode_kernel[(batch, shape.num_kv_heads, min(self._max_splits, wanted))](
            qkv, layer.keys, layer.values, out, row_ids, positions, self._block_table, self._block_table.stride(0),
            self._cos_sin, layer.query_norm, layer.key_norm, self._parts, self._part_stats, self._arrivals,
            layer.scale * _LOG2E, layer.window or _NO_WINDOW, layer.eps,
            NUM_HEADS=shape.num_heads, NUM_KV_HEADS=shape.num_kv_heads, HALF=shape.head_dim // 2,
            BLOCK_SIZE=self._block_size, HAS_NORM=layer.query_norm is not None, GROUP=self._group,
            TILE_Q=max(16, triton.next_power_of_2(self._group)), TILE_KV=self._tiling.tile_kv, SPLIT=self.split_tokens,
            MAX_SPLITS=self._max_splits, num_warps=self._tiling.num_warps,
            num_stages=self._tiling.num_stages,
        )  # fmt: skip

    def store(
        self, layer: LayerAttention, qkv: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor
    ) -> None:
        """Norm and rotate queries in place, and keys on their way into the cache; store the values.

        qkv: [T, qkv_width]; slots, positions: [T] int32. Grid (T, all heads).
        """
        shape = self._shape
        _store_kernel[(qkv.shape[0], shape.num_heads + 2 * shape.num_kv_heads)](
            qkv, layer.keys, layer.values, slots, positions, self._cos_sin, layer.query_norm, layer.key_norm, layer.eps,
            NUM_HEADS=shape.num_heads, NUM_KV_HEADS=shape.num_kv_heads, HALF=shape.head_dim // 2,
            HAS_NORM=layer.query_norm is not None, num_warps=1,
        )  # fmt: skip

    def prefill(self, layer: LayerAttention, qkv: torch.Tensor, tiles: torch.Tensor, out: torch.Tensor) -> None:
        """Causal attention of packed chunks whose queries `store` has rotated and whose keys it has stored.

        tiles: [n, 4] int32 (row, first token in qkv, its position, number of queries <= 64). Grid (n, num_heads).
        """
        shape = self._shape
        _prefill_kernel[(tiles.shape[0], shape.num_heads)](
            qkv, layer.keys, layer.values, out, tiles, self._block_table, self._block_table.stride(0),
            layer.scale * _LOG2E, layer.window or _NO_WINDOW,
            NUM_HEADS=shape.num_heads, NUM_KV_HEADS=shape.num_kv_heads, DIM=shape.head_dim,
            BLOCK_SIZE=self._block_size, TILE_Q=TILE_QUERIES, TILE_KV=_TILE_KV, num_warps=4, num_stages=2,
        )  # fmt: skip


def tiles_of(spans: list[tuple[int, int, int]]) -> list[tuple[int, int, int, int]]:
    """The prefill tiles of packed (row, start position, number of tokens) spans, in order."""
    tiles = []
    first_token = 0
    for row, start, count in spans:
        for offset in range(0, count, TILE_QUERIES):
            tiles.append((row, first_token + offset, start + offset, min(TILE_QUERIES, count - offset)))
        first_token += count
    return tiles
