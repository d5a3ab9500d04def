"""Decode attention: one new token a row over its paged keys, split among programs (flash-decoding, Dao et al. 2023).

A row's keys are cut at fixed multiples of a split's size; the programs of a row and KV head take the splits in turns,
and the last to arrive adds the parts up in order. The cuts depend on the row alone, so a row's result is the same bits
in any batch. Queries of one KV head are packed into one tile (GQA).
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def capped(scores, SOFT_CAP: tl.constexpr):
    """cap * tanh(scores / cap), where scores and SOFT_CAP are in units of log2(e); 0 is no cap."""
    if SOFT_CAP > 0:
        turned = tl.exp2(scores * (2.0 * 1.4426950408889634 / SOFT_CAP))
        scores = SOFT_CAP * (1.0 - 2.0 / (turned + 1.0))
    return scores


@triton.jit
def decode_kernel(
    query, query_stride, keys, values, out, positions, tables, table_stride, parts, part_stats, arrivals, scale_log2,
    window, NUM_HEADS: tl.constexpr, NUM_KV_HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    GROUP: tl.constexpr, GROUP_POW2: tl.constexpr, TILE_Q: tl.constexpr, TILE_KV: tl.constexpr, TILES: tl.constexpr,
    MAX_SPLITS: tl.constexpr, CHUNK: tl.constexpr, SOFT_CAP: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    kv_head = tl.program_id(0)
    index = tl.program_id(1)
    program = tl.program_id(2)
    num_keys = tl.load(positions + index) + 1
    first_key = tl.maximum(num_keys - window, 0)
    SPLIT: tl.constexpr = TILES * TILE_KV
    first_split = first_key // SPLIT
    num_splits = (num_keys - 1) // SPLIT + 1 - first_split
    num_active = tl.minimum(num_splits, tl.num_programs(2))
    if program < num_active:
        dims = tl.arange(0, DIM)
        group = tl.arange(0, TILE_Q)
        in_group = group < GROUP
        first_head = kv_head * GROUP
        at_query = query + index.to(tl.int64) * query_stride + (first_head + group[:, None]) * DIM + dims[None, :]
        q = tl.load(at_query, mask=in_group[:, None], other=0.0)
        table = tables + index.to(tl.int64) * table_stride
        pair = index * NUM_KV_HEADS + kv_head

        peak = tl.full([TILE_Q], -1.0e30, tl.float32)
        total = tl.zeros([TILE_Q], tl.float32)
        acc = tl.zeros([TILE_Q, DIM], tl.float32)
        turns = (num_splits - program + num_active - 1) // num_active * TILES
        for turn in tl.range(0, turns, num_stages=STAGES):
            split = program + turn // TILES * num_active
            at = (first_split + split) * SPLIT + turn % TILES * TILE_KV + tl.arange(0, TILE_KV)
            seen = (at < num_keys) & (at >= first_key)
            blocks = tl.load(table + at // BLOCK_SIZE, mask=seen, other=0).to(tl.int64)
            slots = ((blocks * BLOCK_SIZE + at % BLOCK_SIZE) * NUM_KV_HEADS + kv_head) * DIM
            k = tl.load(keys + slots[:, None] + dims[None, :], mask=seen[:, None], other=0.0)
            v = tl.load(values + slots[:, None] + dims[None, :], mask=seen[:, None], other=0.0)
            scores = capped(tl.dot(q, tl.trans(k), input_precision="ieee") * scale_log2, SOFT_CAP)
            scores = tl.where(seen[None, :], scores, -1.0e30)
            new_peak = tl.maximum(peak, tl.max(scores, axis=1))
            weights = tl.where(seen[None, :], tl.exp2(scores - new_peak[:, None]), 0.0)
            shrink = tl.exp2(peak - new_peak)
            total = total * shrink + tl.sum(weights, axis=1)
            acc = acc * shrink[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
            peak = new_peak
            if turn % TILES == TILES - 1:
                if num_splits == 1:
                    at_out = out + (index * NUM_HEADS + first_head + group[:, None]) * DIM + dims[None, :]
                    tl.store(at_out, (acc / total[:, None]).to(out.dtype.element_ty), mask=in_group[:, None])
                else:
                    base = (pair * MAX_SPLITS + split) * GROUP + group
                    at_part = parts + base.to(tl.int64)[:, None] * DIM + dims[None, :]
                    tl.store(at_part, acc, mask=in_group[:, None], cache_modifier=".cg")
                    tl.store(part_stats + base * 2, peak, mask=in_group, cache_modifier=".cg")
                    tl.store(part_stats + base * 2 + 1, total, mask=in_group, cache_modifier=".cg")
                peak = tl.full([TILE_Q], -1.0e30, tl.float32)
                total = tl.zeros([TILE_Q], tl.float32)
                acc = tl.zeros([TILE_Q, DIM], tl.float32)

        if num_splits > 1:
            tl.debug_barrier()
            if tl.atomic_add(arrivals + pair, 1, sem="acq_rel") == num_active - 1:
                tl.debug_barrier()
                _combine(
                    out + (index * NUM_HEADS + first_head) * DIM, parts, part_stats, pair * MAX_SPLITS, num_splits,
                    DIM, GROUP, GROUP_POW2, CHUNK,
                )  # fmt: skip
                tl.store(arrivals + pair, 0)


@triton.jit
def _combine(
    out, parts, part_stats, first_part, num_splits, DIM: tl.constexpr, GROUP: tl.constexpr, GROUP_POW2: tl.constexpr,
    CHUNK: tl.constexpr,
):  # fmt: skip
    """Adds up the parts of a row and KV head, CHUNK at a time: as many are on their way at once."""
    dims = tl.arange(0, DIM)
    group = tl.arange(0, GROUP_POW2)
    peak = tl.full([GROUP_POW2], -1.0e30, tl.float32)
    total = tl.zeros([GROUP_POW2], tl.float32)
    acc = tl.zeros([GROUP_POW2, DIM], tl.float32)
    for start in tl.range(0, num_splits, CHUNK, num_stages=1):
        splits = start + tl.arange(0, CHUNK)
        known = (splits < num_splits)[:, None] & (group < GROUP)[None, :]
        base = ((first_part + splits) * GROUP)[:, None] + group[None, :]
        peaks = tl.load(part_stats + base * 2, mask=known, other=-1.0e30, cache_modifier=".cg")
        totals = tl.load(part_stats + base * 2 + 1, mask=known, other=0.0, cache_modifier=".cg")
        at_part = parts + base.to(tl.int64)[:, :, None] * DIM + dims[None, None, :]
        part = tl.load(at_part, mask=known[:, :, None], other=0.0, cache_modifier=".cg")
        new_peak = tl.maximum(peak, tl.max(peaks, axis=0))
        shrink = tl.exp2(peak - new_peak)
        grow = tl.exp2(peaks - new_peak[None, :])
        acc = acc * shrink[:, None] + tl.sum(part * grow[:, :, None], axis=0)
        total = total * shrink + tl.sum(totals * grow, axis=0)
        peak = new_peak
    y = acc / total[:, None]
    tl.store(out + group[:, None] * DIM + dims[None, :], y.to(out.dtype.element_ty), mask=(group < GROUP)[:, None])
