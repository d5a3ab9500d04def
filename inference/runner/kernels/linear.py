"""Linear layers for few rows (decode): one pass over the weights, with the norm before and what follows fused in.

At M <= 32 a linear layer waits for its weights alone, so everything else is made to fit into their time. Each output
is summed in one order whatever M is: a row's result is the same bits alone and in a batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from inference.runner.kernels.heads import HeadTargets, finish_heads

MAX_ROWS = 32
# Of the 227 KB of shared memory that a Hopper program may have, what weights on their way may take.
_STAGE_BYTES = 160 << 10


@dataclass(frozen=True, slots=True)
class Tiling:
    """block_n outputs by block_k inputs a tile; split_k programs share an output tile, the last to arrive adds up."""

    block_n: int
    block_k: int
    split_k: int
    num_warps: int = 4
    num_stages: int = 4


@triton.jit
def activated(gate, GELU: tl.constexpr):
    """SiLU, or GELU as tanh approximates it: with 1 + tanh(z) = 2 / (1 + exp(-2 z)), of the same form."""
    inner = gate
    if GELU:
        inner = 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate)
    return gate / (1.0 + tl.exp(-inner))


@triton.jit(do_not_specialize=["num_rows", "num_squares"])
def _linear_kernel(
    x, weight, out, bias, norm_weight, residual, squares_in, squares_out, partials, arrivals, num_rows, num_outputs,
    num_squares, slots, rotations, keys, values, query_norm, key_norm,
    K: tl.constexpr, eps: tl.constexpr, HAS_NORM: tl.constexpr, HAS_NORM_WEIGHT: tl.constexpr,
    HAS_BIAS: tl.constexpr, HAS_RESIDUAL: tl.constexpr, GIVES_SQUARES: tl.constexpr, MOST_SQUARES: tl.constexpr,
    MAX_ROWS: tl.constexpr, GATED: tl.constexpr, GELU: tl.constexpr, HEAD_DIM: tl.constexpr, NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr, HAS_HEAD_NORM: tl.constexpr, head_eps: tl.constexpr, ROTATES: tl.constexpr,
    ROTATION_STRIDE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
):  # fmt: skip
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


@dataclass(slots=True)
class RowSquares:
    """Sums of squares of the hidden states' rows, in parts: what an RMSNorm needs, left by whoever wrote the rows.

    parts: [MOST_PARTS, MAX_ROWS] float32; count: how many parts the last writer left.
    """

    parts: torch.Tensor
    count: int = 0

    MOST_PARTS: ClassVar[int] = 256

    @classmethod
    def on(cls, device: torch.device) -> RowSquares:
        return cls(torch.zeros(cls.MOST_PARTS, MAX_ROWS, dtype=torch.float32, device=device))


class SmallLinear:
    """One layer's weights and scratch, for at most MAX_ROWS rows.

    weight: [num_outputs, num_inputs] bf16, fp16 or fp32, contiguous. eps: an RMSNorm is applied to x first; its
    weight is `norm_weight`, or has been multiplied into `weight` (None). gated: outputs come in pairs (gate, up) and
    y = silu(gate) * up, half as wide; gelu: GELU (tanh) in silu's place. One stream only: the scratch of split-K tiles
    is the layer's own.
    """

    def __init__(
        self, weight: torch.Tensor, *, bias: torch.Tensor | None = None, eps: float | None = None,
        norm_weight: torch.Tensor | None = None, gated: bool = False, gelu: bool = False, head_dim: int = 0,
        tiling: Tiling | None = None,
    ) -> None:  # fmt: skip
        self.weight, self.bias, self.gated, self.eps, self.norm_weight = weight, bias, gated, eps, norm_weight
        self.gelu = gelu
        self.num_outputs, self.num_inputs = weight.shape
        self.tiling = tiling or fitting(
            choose_tiling(self.num_outputs, self.num_inputs, head_dim), weight.element_size()
        )
        self.num_tiles = triton.cdiv(self.num_outputs, self.tiling.block_n)
        parts = self.num_tiles * self.tiling.split_k if self.tiling.split_k > 1 else 0
        self._partials = weight.new_empty(max(1, parts * self.tiling.block_n * MAX_ROWS), dtype=torch.float32)
        self._arrivals = weight.new_zeros(self.num_tiles, dtype=torch.int32)

    @property
    def num_results(self) -> int:
        return self.num_outputs // 2 if self.gated else self.num_outputs

    def __call__(
        self, x: torch.Tensor, out: torch.Tensor, *, squares: RowSquares | None = None,
        residual: torch.Tensor | None = None, heads: HeadTargets | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """x: [M, num_inputs] contiguous, M <= MAX_ROWS; out: [M, num_results], any float dtype; residual may be out.

        squares: with a norm, those of x; with a residual, where those of the result are left. heads: the outputs are
        those of a QKV product, finished as finish_heads does; out takes the queries, [M, num_heads * head_dim].
        """
        tiling, num_rows = self.tiling, x.shape[0]
        assert heads is None or tiling.block_n == heads.shape.head_dim, "a tile of outputs is one head"
        gives_squares = residual is not None and squares is not None
        assert self.eps is None or (squares is not None and residual is None), "a norm needs the squares of its input"
        parts = None if squares is None else squares.parts
        _linear_kernel[(self.num_tiles, tiling.split_k)](
            x, self.weight, out, self.bias, self.norm_weight, residual, parts, parts, self._partials, self._arrivals,
            num_rows, self.num_outputs, 0 if squares is None else squares.count, *_head_tensors(heads),
            self.num_inputs, self.eps or 0.0,
            HAS_NORM=self.eps is not None, HAS_NORM_WEIGHT=self.norm_weight is not None,
            HAS_BIAS=self.bias is not None, HAS_RESIDUAL=residual is not None, GIVES_SQUARES=gives_squares,
            MOST_SQUARES=triton.next_power_of_2(max(1, 0 if squares is None else squares.count)), MAX_ROWS=MAX_ROWS,
            GATED=self.gated, GELU=self.gelu, HEAD_DIM=0 if heads is None else heads.shape.head_dim,
            NUM_HEADS=0 if heads is None else heads.shape.num_heads,
            NUM_KV_HEADS=1 if heads is None else heads.shape.num_kv_heads,
            HAS_HEAD_NORM=heads is not None and heads.layer.query_norm is not None,
            head_eps=0.0 if heads is None else heads.layer.eps,
            ROTATES=heads is not None and heads.layer.rotates,
            ROTATION_STRIDE=0 if heads is None else heads.rotations.stride(0),
            BLOCK_M=16 if num_rows <= 16 else MAX_ROWS, BLOCK_N=tiling.block_n, BLOCK_K=tiling.block_k,
            SPLIT_K=tiling.split_k, num_warps=tiling.num_warps,
            num_stages=tiling.num_stages if num_rows <= 16 else min(4, tiling.num_stages),
        )  # fmt: skip
        if gives_squares:
            assert squares is not None
            squares.count = self.num_tiles
        return out

    def reference(self, x: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
        """The same in float32, plainly."""
        x = x.float()
        if self.eps is not None:
            norm_weight = None if self.norm_weight is None else self.norm_weight.float()
            x = F.rms_norm(x, (self.num_inputs,), norm_weight, self.eps)
        y = F.linear(x, self.weight.float(), None if self.bias is None else self.bias.float())
        if self.gated:
            gate = y[:, 0::2]
            y = (F.gelu(gate, approximate="tanh") if self.gelu else F.silu(gate)) * y[:, 1::2]
        return y if residual is None else y + residual.float()


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


def _head_tensors(heads: HeadTargets | None) -> tuple[torch.Tensor | None, ...]:
    if heads is None:
        return (None,) * 6
    layer = heads.layer
    return heads.slots, heads.rotations, layer.keys, layer.values, layer.query_norm, layer.key_norm


def choose_tiling(num_outputs: int, num_inputs: int, head_dim: int = 0) -> Tiling:
    """Enough programs to keep every multiprocessor's loads in flight; see tests/bench/tune_linear.py.

    head_dim: each tile must be one head.
    """
    if head_dim:
        return Tiling(head_dim, 128 if head_dim <= 128 else 64, 2 if num_inputs % 256 == 0 else 1, num_stages=5)
    if num_outputs >= 12_000:
        return Tiling(64, 128, 1, num_stages=3)
    if num_outputs >= 3_000 and num_inputs % 512 == 0:
        return Tiling(64, 256, 2 if num_outputs < 4_000 else 1, num_stages=5)
    return Tiling(64, 128, 4 if num_inputs % 512 == 0 else 1, num_stages=5)


def fitting(tiling: Tiling, element_size: int) -> Tiling:
    """As many stages of it as shared memory holds: all of them where weights are 16 bits wide."""
    stages = _STAGE_BYTES // (tiling.block_n * tiling.block_k * element_size)
    return replace(tiling, num_stages=max(1, min(tiling.num_stages, stages)))


def interleave(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Rows gate 0, up 0, gate 1, up 1 ... of weights or biases: the order that a gated SmallLinear takes."""
    return torch.stack([gate, up], dim=1).flatten(0, 1)
