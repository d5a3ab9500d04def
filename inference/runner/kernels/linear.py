"""Linear layers for few rows (decode): one pass over the weights, with the norm before and what follows fused in.

At M <= 32 a linear layer waits for its weights alone, so everything else is made to fit into their time. Each output
is summed in one order whatever M is: a row's result is the same bits alone and in a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
import triton

from inference.runner.kernels.heads import HeadTargets
from inference.runner.kernels.narrow_linear import narrow_kernel
from inference.runner.kernels.overlap import NO_OVERLAP, Overlap
from inference.runner.kernels.tiled_linear import tiled_kernel
from inference.runner.kernels.tilings import Tiling, choose_tiling, fitting

MAX_ROWS = 32


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
        may_be_narrow = weight.element_size() == 2 and eps is None and not gated and not head_dim
        self.tiling = tiling or fitting(
            choose_tiling(self.num_outputs, self.num_inputs, head_dim, may_be_narrow=may_be_narrow),
            weight.element_size(),
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
        residual: torch.Tensor | None = None, heads: HeadTargets | None = None, overlap: Overlap = NO_OVERLAP,
    ) -> torch.Tensor:  # fmt: skip
        """x: [M, num_inputs] contiguous, M <= MAX_ROWS; out: [M, num_results], any float dtype; residual may be out.

        squares: with a norm, those of x; with a residual, where those of the result are left. heads: the outputs are
        those of a QKV product, finished as finish_heads does; out takes the queries, [M, num_heads * head_dim].
        overlap: what starts early waits before it reads x, not before it reads the residual; narrow tilings alone do.
        """
        assert heads is None or self.tiling.block_n == heads.shape.head_dim, "a tile of outputs is one head"
        assert self.eps is None or (squares is not None and residual is None), "a norm needs the squares of its input"
        gives_squares = residual is not None and squares is not None
        if self.tiling.groups > 1:
            assert heads is None, "narrow tiles are no heads"
            assert not overlap.lets_next_start, "nothing starts beside a narrow product"
            self._launch_narrow(x, out, squares, residual, gives_squares, overlap)
        else:
            assert not overlap.starts_early, "only a narrow product starts early"
            self._launch_tiled(x, out, squares, residual, heads, gives_squares, overlap)
        if gives_squares:
            assert squares is not None
            squares.count = self.num_tiles
        return out

    def _launch_tiled(
        self, x: torch.Tensor, out: torch.Tensor, squares: RowSquares | None, residual: torch.Tensor | None,
        heads: HeadTargets | None, gives_squares: bool, overlap: Overlap,
    ) -> None:  # fmt: skip
        tiling, num_rows = self.tiling, x.shape[0]
        parts, count = (None, 0) if squares is None else (squares.parts, squares.count)
        tiled_kernel[(self.num_tiles, tiling.split_k)](
            x, self.weight, out, self.bias, self.norm_weight, residual, parts, parts, self._partials, self._arrivals,
            num_rows, self.num_outputs, count, *_head_tensors(heads), self.num_inputs, self.eps or 0.0,
            HAS_NORM=self.eps is not None, HAS_NORM_WEIGHT=self.norm_weight is not None,
            HAS_BIAS=self.bias is not None, HAS_RESIDUAL=residual is not None, GIVES_SQUARES=gives_squares,
            MOST_SQUARES=triton.next_power_of_2(max(1, count)), MAX_ROWS=MAX_ROWS, GATED=self.gated, GELU=self.gelu,
            **_head_constants(heads),
            BLOCK_M=16 if num_rows <= 16 else MAX_ROWS, BLOCK_N=tiling.block_n, BLOCK_K=tiling.block_k,
            SPLIT_K=tiling.split_k, LETS_NEXT_START=overlap.lets_next_start, num_warps=tiling.num_warps,
            num_stages=tiling.num_stages if num_rows <= 16 else min(4, tiling.num_stages),
        )  # fmt: skip

    def _launch_narrow(
        self, x: torch.Tensor, out: torch.Tensor, squares: RowSquares | None, residual: torch.Tensor | None,
        gives_squares: bool, overlap: Overlap,
    ) -> None:  # fmt: skip
        tiling, num_rows = self.tiling, x.shape[0]
        narrow_kernel[(self.num_tiles,)](
            x, self.weight, out, self.bias, residual, None if squares is None else squares.parts, num_rows,
            self.num_outputs, self.num_inputs, HAS_BIAS=self.bias is not None,
            HAS_RESIDUAL=residual is not None, GIVES_SQUARES=gives_squares, MAX_ROWS=MAX_ROWS,
            BLOCK_M=16 if num_rows <= 16 else MAX_ROWS, BLOCK_N=tiling.block_n, BLOCK_K=tiling.block_k,
            GROUPS=tiling.groups, STARTS_EARLY=overlap.starts_early, launch_pdl=overlap.starts_early,
            num_warps=tiling.num_warps, num_stages=tiling.num_stages,
        )  # fmt: skip

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


def _head_tensors(heads: HeadTargets | None) -> tuple[torch.Tensor | None, ...]:
    if heads is None:
        return (None,) * 6
    layer = heads.layer
    return heads.slots, heads.rotations, layer.keys, layer.values, layer.query_norm, layer.key_norm


def _head_constants(heads: HeadTargets | None) -> dict[str, int | float | bool]:
    if heads is None:
        names = ("HEAD_DIM", "NUM_HEADS", "HAS_HEAD_NORM", "head_eps", "ROTATES", "ROTATION_STRIDE")
        return {"NUM_KV_HEADS": 1, **dict.fromkeys(names, 0)}
    shape, layer = heads.shape, heads.layer
    return {
        "HEAD_DIM": shape.head_dim, "NUM_HEADS": shape.num_heads, "NUM_KV_HEADS": shape.num_kv_heads,
        "HAS_HEAD_NORM": layer.query_norm is not None, "head_eps": layer.eps, "ROTATES": layer.rotates,
        "ROTATION_STRIDE": heads.rotations.stride(0),
    }  # fmt: skip


def interleave(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Rows gate 0, up 0, gate 1, up 1 ... of weights or biases: the order that a gated SmallLinear takes."""
    return torch.stack([gate, up], dim=1).flatten(0, 1)
