"""The parts of a decoder layer by what they do, whatever the architecture calls itself.

Found by the names that Transformers' definitions share, so what is found is a guess until a layer built from it has
reproduced the original's output (inference.runner.fusions).
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import nn

Affine = tuple[torch.Tensor, torch.Tensor | None]
_MLP_ACTIVATIONS = ("act_fn", "activation_fn")


@dataclass(frozen=True, slots=True)
class Norm:
    """RMSNorm. weight: [width], what the normed input is multiplied by; float32 if the product is taken before the
    input's own precision is restored."""

    weight: torch.Tensor
    eps: float


@dataclass(frozen=True, slots=True)
class LayerParts:
    """Weights [out, in] and biases [out] or None; a norm that is None is not there.

    attention_in, mlp_in: before the projections; attention_out, mlp_out: before the sum with the residual.
    query_norm, key_norm: over one head, or over the whole projection: as wide as their weight.
    """

    query: Affine
    key: Affine
    value: Affine
    out: Affine
    gate: Affine
    up: Affine
    down: Affine
    activation: Callable[[torch.Tensor], torch.Tensor]
    head_dim: int
    attention_in: Norm | None
    attention_out: Norm | None
    mlp_in: Norm | None
    mlp_out: Norm | None
    query_norm: Norm | None
    key_norm: Norm | None
    residual_multiplier: float

    @property
    def norms_heads_together(self) -> bool:
        return any(norm is not None and len(norm.weight) != self.head_dim for norm in (self.query_norm, self.key_norm))

    @property
    def num_heads(self) -> int:
        return self.query[0].shape[0] // self.head_dim

    @property
    def num_kv_heads(self) -> int:
        return self.key[0].shape[0] // self.head_dim


def parts_of(layer: nn.Module) -> LayerParts | None:
    """None where the layer has other parts than these, or lacks one."""
    try:
        return _parts_of(cast(Any, layer))
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError):
        return None


def children_of(module: nn.Module) -> dict[str, nn.Module]:
    """Without dropouts, which do nothing in a served model."""
    return {name: child for name, child in module.named_children() if not isinstance(child, nn.Dropout)}


def is_silu(activation: Callable[[torch.Tensor], torch.Tensor]) -> bool:
    return _is(activation, F.silu)


def is_gelu(activation: Callable[[torch.Tensor], torch.Tensor]) -> bool:
    """As tanh approximates it."""
    return _is(activation, partial(F.gelu, approximate="tanh"))


def _is(activation: Callable[[torch.Tensor], torch.Tensor], known: Callable[[torch.Tensor], torch.Tensor]) -> bool:
    sample = torch.linspace(-4, 4, 33)
    return torch.allclose(activation(sample), known(sample), atol=1e-6)


@torch.no_grad()
def norm_of(module: Any) -> Norm:
    """The weight is found by norming ones: some definitions multiply by 1 + weight, and then in float32."""
    weight = module.weight.detach()
    eps = float(module.variance_epsilon if hasattr(module, "variance_epsilon") else module.eps)
    exact = deepcopy(module).float()
    effective = exact(torch.ones_like(weight, dtype=torch.float32)[None])[0] * (1 + eps) ** 0.5
    if torch.allclose(effective, weight.float(), rtol=1e-4, atol=1e-6):
        return Norm(weight, eps)
    offset = (effective - weight.float()).round()
    return Norm(weight.float() + offset, eps)


def stack(parts: list[Affine]) -> Affine:
    """One layer whose outputs are those of all parts, one after another."""
    weight = torch.cat([weight for weight, _ in parts])
    if all(bias is None for _, bias in parts):
        return weight, None
    return weight, torch.cat([bias if bias is not None else w.new_zeros(w.shape[0]) for w, bias in parts])


def affine_of(linear: Any) -> Affine:
    """Raises TypeError if it is another kind of layer."""
    if not isinstance(linear, nn.Linear):
        raise TypeError(f"{type(linear).__name__} is no plain linear layer")
    return linear.weight.detach(), None if linear.bias is None else linear.bias.detach()


def _parts_of(layer: Any) -> LayerParts:
    children = children_of(layer)
    attention, mlp = layer.self_attn, layer.mlp
    norms = {name: norm_of(child) for name, child in children.items() if name not in ("self_attn", "mlp")}
    # Where there is a norm before or after the MLP under its own name, the one after attention is just that.
    sandwich = "post_feedforward_layernorm" in norms
    after = norms.pop("post_attention_layernorm")
    query, key, value = _projections(attention)
    gate, up = _gate_up(mlp)
    parts = LayerParts(
        query=query, key=key, value=value, out=affine_of(attention.o_proj),
        gate=gate, up=up, down=affine_of(mlp.down_proj), activation=_activation(mlp), head_dim=attention.head_dim,
        attention_in=norms.pop("input_layernorm", None),
        attention_out=after if sandwich else None,
        mlp_in=norms.pop("pre_feedforward_layernorm", None) if sandwich else after,
        mlp_out=norms.pop("post_feedforward_layernorm", None),
        query_norm=norm_of(attention.q_norm) if hasattr(attention, "q_norm") else None,
        key_norm=norm_of(attention.k_norm) if hasattr(attention, "k_norm") else None,
        residual_multiplier=float(getattr(layer, "residual_multiplier", 1.0)),
    )  # fmt: skip
    if norms:
        raise KeyError(f"norms of unknown place: {norms.keys()}")
    return parts


def _projections(attention: Any) -> tuple[Affine, Affine, Affine]:
    _only(attention, {"q_proj", "k_proj", "v_proj", "qkv_proj", "o_proj", "q_norm", "k_norm"})
    if not hasattr(attention, "qkv_proj"):
        return affine_of(attention.q_proj), affine_of(attention.k_proj), affine_of(attention.v_proj)
    num_queries = attention.o_proj.in_features
    num_keys = (attention.qkv_proj.out_features - num_queries) // 2
    query, key, value = _split(attention.qkv_proj, [num_queries, num_keys, num_keys])
    return query, key, value


def _gate_up(mlp: Any) -> tuple[Affine, Affine]:
    _only(mlp, {"gate_proj", "up_proj", "gate_up_proj", "down_proj", *_MLP_ACTIVATIONS})
    if not hasattr(mlp, "gate_up_proj"):
        return affine_of(mlp.gate_proj), affine_of(mlp.up_proj)
    gate, up = _split(mlp.gate_up_proj, [mlp.gate_up_proj.out_features // 2] * 2)
    return gate, up


def _activation(mlp: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    (activation,) = [getattr(mlp, name) for name in _MLP_ACTIVATIONS if hasattr(mlp, name)]
    return cast(Callable[[torch.Tensor], torch.Tensor], activation)


def _only(module: nn.Module, names: set[str]) -> None:
    unknown = children_of(module).keys() - names
    if unknown:
        raise KeyError(f"parts of unknown use: {unknown}")


def _split(linear: Any, sizes: list[int]) -> list[Affine]:
    weight, bias = affine_of(linear)
    biases: list[torch.Tensor | None] = [None] * len(sizes) if bias is None else list(bias.split(sizes))
    return list(zip(weight.split(sizes), biases, strict=True))
