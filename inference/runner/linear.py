"""Linear layers for CPUs: int8 weights, 14-bit activations, and the same bits in any batch.

Each row of activations is written as s * (hi + lo / 126): s comes from the row's own largest magnitude, hi and lo are
whole numbers in [-63, 63]. One integer product over the stacked hi and lo rows gives both halves. So a row's result
does not depend on its neighbours (torch's dynamic quantisation takes one scale for the whole batch), and activations
lose next to nothing: in SmolLM2-135M 7 bits alone cost a KL divergence of 0.3 a token, these 14 bits together with the
int8 weights 0.008. The second half is nearly free where it matters: small products wait for the weights, not for sums.
"""

from __future__ import annotations

import warnings

import torch
from torch import nn

# 127 of 256 levels: on CPUs without VNNI the kernel adds pairs of products in 16 bits, which 8 bits would saturate.
_LEVELS = 63
_LOW_UNIT = 1 / (2 * _LEVELS)
_SMALLEST_SCALE = 1e-20


class Int8Linear(nn.Module):
    """y = x W^T + b; W is kept as int8 with one scale an output feature.

    x: [..., in_features] float32; y: [..., out_features] float32.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self._packed = _pack(weight)
        self._bias = None if bias is None else bias.detach().float().clone()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(-1, self.in_features)
        count = rows.shape[0]
        scales = torch.linalg.vector_norm(rows, ord=torch.inf, dim=-1, keepdim=True)
        scales = scales.clamp_min_(_SMALLEST_SCALE).div_(_LEVELS)
        halves = rows.new_empty((2 * count, self.in_features))
        high, low = halves[:count], halves[count:]
        exact = rows / scales
        torch.round(exact, out=high)
        torch.sub(exact, high, out=low).div_(_LOW_UNIT)

        products = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            halves, 1.0, _LEVELS + 1, self._packed
        )
        y = torch.add(products[:count], products[count:], alpha=_LOW_UNIT).mul_(scales)
        if self._bias is not None:
            y += self._bias
        return y.view(*x.shape[:-1], self.out_features)


def _pack(weight: torch.Tensor) -> torch.ScriptObject:
    weight = weight.detach().float()
    scales = weight.abs().amax(dim=1).clamp_min(_SMALLEST_SCALE).double() / 127
    zero_points = torch.zeros(weight.shape[0], dtype=torch.int64)
    with warnings.catch_warnings():
        # torch 2.13 deprecates quantised tensors; the fbgemm kernel has no other way in.
        warnings.filterwarnings("ignore", message=".*quantize_per_channel.*")
        quantized = torch.quantize_per_channel(weight, scales, zero_points, axis=0, dtype=torch.qint8)
    return torch.ops.quantized.linear_prepack(quantized, None)


def dense(weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Linear:
    """An ordinary linear layer around given tensors, without a copy."""
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    linear.weight = nn.Parameter(weight.detach(), requires_grad=False)
    if bias is not None:
        linear.bias = nn.Parameter(bias.detach(), requires_grad=False)
    return linear


def quantize_linears(model: nn.Module) -> int:
    """Replace every nn.Linear by an Int8Linear, one at a time so that memory does not double; returns how many."""
    count = 0
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, Int8Linear(child.weight, child.bias))
                count += 1
    return count
