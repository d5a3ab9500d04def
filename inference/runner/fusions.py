"""Recognises decoder layers by their parts, not by the model's name, and runs each as one module.

A layer of RMSNorm, grouped-query attention with rotary embeddings, RMSNorm and a gated MLP becomes a FusedLayer: one
QKV product, one gate-up product, no mask, no cache object. A fusion is trusted only after it has reproduced the
original layer's output on random input; what does not match stays as Transformers defines it.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn

from inference.paged_kv.pool import KVLayout, KVPool
from inference.runner.attention import AttentionBackend, TorchAttention
from inference.runner.input_batch import Span, StepInputs
from inference.runner.linear import dense

MakeLinear = Callable[[torch.Tensor, torch.Tensor | None], nn.Module]
_NORMS = ("input_layernorm", "post_attention_layernorm")
_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")


class FusedLayer(nn.Module):
    """Stands in for a decoder layer; called by the Transformers model with hidden states [1, num_tokens, hidden]."""

    def __init__(self, layer: nn.Module, make_linear: MakeLinear, scale: float, window: int | None) -> None:
        super().__init__()
        attention, mlp = cast(Any, layer.self_attn), cast(Any, layer.mlp)
        self.layer_idx: int = attention.layer_idx
        self.head_dim: int = attention.head_dim
        self.scale = scale
        self.window = window
        self.num_heads = attention.q_proj.out_features // self.head_dim
        self.num_kv_heads = attention.k_proj.out_features // self.head_dim
        self.activation = mlp.act_fn

        self.input_norm, self.post_norm = (_norm(getattr(layer, name)) for name in _NORMS)
        self.query_norm = _norm(attention.q_norm, self.head_dim) if hasattr(attention, "q_norm") else None
        self.key_norm = _norm(attention.k_norm, self.head_dim) if hasattr(attention, "k_norm") else None
        self.qkv = make_linear(*_stack([_interleaved(attention.q_proj, self.head_dim),
                                        _interleaved(attention.k_proj, self.head_dim), _parts(attention.v_proj)]))
        self.out = make_linear(*_parts(attention.o_proj))
        self.gate_up = make_linear(*_stack([_parts(mlp.gate_proj), _parts(mlp.up_proj)]))
        self.down = make_linear(*_parts(mlp.down_proj))
        self.intermediate_size: int = mlp.gate_proj.out_features

    def forward(
        self, hidden_states: torch.Tensor, *, position_embeddings: tuple[torch.Tensor, torch.Tensor],
        paged: StepInputs, paged_backend: AttentionBackend, **_: Any,
    ) -> torch.Tensor:
        hidden = hidden_states[0]
        qkv = self.qkv(_rms_norm(hidden, self.input_norm))
        query, key, value = self._heads(qkv, _rotary(paged, position_embeddings))
        attended = paged_backend(self.layer_idx, query, key, value, paged, scale=self.scale, window=self.window)
        hidden = hidden + self.out(attended.reshape(hidden.shape[0], -1))

        gate_up = self.gate_up(_rms_norm(hidden, self.post_norm))
        gate, up = gate_up[:, : self.intermediate_size], gate_up[:, self.intermediate_size :]
        hidden += self.down(self.activation(gate) * up)
        return hidden[None]

    def _heads(self, qkv: torch.Tensor, rotary: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Split and rotate: a head's dimensions come in (real, imaginary) pairs, so rotating is one complex product."""
        num_rotated = self.num_heads + self.num_kv_heads
        rotated = qkv[:, : num_rotated * self.head_dim].view(-1, num_rotated, self.head_dim)
        if self.query_norm is not None and self.key_norm is not None:
            rotated = torch.cat([_rms_norm(rotated[:, : self.num_heads], self.query_norm),
                                 _rms_norm(rotated[:, self.num_heads :], self.key_norm)], dim=1)
        pairs = torch.view_as_complex(rotated.float().unflatten(-1, (-1, 2)))
        rotated = torch.view_as_real(pairs * rotary).flatten(-2).to(qkv.dtype)
        value = qkv[:, num_rotated * self.head_dim :].view(-1, self.num_kv_heads, self.head_dim)
        return rotated[:, : self.num_heads], rotated[:, self.num_heads :], value


@dataclass(frozen=True, slots=True)
class Recognised:
    """A decoder layer of the known pattern, with the scale and window that it calls attention with."""

    layer: nn.Module
    scale: float
    window: int | None


def recognise(model: nn.Module) -> list[Recognised | None]:
    """For each decoder layer, whether its parts are known and a fusion of them gives what the layer gives."""
    decoder = cast(Any, model).get_decoder()
    rotary = getattr(decoder, "rotary_emb", None)
    return [_recognised(layer, rotary) for layer in decoder.layers]


def fuse_layers(model: nn.Module, make_linear: MakeLinear) -> tuple[int, int]:
    """Replace the decoder layers that can be fused; returns (fused, total). Old weights are freed layer by layer."""
    layers = cast(Any, model).get_decoder().layers
    recognised = recognise(model)
    for index, seen in enumerate(recognised):
        if seen is not None:
            layers[index] = FusedLayer(seen.layer, make_linear, seen.scale, seen.window)
            recognised[index] = None
    return sum(isinstance(layer, FusedLayer) for layer in layers), len(layers)


