"""Prefill attention: chunks of new tokens, packed, over their rows' paged keys, causal.

A program takes a tile of one head's queries over all keys they see, or a part of them: then the last to arrive adds
the parts up in order.
"""

from __future__ import annotations

import triton
import triton.language as tl

from inference.runner.kernels.decode_attention import capped


@triton.jit
def _attend(
    q, at_query, keys, values, table, kv_head, start, num_keys, peak, total, acc, scale_log2, window,
    NUM_KV_HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, TILE_KV: tl.constexpr,
    SOFT_CAP: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """One tile of keys and values from `start` on; without MASKED every query sees all of them."""
    at = start + tl.arange(0, TILE_KV)
    dims = tl.arange(0, DIM)
    if MASKED:
        known = at < num_keys
        blocks = tl.load(table + at // BLOCK_SIZE, mask=known, other=0).to(tl.int64)
        slots = ((blocks * BLOCK_SIZE + at % BLOCK_SIZE) * NUM_KV_HEADS + kv_head) * DIM
        k = tl.load(keys + slots[:, None] + dims[None, :], mask=known[:, None], other=0.0)
        v = tl.load(values + slots[:, None] + dims[None, :], mask=known[:, None], other=0.0)
    else:
        blocks = tl.load(table + at // BLOCK_SIZE).to(tl.int64)
        slots = ((blocks * BLOCK_SIZE + at % BLOCK_SIZE) * NUM_KV_HEADS + kv_head) * DIM
        k = tl.load(keys + slots[:, None] + dims[None, :])
        v = tl.load(values + slots[:, None] + dims[None, :])
    scores = capped(tl.dot(q, tl.trans(k), input_precision="ieee") * scale_log2, SOFT_CAP)
    if MASKED:
        seen = (at[None, :] <= at_query[:, None]) & (at[None, :] > at_query[:, None] - window)
        scores = tl.where(seen, scores, -1.0e30)
    new_peak = tl.maximum(peak, tl.max(scores, axis=1))
    weights = tl.exp2(scores - new_peak[:, None])
    if MASKED:
        weights = tl.where(seen, weights, 0.0)
    shrink = tl.exp2(peak - new_peak)
    total = total * shrink + tl.sum(weights, axis=1)
    acc = acc * shrink[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
    return new_peak, total, acc


@triton.jit
def prefill_kernel(
    qkv, keys, values, out, tiles, block_table, table_stride, parts, part_stats, arrivals, scale_log2, window,
    NUM_HEADS: tl.constexpr, NUM_KV_HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    SOFT_CAP: tl.constexpr, HAS_WINDOW: tl.constexpr, TILE_Q: tl.constexpr, TILE_KV: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0)
    tile = tiles + tl.program_id(1) * 8
    count = tl.load(tile + 3)
    if count > 0:
        kv_head = head // (NUM_HEADS // NUM_KV_HEADS)
        first_position = tl.load(tile + 2)
        first_seen = tl.maximum(first_position - window + 1, 0) // TILE_KV * TILE_KV
        key_begin = tl.maximum(tl.load(tile + 4), first_seen)
        key_end = tl.load(tile + 5)
        queries = tl.arange(0, TILE_Q)
        live = queries < count
        at_query = first_position + queries
        dims = tl.arange(0, DIM)
        token = (tl.load(tile + 1) + queries).to(tl.int64)
        at_qkv = qkv + token[:, None] * ((NUM_HEADS + 2 * NUM_KV_HEADS) * DIM) + head * DIM + dims[None, :]
        q = tl.load(at_qkv, mask=live[:, None], other=0.0)
        table = block_table + tl.load(tile).to(tl.int64) * table_stride

        peak = tl.full([TILE_Q], -1.0e30, tl.float32)
        total = tl.zeros([TILE_Q], tl.float32)
        acc = tl.zeros([TILE_Q, DIM], tl.float32)
        # Tiles of keys before `edge` are seen whole by every query.
        edge = key_begin if HAS_WINDOW else tl.minimum((first_position + 1) // TILE_KV * TILE_KV, key_end)
        edge = tl.maximum(edge, key_begin)
        for start in tl.range(key_begin, edge, TILE_KV, num_stages=STAGES):
            peak, total, acc = _attend(
                q, at_query, keys, values, table, kv_head, start, key_end, peak, total, acc, scale_log2, window,
                NUM_KV_HEADS, DIM, BLOCK_SIZE, TILE_KV, SOFT_CAP, False,
            )  # fmt: skip
        for start in tl.range(edge, key_end, TILE_KV, num_stages=STAGES):
            peak, total, acc = _attend(
                q, at_query, keys, values, table, kv_head, start, key_end, peak, total, acc, scale_log2, window,
                NUM_KV_HEADS, DIM, BLOCK_SIZE, TILE_KV, SOFT_CAP, True,
            )  # fmt: skip

        first_part = tl.load(tile + 6)
        num_parts = tl.load(tile + 7) & 0xFFFF
        part = first_part + (tl.load(tile + 7) >> 16)
        mine = True
        if num_parts > 1:
            at_part = parts + (part * NUM_HEADS + head).to(tl.int64) * TILE_Q * DIM
            inner = queries[:, None] * DIM + dims[None, :]
            at_stats = part_stats + (part * NUM_HEADS + head) * 2 * TILE_Q + queries
            tl.store(at_part + inner, acc, cache_modifier=".cg")
            tl.store(at_stats, peak, cache_modifier=".cg")
            tl.store(at_stats + TILE_Q, total, cache_modifier=".cg")
            tl.debug_barrier()
            counter = arrivals + first_part * NUM_HEADS + head  # the first part's counter is the tile's
            mine = tl.atomic_add(counter, 1, sem="acq_rel") == num_parts - 1
            if mine:
                tl.debug_barrier()
                peak = tl.full([TILE_Q], -1.0e30, tl.float32)
                total = tl.zeros([TILE_Q], tl.float32)
                acc = tl.zeros([TILE_Q, DIM], tl.float32)
                for other in tl.range(first_part, first_part + num_parts, num_stages=1):
                    at_part = parts + (other * NUM_HEADS + head).to(tl.int64) * TILE_Q * DIM
                    at_stats = part_stats + (other * NUM_HEADS + head) * 2 * TILE_Q + queries
                    part_acc = tl.load(at_part + inner, cache_modifier=".cg")
                    part_peak = tl.load(at_stats, cache_modifier=".cg")
                    part_total = tl.load(at_stats + TILE_Q, cache_modifier=".cg")
                    new_peak = tl.maximum(peak, part_peak)
                    shrink = tl.exp2(peak - new_peak)
                    grow = tl.exp2(part_peak - new_peak)
                    acc = acc * shrink[:, None] + part_acc * grow[:, None]
                    total = total * shrink + part_total * grow
                    peak = new_peak
                tl.store(counter, 0)
        if mine:
            at_out = out + (token[:, None] * NUM_HEADS + head) * DIM + dims[None, :]
            tl.store(at_out, (acc / total[:, None]).to(out.dtype.element_ty), mask=live[:, None])
