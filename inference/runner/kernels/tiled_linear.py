"""The kernel of linear layers for few rows: a tile of outputs a program, or some programs' where tiles are few."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents

from inference.runner.kernels.heads import finish_heads


@triton.jit
def activated(gate, GELU: tl.constexpr):
    """SiLU, or GELU as tanh approximates it: with 1 + tanh(z) = 2 / (1 + exp(-2 z)), of the same form."""
    inner = gate
    if GELU:
        inner = 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate)
    return gate / (1.0 + tl.exp(-inner))


@triton.jit(do_not_specialize=["num_rows", "num_squares"])
def tiled_kernel(
    x, weight, out, bias, norm_weight, residual, squares_in, squares_out, partials, arrivals, num_rows, num_outputs,
    num_squares, slots, rotations, keys, values, query_norm, key_norm,
    K: tl.constexpr, eps: tl.constexpr, HAS_NORM: tl.constexpr, HAS_NORM_WEIGHT: tl.constexpr,
    HAS_BIAS: tl.constexpr, HAS_RESIDUAL: tl.constexpr, GIVES_SQUARES: tl.constexpr, MOST_SQUARES: tl.constexpr,
    MAX_ROWS: tl.constexpr, GATED: tl.constexpr, GELU: tl.constexpr, HEAD_DIM: tl.constexpr, NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr, HAS_HEAD_NORM: tl.constexpr, head_eps: tl.constexpr, ROTATES: tl.constexpr,
    ROTATION_STRIDE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
    LETS_NEXT_START: tl.constexpr,
):  # fmt: skip
    if LETS_NEXT_START:
        gdc_launch_dependents()
    tile = tl.program_id(0)
    part = tl.program_id(1)
    cols = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    rows = tl.arange(0, BLOCK_M)
    live = rows < num_rows
    in_range = cols < num_outputs
    width = num_outputs // 2 if GATED else num_outputs
    out_cols = tile * (BLOCK_N // 2) + tl.arange(0, BLOCK_N // 2) if GATED else cols
    at_out = rows.to(tl.int64)[None, :] * width + out_cols[:, None]
    out_mask = live[None, :] & (out_cols < width)[:, None]
    steps: tl.constexpr = (K + BLOCK_K * SPLIT_K - 1) // (BLOCK_K * SPLIT_K)

    # What the end needs is asked for here, so that it arrives while the weights do.
    if HAS_NORM:
        sources = tl.arange(0, MOST_SQUARES)
        at_squares = squares_in + sources[:, None] * MAX_ROWS + tl.arange(0, MAX_ROWS)[None, :]
        squares = tl.load(at_squares, mask=(sources < num_squares)[:, None], other=0.0)
    if HAS_RESIDUAL:
        before = tl.load(residual + at_out, mask=out_mask, other=0.0)
    if HAS_BIAS:
        offset = tl.load(bias + cols, mask=in_range, other=0.0)
    if HEAD_DIM > 0:
        half = tl.arange(0, HEAD_DIM // 2)
        row_slots = tl.load(slots + rows, mask=live, other=0)
        cos = row_slots
        sin = row_slots
        if ROTATES:
            at_turns = rotations + rows[None, :] * ROTATION_STRIDE + half[:, None]
            cos = tl.load(at_turns, mask=live[None, :], other=0.0)
            sin = tl.load(at_turns + HEAD_DIM // 2, mask=live[None, :], other=0.0)
        head_norm = row_slots
        if HAS_HEAD_NORM:
            norm_of_head = query_norm
            if tile >= NUM_HEADS:
                norm_of_head = key_norm
            head_norm = tl.load(norm_of_head + tl.arange(0, HEAD_DIM))

    acc = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    for step in range(steps):
        ks = (part * steps + step) * BLOCK_K + tl.arange(0, BLOCK_K)
        inside = ks < K
        at = cols.to(tl.int64)[:, None] * K + ks[None, :]
        w = tl.load(weight + at, mask=in_range[:, None] & inside[None, :], other=0.0)
        xt = tl.load(x + rows[None, :] * K + ks[:, None], mask=live[None, :] & inside[:, None], other=0.0)
        if HAS_NORM_WEIGHT:
            scale = tl.load(norm_weight + ks, mask=inside, other=0.0).to(tl.float32)
            xt = (xt.to(tl.float32) * scale[:, None]).to(w.dtype)
        acc = tl.dot(w, xt, acc, input_precision="ieee")

    mine = True
    if SPLIT_K > 1:
        # Columns are stored as rows of outputs, so that a thread holds the same outputs whatever BLOCK_M is.
        at_part = partials + (tile * SPLIT_K + part) * BLOCK_N * BLOCK_M
        inner = tl.arange(0, BLOCK_N)[:, None] + rows[None, :] * BLOCK_N
        tl.store(at_part + inner, acc, cache_modifier=".cg")
        tl.debug_barrier()
        mine = tl.atomic_add(arrivals + tile, 1, sem="acq_rel") == SPLIT_K - 1
        if mine:
            tl.debug_barrier()
            acc = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
            for other in tl.static_range(SPLIT_K):
                base = tile * SPLIT_K + other
                acc += tl.load(partials + base * BLOCK_N * BLOCK_M + inner, cache_modifier=".cg")
            tl.store(arrivals + tile, 0)
    if mine:
        if HAS_NORM:
            total = tl.sum(squares, axis=0)
            if BLOCK_M < MAX_ROWS:
                # Summed for MAX_ROWS rows always, in one order; then the first BLOCK_M are taken.
                groups = tl.reshape(total, [MAX_ROWS // BLOCK_M, BLOCK_M])
                total = tl.sum(tl.where(tl.arange(0, MAX_ROWS // BLOCK_M)[:, None] == 0, groups, 0.0), axis=0)
            acc = acc * tl.rsqrt(total / K + eps)[None, :]
        if HAS_BIAS:
            acc += offset.to(tl.float32)[:, None]
        if HEAD_DIM > 0:
            finish_heads(
                acc, tile, rows, live, row_slots, cos, sin, head_norm, out, keys, values, head_eps,
                NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, HAS_HEAD_NORM, ROTATES, BLOCK_M,
            )  # fmt: skip
        else:
            y = acc
            if GATED:
                pairs = tl.permute(tl.reshape(acc, [BLOCK_N // 2, 2, BLOCK_M]), [0, 2, 1])
                gate, up = tl.split(pairs)
                y = activated(gate, GELU) * up
            if HAS_RESIDUAL:
                y += before.to(tl.float32)
            rounded = y.to(out.dtype.element_ty)
            tl.store(out + at_out, rounded, mask=out_mask)
            if GIVES_SQUARES:
                exact = tl.where(out_mask, rounded.to(tl.float32), 0.0)
                tl.store(squares_out + tile * MAX_ROWS + rows, tl.sum(exact * exact, axis=0))
