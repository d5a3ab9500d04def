"""Decode attention: one new token a row over its paged keys, split among programs (flash-decoding, Dao et al. 2023).

A row's keys are cut at multiples of a split's size, which grows with what the row sees, and CHUNK splits are a chunk.
Splits are added up in order within their chunk, then the chunks: one program does a chunk by itself where rows and
heads are enough to keep the memory busy; else programs take splits in turns, and the last to arrive adds up what they
left. Size and order depend on the row alone, so a row's result is the same bits in any batch. Queries of one KV head
are packed into one tile (GQA).
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


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
    GROUP: tl.constexpr, GROUP_POW2: tl.constexpr, TILE_Q: tl.constexpr, TILE_KV: tl.constexpr,
    MOST_SPLITS: tl.constexpr, MAX_SPLITS: tl.constexpr, CHUNK: tl.constexpr, BY_CHUNK: tl.constexpr,
    SOFT_CAP: tl.constexpr, STAGES: tl.constexpr, UNROLL: tl.constexpr, STARTS_EARLY: tl.constexpr,
    LETS_NEXT_START: tl.constexpr, MOST_NEW: tl.constexpr,
):  # fmt: skip
    """A row that sees much has MOST_SPLITS splits, and one more where its window begins within one; MAX_SPLITS: parts
    that there is room for. BY_CHUNK: a program does whole chunks. STARTS_EARLY: see kernels.overlap; the kernel before
    leaves the queries, and at most MOST_NEW of a row's keys and values, the newest ones."""
    if LETS_NEXT_START:
        gdc_launch_dependents()
    kv_head = tl.program_id(0)
    index = tl.program_id(1)
    program = tl.program_id(2)
    num_keys = tl.load(positions + index) + 1
    first_key = tl.maximum(num_keys - window, 0)
    # A row that sees more has larger splits, not more of them: adding them up takes one program's time.
    tiles = (num_keys - first_key + MOST_SPLITS * TILE_KV - 1) // (MOST_SPLITS * TILE_KV)
    split_keys = tiles * TILE_KV
    first_split = first_key // split_keys
    num_splits = (num_keys - 1) // split_keys + 1 - first_split
    # A part is what a program leaves at once.
    SPLITS_A_PART: tl.constexpr = CHUNK if BY_CHUNK else 1
    num_parts = (num_splits + SPLITS_A_PART - 1) // SPLITS_A_PART
    num_active = tl.minimum(num_parts, tl.num_programs(2))
    if program < num_active:
        dims = tl.arange(0, DIM)
        group = tl.arange(0, TILE_Q)
        in_group = group < GROUP
        first_head = kv_head * GROUP
        at_query = query + index.to(tl.int64) * query_stride + (first_head + group[:, None]) * DIM + dims[None, :]
        table = tables + index.to(tl.int64) * table_stride
        pair = index * NUM_KV_HEADS + kv_head
        own_parts = (num_parts - program + num_active - 1) // num_active
        own_splits = own_parts * SPLITS_A_PART
        own_last = program + (own_parts - 1) * num_active
        if own_last == num_parts - 1:
            own_splits -= num_parts * SPLITS_A_PART - num_splits
        if STARTS_EARLY:
            q = tl.zeros([TILE_Q, DIM], query.dtype.element_ty)
            # Other entries of the pass may be the row's tokens just before.
            first_new = tl.maximum(num_keys - MOST_NEW, first_key) // split_keys - first_split
            if own_last >= first_new // SPLITS_A_PART:
                gdc_wait()  # what it reads first may be what is still being written
        else:
            q = tl.load(at_query, mask=in_group[:, None], other=0.0)

        peak = tl.full([TILE_Q], -1.0e30, tl.float32)
        total = tl.zeros([TILE_Q], tl.float32)
        acc = tl.zeros([TILE_Q, DIM], tl.float32)
        part_peak, part_total, part_acc = peak, total, acc
        for turn in tl.range(0, own_splits * tiles, num_stages=STAGES):
            step = turn // tiles
            tile = turn - step * tiles
            part = program + step // SPLITS_A_PART * num_active
            split = part * SPLITS_A_PART + step % SPLITS_A_PART
            at = (first_split + split) * split_keys + tile * TILE_KV + tl.arange(0, TILE_KV)
            seen = (at < num_keys) & (at >= first_key)
            blocks = tl.load(table + at // BLOCK_SIZE, mask=seen, other=0).to(tl.int64)
            slots = ((blocks * BLOCK_SIZE + at % BLOCK_SIZE) * NUM_KV_HEADS + kv_head) * DIM
            k = tl.load(keys + slots[:, None] + dims[None, :], mask=seen[:, None], other=0.0)
            v = tl.load(values + slots[:, None] + dims[None, :], mask=seen[:, None], other=0.0)
            if STARTS_EARLY and turn == 0:
                gdc_wait()
                q = tl.load(at_query, mask=in_group[:, None], other=0.0)
            scores = capped(tl.dot(q, tl.trans(k), input_precision="ieee") * scale_log2, SOFT_CAP)
            scores = tl.where(seen[None, :], scores, -1.0e30)
            new_peak = tl.maximum(peak, tl.max(scores, axis=1))
            weights = tl.where(seen[None, :], tl.exp2(scores - new_peak[:, None]), 0.0)
            shrink = tl.exp2(peak - new_peak)
            total = total * shrink + tl.sum(weights, axis=1)
            acc = acc * shrink[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
            peak = new_peak
            if tile == tiles - 1:
                ends_part = True
                if BY_CHUNK:
                    part_peak, part_total, part_acc = _added(part_peak, part_total, part_acc, peak, total, acc)
                    ends_part = (step % CHUNK == CHUNK - 1) | (split == num_splits - 1)
                else:
                    part_peak, part_total, part_acc = peak, total, acc
                peak = tl.full([TILE_Q], -1.0e30, tl.float32)
                total = tl.zeros([TILE_Q], tl.float32)
                acc = tl.zeros([TILE_Q, DIM], tl.float32)
                if ends_part:
                    if num_parts == 1:
                        at_out = out + (index * NUM_HEADS + first_head + group[:, None]) * DIM + dims[None, :]
                        y = part_acc / part_total[:, None]
                        tl.store(at_out, y.to(out.dtype.element_ty), mask=in_group[:, None])
                    else:
                        base = (pair * MAX_SPLITS + part) * GROUP + group
                        at_part = parts + base.to(tl.int64)[:, None] * DIM + dims[None, :]
                        tl.store(at_part, part_acc, mask=in_group[:, None], cache_modifier=".cg")
                        tl.store(part_stats + base * 2, part_peak, mask=in_group, cache_modifier=".cg")
                        tl.store(part_stats + base * 2 + 1, part_total, mask=in_group, cache_modifier=".cg")
                    if BY_CHUNK:
                        part_peak, part_total, part_acc = peak, total, acc

        if num_parts > 1:
            tl.debug_barrier()
            if tl.atomic_add(arrivals + pair, 1, sem="acq_rel") == num_active - 1:
                tl.debug_barrier()
                _combine(
                    out + (index * NUM_HEADS + first_head) * DIM, parts, part_stats, pair * MAX_SPLITS, num_parts,
                    CHUNK // SPLITS_A_PART, DIM, GROUP, GROUP_POW2, UNROLL,
                )  # fmt: skip
                tl.store(arrivals + pair, 0)
    elif STARTS_EARLY:
        gdc_wait()


@triton.jit
def _added(peak, total, acc, other_peak, other_total, other_acc):
    """Both together. Written out, so that its bits are the same wherever it stands."""
    new_peak = tl.maximum(peak, other_peak)
    shrink = tl.exp2(peak - new_peak)
    grow = tl.exp2(other_peak - new_peak)
    total = tl.fma(other_total, grow, total * shrink)
    acc = tl.fma(other_acc, tl.broadcast_to(grow[:, None], acc.shape), acc * shrink[:, None])
    return new_peak, total, acc


@triton.jit
def _combine(
    out, parts, part_stats, first_part, num_parts, PARTS_A_CHUNK: tl.constexpr, DIM: tl.constexpr, GROUP: tl.constexpr,
    GROUP_POW2: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """Adds up the parts of a row and KV head in their order, UNROLL at a time: as many are on their way at once."""
    dims = tl.arange(0, DIM)
    group = tl.arange(0, GROUP_POW2)
    none_peak = tl.full([GROUP_POW2], -1.0e30, tl.float32)
    none_total = tl.zeros([GROUP_POW2], tl.float32)
    none_acc = tl.zeros([GROUP_POW2, DIM], tl.float32)
    peak, total, acc = none_peak, none_total, none_acc
    chunk_peak, chunk_total, chunk_acc = none_peak, none_total, none_acc
    for start in tl.range(0, num_parts, UNROLL, num_stages=1):
        for i in tl.static_range(UNROLL):
            part = start + i
            known = (group < GROUP) & (part < num_parts)
            base = (first_part + part) * GROUP + group
            at_part = parts + base.to(tl.int64)[:, None] * DIM + dims[None, :]
            part_peak = tl.load(part_stats + base * 2, mask=known, other=-1.0e30, cache_modifier=".cg")
            part_total = tl.load(part_stats + base * 2 + 1, mask=known, other=0.0, cache_modifier=".cg")
            part_acc = tl.load(at_part, mask=known[:, None], other=0.0, cache_modifier=".cg")
            chunk_peak, chunk_total, chunk_acc = _added(
                chunk_peak, chunk_total, chunk_acc, part_peak, part_total, part_acc
            )
            if (part + 1) % PARTS_A_CHUNK == 0:
                peak, total, acc = _added(peak, total, acc, chunk_peak, chunk_total, chunk_acc)
                chunk_peak, chunk_total, chunk_acc = none_peak, none_total, none_acc
    peak, total, acc = _added(peak, total, acc, chunk_peak, chunk_total, chunk_acc)
    y = acc / total[:, None]
    tl.store(out + group[:, None] * DIM + dims[None, :], y.to(out.dtype.element_ty), mask=(group < GROUP)[:, None])