def _recognised(layer: nn.Module, rotary: nn.Module | None) -> Recognised | None:
    if rotary is None or not _has_the_pattern(layer):
        return None
    witness = _verified(layer, rotary)
    return None if witness is None else Recognised(layer, witness.scale, witness.window)


class _Witness:
    """An attention backend that notes with which scale and window a layer calls it."""

    name = "witness"

    def __init__(self, backend: AttentionBackend) -> None:
        self._backend = backend
        self.scale = 0.0
        self.window: int | None = None

    def __call__(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, step: StepInputs, *,
        scale: float, window: int | None = None,
    ) -> torch.Tensor:
        self.scale, self.window = scale, window
        return self._backend(layer, query, key, value, step, scale=scale, window=window)


def _has_the_pattern(layer: nn.Module) -> bool:
    children = {name for name, _ in layer.named_children()}
    if children != {"self_attn", "mlp", *_NORMS}:
        return False
    attention, mlp = (
        {name for name, _ in layer.get_submodule(part).named_children()} for part in ("self_attn", "mlp")
    )
    return attention - {"q_norm", "k_norm"} == set(_PROJECTIONS) and mlp == {
        "gate_proj", "up_proj", "down_proj", "act_fn"
    }


@torch.inference_mode()
def _verified(layer: nn.Module, rotary: nn.Module, num_tokens: int = 7) -> _Witness | None:
    """What the layer asks of attention, if a dense FusedLayer equals it on random hidden states in float32."""
    trial = _copy_as_float32(layer)
    attention = cast(Any, trial.self_attn)
    device = attention.q_proj.weight.device
    hidden = torch.randn(1, num_tokens, attention.q_proj.in_features, device=device)
    positions = torch.arange(num_tokens, device=device)
    embeddings = rotary(hidden, position_ids=positions[None])
    if embeddings[0].shape[-1] != attention.head_dim:
        return None  # partial rotary
    layout = KVLayout(1, attention.k_proj.out_features // attention.head_dim, attention.head_dim, 16, torch.float32)
    witness = _Witness(TorchAttention(KVPool(layout, 1, device)))
    span = Span(0, 1, num_tokens, layout.block_size, torch.zeros(1, dtype=torch.int64, device=device), positions[None])
    step = StepInputs(positions, positions, positions, positions[-1:], [0], [num_tokens], [span])
    options = {"position_embeddings": embeddings, "position_ids": positions[None], "paged": step}

    index, attention.layer_idx = attention.layer_idx, 0  # the trial's cache has one layer
    try:
        expected = trial(hidden.clone(), attention_mask=None, paged_backend=witness, **options)
        expected = expected[0] if isinstance(expected, tuple) else expected
        got = FusedLayer(trial, dense, witness.scale, witness.window)(hidden, paged_backend=witness, **options)
        return witness if torch.allclose(got, expected, rtol=1e-4, atol=1e-4) else None
    finally:
        attention.layer_idx = index


def _copy_as_float32(layer: nn.Module) -> nn.Module:
    if all(parameter.dtype == torch.float32 for parameter in layer.parameters()):
        return layer
    return deepcopy(layer).float()


def _rotary(step: StepInputs, embeddings: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    if step.rotary is None:
        cos, sin = (part[0, :, : part.shape[-1] // 2].float() for part in embeddings)
        step.rotary = torch.complex(cos, sin)[:, None]
    return step.rotary


def _rms_norm(x: torch.Tensor, norm: tuple[torch.Tensor, float]) -> torch.Tensor:
    # Written out: F.rms_norm on a CPU takes several times as long for the few rows of a decode step.
    weight, eps = norm
    exact = x.float()
    scale = torch.linalg.vector_norm(exact, dim=-1, keepdim=True).square_().div_(x.shape[-1]).add_(eps).rsqrt_()
    return (exact * scale).to(x.dtype) * weight


def _norm(module: nn.Module, head_dim: int | None = None) -> tuple[torch.Tensor, float]:
    weight = cast(torch.Tensor, module.weight).detach()
    if head_dim is not None:
        weight = weight[_interleaving(head_dim)]
    return weight, float(cast(Any, module).variance_epsilon)


def _interleaving(head_dim: int) -> torch.Tensor:
    """The order that brings dimension i of the first half beside dimension i of the second half."""
    half = head_dim // 2
    return torch.stack([torch.arange(half), torch.arange(half) + half], dim=1).flatten()


def _parts(linear: nn.Linear) -> tuple[torch.Tensor, torch.Tensor | None]:
    return linear.weight.detach(), None if linear.bias is None else linear.bias.detach()


def _interleaved(linear: nn.Linear, head_dim: int) -> tuple[torch.Tensor, torch.Tensor | None]:
    """A query or key projection whose heads come out in the interleaved order; scores do not change by it."""
    order = _interleaving(head_dim)
    weight, bias = _parts(linear)
    weight = weight.view(-1, head_dim, weight.shape[1])[:, order].reshape_as(weight)
    return weight, None if bias is None else bias.view(-1, head_dim)[:, order].reshape_as(bias)


def _stack(parts: list[tuple[torch.Tensor, torch.Tensor | None]]) -> tuple[torch.Tensor, torch.Tensor | None]:
    weight = torch.cat([weight for weight, _ in parts])
    if all(bias is None for _, bias in parts):
        return weight, None
    return weight, torch.cat([bias if bias is not None else torch.zeros(w.shape[0]).to(w) for w, bias in parts])
