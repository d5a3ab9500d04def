"""Linear layers for CPUs: int8 weights and activations, exact in any batch.

torch's own dynamic quantisation takes one activation scale for the whole batch, so a row's result would depend on its
neighbours. Here each row is first divided by its own largest magnitude; then one constant scale fits every row, and
since int8 products are summed in integers, a row's output is the same bits alone and in a batch.
"""

from __future__ import annotations

import warnings

import torch
from torch import nn

# Activations use 127 of 256 levels: on CPUs without VNNI the kernel adds pairs of products in 16 bits, which a full
# 8-bit activation would saturate.
_ACTIVATION_LEVELS = 63
_SMALLEST_SCALE = 1e-20


class Int8Linear(nn.Module):
    """y = x W^T + b with W as int8, one scale an output feature, and x as 7-bit integers, one scale a row.

    x: [..., in_features] float32; y: [..., out_features] float32.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self._packed = _pack(weight)
        self._bias = None if bias is None else bias.detach().float().clone()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(-1, self.in_features)
        scales = torch.linalg.vector_norm(rows, ord=torch.inf, dim=-1, keepdim=True).clamp_min_(_SMALLEST_SCALE)
        y = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            rows / scales, 1 / _ACTIVATION_LEVELS, _ACTIVATION_LEVELS + 1, self._packed
        ).mul_(scales)
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
