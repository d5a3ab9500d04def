"""A decoder layer as one module: one QKV product, one gate-up product, no mask, no cache object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn

from inference.runner.attention import AttentionBackend
from inference.runner.head_layout import HeadLayout
from inference.runner.input_batch import StepInputs
from inference.runner.layer_parts import Norm, parts_of, stack

MakeLinear = Callable[[torch.Tensor, torch.Tensor | None], nn.Module]
Embeddings = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Use:
    """How a layer uses attention. num_rotated, adjacent: see HeadLayout; soft_cap: 0 is none."""

    scale: float
    window: int | None
    soft_cap: float
    num_rotated: int
    adjacent: bool = False

    def layout(self, head_dim: int, width: int) -> HeadLayout:
        return HeadLayout(head_dim, width, self.num_rotated, self.adjacent)


class FusedLayer(nn.Module):
    """Stands in for a decoder layer; called by the Transformers model with hidden states [1, num_tokens, hidden]."""

    def __init__(self, layer: nn.Module, make_linear: MakeLinear, use: Use) -> None:
        super().__init__()
        parts = parts_of(layer)
        assert parts is not None, "a layer is recognised first"
        self.layer_idx: int = cast(Any, layer).self_attn.layer_idx
        self.use = use
        self.head_dim, self.num_heads, self.num_kv_heads = parts.head_dim, parts.num_heads, parts.num_kv_heads
        self.activation = parts.activation
        self.residual_multiplier = parts.residual_multiplier

        self.attention_in, self.attention_out = parts.attention_in, parts.attention_out
        self.mlp_in, self.mlp_out = parts.mlp_in, parts.mlp_out
        layout = use.layout(parts.head_dim, parts.head_dim)
        self.query_norm, self.key_norm = layout.norm(parts.query_norm), layout.norm(parts.key_norm)
        self.qkv = make_linear(*layout.qkv(parts.query, parts.key, parts.value))
        self.out = make_linear(*parts.out)
        self.gate_up = make_linear(*stack([parts.gate, parts.up]))
        self.down = make_linear(*parts.down)
        self.intermediate_size: int = parts.gate[0].shape[0]

    def forward(
        self, hidden_states: torch.Tensor, *, position_embeddings: Embeddings, paged: StepInputs,
        paged_backend: AttentionBackend[StepInputs], **_: Any,
    ) -> torch.Tensor:
        hidden, use = hidden_states[0], self.use
        qkv = self.qkv(normed(hidden, self.attention_in))
        query, key, value = self._heads(qkv, _rotary(paged, position_embeddings))
        attended = paged_backend(
            self.layer_idx, query, key, value, paged, scale=use.scale, window=use.window, soft_cap=use.soft_cap
        )
        attended = self.out(attended.reshape(hidden.shape[0], -1))
        hidden = hidden + self._residual(attended, self.attention_out)

        gate_up = self.gate_up(normed(hidden, self.mlp_in))
        gate, up = gate_up[:, : self.intermediate_size], gate_up[:, self.intermediate_size :]
        hidden += self._residual(self.down(self.activation(gate) * up), self.mlp_out)
        return hidden[None]

    def _residual(self, x: torch.Tensor, norm: Norm | None) -> torch.Tensor:
        x = normed(x, norm)
        return x if self.residual_multiplier == 1 else x * self.residual_multiplier

    def _heads(self, qkv: torch.Tensor, rotary: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Split and rotate: a head's dimensions come in (real, imaginary) pairs, so rotating is one complex product."""
        num_turned = self.num_heads + self.num_kv_heads
        heads = qkv[:, : num_turned * self.head_dim].view(-1, num_turned, self.head_dim)
        if self.query_norm is not None and self.key_norm is not None:
            heads = torch.cat([_norm_heads(heads[:, : self.num_heads], self.query_norm),
                               _norm_heads(heads[:, self.num_heads :], self.key_norm)], dim=1)
        rotated = self.use.num_rotated
        if rotated:
            pairs = torch.view_as_complex(heads[..., :rotated].float().unflatten(-1, (-1, 2)))
            turned = torch.view_as_real(pairs * rotary).flatten(-2).to(qkv.dtype)
            heads = turned if rotated == self.head_dim else torch.cat([turned, heads[..., rotated:]], dim=-1)
        value = qkv[:, num_turned * self.head_dim :].view(-1, self.num_kv_heads, self.head_dim)
        return heads[:, : self.num_heads], heads[:, self.num_heads :], value


def _rotary(step: StepInputs, embeddings: Embeddings) -> torch.Tensor:
    cosines, sines = embeddings
    for known, rotations in step.rotary:
        if known is cosines:
            return rotations
    half = cosines.shape[-1] // 2
    rotations = torch.complex(cosines[0, :, :half].float(), sines[0, :, :half].float())[:, None]
    step.rotary.append((cosines, rotations))
    return rotations


def normed(x: torch.Tensor, norm: Norm | None) -> torch.Tensor:
    """RMSNorm, written out: F.rms_norm on a CPU takes several times as long for the few rows of a decode step."""
    if norm is None:
        return x
    exact = x.float()
    scale = torch.linalg.vector_norm(exact, dim=-1, keepdim=True).square_().div_(x.shape[-1]).add_(norm.eps).rsqrt_()
    if norm.weight.dtype == x.dtype:
        return (exact * scale).to(x.dtype) * norm.weight
    return (exact * scale * norm.weight).to(x.dtype)


def _norm_heads(heads: torch.Tensor, norm: Norm) -> torch.Tensor:
    """heads: [num_tokens, num_heads, head_dim]; each is normed by itself, or all of a token together."""
    if len(norm.weight) == heads.shape[-1]:
        return normed(heads, norm)
    return normed(heads.flatten(1), norm).view(heads.shape)
