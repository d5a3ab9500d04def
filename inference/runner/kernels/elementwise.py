"""What stands between the linear layers of many rows, or behind those that are normed: the gate, and the addition."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from inference.runner.kernels.linear import RowSquares
from inference.runner.kernels.tiled_linear import activated


@triton.jit
def _gate_kernel(pairs, out, width, GELU: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    both = tl.program_id(1) * 2 * BLOCK + tl.arange(0, 2 * BLOCK)
    x = tl.load(pairs + row * 2 * width + both, mask=both < 2 * width, other=0.0).to(tl.float32)
    gate, up = tl.split(tl.reshape(x, [BLOCK, 2]))
    y = activated(gate, GELU) * up
    tl.store(out + row * width + cols, y.to(out.dtype.element_ty), mask=cols < width)


def gated(pairs: torch.Tensor, gelu: bool = False) -> torch.Tensor:
    """As SmallLinear's, of outputs that come in pairs (gate, up): [T, 2 * width] to [T, width]."""
    num_rows, width = pairs.shape[0], pairs.shape[1] // 2
    out = pairs.new_empty(num_rows, width)
    _gate_kernel[(num_rows, triton.cdiv(width, 1024))](pairs, out, width, GELU=gelu, BLOCK=1024, num_warps=4)
    return out


@triton.jit
def _add_normed_kernel(
    x, weight, hidden, squares, eps: tl.constexpr, GIVES_SQUARES: tl.constexpr, WIDTH: tl.constexpr,
    WIDTH_POW2: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, WIDTH_POW2)
    live = cols < WIDTH
    added = tl.load(x + row * WIDTH + cols, mask=live, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(added * added, axis=0) / WIDTH + eps)
    before = tl.load(hidden + row * WIDTH + cols, mask=live, other=0.0).to(tl.float32)
    y = before + added * scale * tl.load(weight + cols, mask=live, other=0.0).to(tl.float32)
    rounded = y.to(hidden.dtype.element_ty)
    tl.store(hidden + row * WIDTH + cols, rounded, mask=live)
    if GIVES_SQUARES:
        exact = rounded.to(tl.float32)
        tl.store(squares + row, tl.sum(exact * exact, axis=0))


def add_normed(
    x: torch.Tensor, weight: torch.Tensor, eps: float, hidden: torch.Tensor, squares: RowSquares | None
) -> None:
    """hidden += RMSNorm(x), in place. x, hidden: [T, width]; squares: where those of the result are left, if T <=
    MAX_ROWS. One program a row. Reference: F.rms_norm.
    """
    num_rows, width = x.shape
    _add_normed_kernel[(num_rows,)](
        x, weight, hidden, None if squares is None else squares.parts, eps, GIVES_SQUARES=squares is not None,
        WIDTH=width, WIDTH_POW2=triton.next_power_of_2(width), num_warps=4,
    )  # fmt: skip
    if squares is not None:
        squares.count = 1
