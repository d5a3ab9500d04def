"""The kernel of linear layers for few rows whose weights are small: 8 or 16 outputs a program.

Where tiles of 64 outputs are too few to keep the memory busy, kernels.tiled_linear lets several programs share a tile,
and their sums must meet in memory: a microsecond and more. Here they meet within a program. Each reads all of x, which
costs more with every row, and with every input.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait


@triton.jit(do_not_specialize=["num_rows"])
def narrow_kernel(
    x, weight, out, bias, residual, squares_out, num_rows, num_outputs,
    K: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_RESIDUAL: tl.constexpr, GIVES_SQUARES: tl.constexpr,
    MAX_ROWS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUPS: tl.constexpr,
    STARTS_EARLY: tl.constexpr,
):  # fmt: skip
    """GROUPS parts of BLOCK_K inputs at a time, one a warp. Grid (tiles,). STARTS_EARLY: see kernels.overlap."""
    tile = tl.program_id(0)
    cols = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    rows = tl.arange(0, BLOCK_M)
    live = rows < num_rows
    in_range = cols < num_outputs
    at_out = rows[:, None] * num_outputs + cols[None, :]
    out_mask = live[:, None] & in_range[None, :]
    if HAS_RESIDUAL:
        before = tl.load(residual + at_out, mask=out_mask, other=0.0)
    if HAS_BIAS:
        offset = tl.load(bias + cols, mask=in_range, other=0.0)

    parts = tl.arange(0, GROUPS)[:, None] * BLOCK_K + tl.arange(0, BLOCK_K)[None, :]
    acc = tl.zeros([GROUPS, BLOCK_M, BLOCK_N], tl.float32)
    if STARTS_EARLY:
        # All of the program's weights are on their way before x is there; with few rows, registers hold them.
        ws = ()
        for start in tl.static_range(0, K, GROUPS * BLOCK_K):
            at = cols[None, None, :] * K + (start + parts)[:, :, None]
            w = tl.load(weight + at, mask=in_range[None, None, :], other=0.0)
            ws = ws + (w,)  # type: ignore[assignment]  # noqa: RUF005  Triton knows no *
        gdc_wait()
        for step in tl.static_range(K // (GROUPS * BLOCK_K)):
            ks = step * GROUPS * BLOCK_K + parts
            xs = tl.load(x + rows[None, :, None] * K + ks[:, None, :], mask=live[None, :, None], other=0.0)
            acc = tl.dot(xs, ws[step], acc, input_precision="ieee")
    else:
        for start in range(0, K, GROUPS * BLOCK_K):
            ks = start + parts
            xs = tl.load(x + rows[None, :, None] * K + ks[:, None, :], mask=live[None, :, None], other=0.0)
            at = cols[None, None, :] * K + ks[:, :, None]
            w = tl.load(weight + at, mask=in_range[None, None, :], other=0.0)
            acc = tl.dot(xs, w, acc, input_precision="ieee")

    y = tl.sum(acc, axis=0)
    if HAS_BIAS:
        y += offset.to(tl.float32)[None, :]
    if HAS_RESIDUAL:
        y += before.to(tl.float32)
    rounded = y.to(out.dtype.element_ty)
    tl.store(out + at_out, rounded, mask=out_mask)
    if GIVES_SQUARES:
        exact = tl.where(out_mask, rounded.to(tl.float32), 0.0)
        tl.store(squares_out + tile * MAX_ROWS + rows, tl.sum(exact * exact, axis=1))
