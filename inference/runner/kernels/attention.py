"""Attention over the paged cache: split-KV decode and varlen prefill. New tokens are in the cache already.

Decode (flash-decoding, Dao et al. 2023): a row's keys are cut at fixed multiples of a split's size; the programs of a
row and KV head take the splits in turns, and the last to arrive adds the parts up in order. The cuts depend on the row
alone, so a row's result is the same bits in any batch. Queries of one KV head are packed into one tile (GQA).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from inference.runner.kernels.heads import HeadShape, LayerAttention

_LOG2E = 1.4426950408889634
_MOST_SPLITS = 256
_NO_WINDOW = 1 << 30
_TILE_KV = 64
TILE_QUERIES = 64


@triton.jit
def _decode_kernel(
    query, query_stride, keys, values, out, positions, tables, table_stride, parts, part_stats, arrivals, scale_log2,
    window, NUM_HEADS: tl.constexpr, NUM_KV_HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    GROUP: tl.constexpr, GROUP_POW2: tl.constexpr, TILE_Q: tl.constexpr, TILE_KV: tl.constexpr, TILES: tl.constexpr,
    MAX_SPLITS: tl.constexpr, CHUNK: tl.constexpr, STAGES: tl.constexpr,
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
            scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale_log2
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
class DecodeTiling:
    """A split is a tile of tile_kv tokens, or more where contexts are long; see tests/bench/tune_attention.py.

    programs_per_sm: how many programs a multiprocessor is given at least, while there are splits enough.
    """

    tile_kv: int = 64
    num_warps: int = 2
    num_stages: int = 3
    programs_per_sm: int = 3


class PagedAttention:
    """Launches the kernels; holds what all layers share. One stream only: layers take turns with the scratch.

    block_table: [max_rows, max_blocks] int32; max_model_len and max_batch bound what decode is asked.
    """

    def __init__(
        self, shape: HeadShape, block_table: torch.Tensor, block_size: int, *, max_model_len: int, max_batch: int,
        tiling: DecodeTiling | None = None,
    ) -> None:  # fmt: skip
        self._tiling = tiling or choose_decode_tiling(shape.head_dim)
        self._shape, self._block_table, self._block_size = shape, block_table, block_size
        self._tiles = triton.next_power_of_2(triton.cdiv(max_model_len, _MOST_SPLITS * self._tiling.tile_kv))
        self._max_splits = triton.cdiv(max_model_len, self._tiles * self._tiling.tile_kv)
        self._group = shape.num_heads // shape.num_kv_heads
        num_pairs, device = max_batch * shape.num_kv_heads, block_table.device
        num_parts = num_pairs * self._max_splits * self._group
        self._parts = torch.empty(num_parts * shape.head_dim, dtype=torch.float32, device=device)
        self._part_stats = torch.empty(num_parts * 2, dtype=torch.float32, device=device)
        self._arrivals = torch.zeros(num_pairs, dtype=torch.int32, device=device)
        self._num_sms = torch.cuda.get_device_properties(device).multi_processor_count if block_table.is_cuda else 1

    def decode(
        self, layer: LayerAttention, query: torch.Tensor, positions: torch.Tensor, tables: torch.Tensor,
        out: torch.Tensor,
    ) -> None:  # fmt: skip
        """One new token a row, which the cache holds already; writes out, [B, heads * head_dim].

        query: [B, >= heads * head_dim], rotated, rows maybe apart; positions: [B] int32; tables: [B, max_blocks] int32,
        the rows' block tables. Grid (num_kv_heads, B, programs that share a row's splits).
        """
        shape, tiling, batch = self._shape, self._tiling, query.shape[0]
        wanted = triton.cdiv(tiling.programs_per_sm * self._num_sms, batch * shape.num_kv_heads)
        group = triton.next_power_of_2(self._group)
        _decode_kernel[(shape.num_kv_heads, batch, min(self._max_splits, wanted))](
            query, query.stride(0), layer.keys, layer.values, out, positions, tables, tables.stride(0), self._parts,
            self._part_stats, self._arrivals, layer.scale * _LOG2E, layer.window or _NO_WINDOW,
            NUM_HEADS=shape.num_heads, NUM_KV_HEADS=shape.num_kv_heads, DIM=shape.head_dim,
            BLOCK_SIZE=self._block_size, GROUP=self._group, GROUP_POW2=group, TILE_Q=max(16, group),
            TILE_KV=tiling.tile_kv, TILES=self._tiles, MAX_SPLITS=self._max_splits, CHUNK=max(2, 32 // group),
            STAGES=tiling.num_stages, num_warps=tiling.num_warps,
        )  # fmt: skip

    def prefill(self, layer: LayerAttention, qkv: torch.Tensor, tiles: torch.Tensor, out: torch.Tensor) -> None:
        """Causal attention of packed chunks whose queries and keys store_heads has dealt with.

        tiles: [n, 4] int32 (row, first token in qkv, its position, number of queries <= 64). Grid (n, num_heads).
        """
        shape = self._shape
        _prefill_kernel[(tiles.shape[0], shape.num_heads)](
            qkv, layer.keys, layer.values, out, tiles, self._block_table, self._block_table.stride(0),
            layer.scale * _LOG2E, layer.window or _NO_WINDOW,
            NUM_HEADS=shape.num_heads, NUM_KV_HEADS=shape.num_kv_heads, DIM=shape.head_dim,
            BLOCK_SIZE=self._block_size, TILE_Q=TILE_QUERIES, TILE_KV=_TILE_KV, num_warps=4, num_stages=2,
        )  # fmt: skip


def choose_decode_tiling(head_dim: int) -> DecodeTiling:
    """What was fastest on an H200 on the whole, at contexts of 400 and 1,900 tokens and 1 to 32 rows."""
    if head_dim <= 64:
        return DecodeTiling(64, num_warps=1, num_stages=2, programs_per_sm=6)
    return DecodeTiling(64, num_warps=2, num_stages=3, programs_per_sm=3)


def tiles_of(spans: list[tuple[int, int, int]], first_token: int = 0) -> list[tuple[int, int, int, int]]:
    """The prefill tiles of packed (row, start position, number of tokens) spans that begin at first_token, in order."""
    tiles = []
    for row, start, count in spans:
        for offset in range(0, count, TILE_QUERIES):
            tiles.append((row, first_token + offset, start + offset, min(TILE_QUERIES, count - offset)))
        first_token += count
    return tiles
