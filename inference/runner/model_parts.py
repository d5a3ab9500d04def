"""A whole model by its parts: what a device needs that runs all of it with kernels of its own.

The parts around the layers are found as a layer's are: guessed by the names that Transformers' definitions share, then
held against what the model gives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from inference.runner.fused_layer import Embeddings, normed
from inference.runner.fusions import Recognised, Stub, recognise, run_without_layers, trial_positions
from inference.runner.layer_parts import Affine, LayerParts, Norm, affine_of, is_gelu, is_silu, norm_of
from inference.runner.rotary import rotary_type, rotation_table

_MOST_LOGITS_ERROR = 5e-3  # of the same operations in the same precision


@dataclass(frozen=True, slots=True)
class ModelParts:
    """Hidden states begin as embedding_multiplier times tokens' rows of `embedding`, in its precision. Logits are
    logits_multiplier times what `head` makes of the last ones, normed; then `finish` is to be done to them.

    layers: whoever builds a device's layers takes them out, so that their weights can be freed one by one.
    rotary_types: of each layer, what rotation_table is to be told. logits_cap: 0 is none.
    """

    layers: list[Recognised]
    rotary_types: list[str | None]
    embedding: torch.Tensor
    embedding_multiplier: float
    norm: Norm
    head: Affine
    logits_multiplier: float
    logits_cap: float

    def finish(self, logits: torch.Tensor) -> torch.Tensor:
        """Cap them, in place."""
        cap = self.logits_cap
        return logits.div_(cap).tanh_().mul_(cap) if cap else logits


@dataclass(frozen=True, slots=True)
class Unfusable:
    """because: goes on from "the layers are not fused: "."""

    because: str


# What a layer of the known pattern may have, and kernels do not.
_BEYOND_KERNELS: dict[str, Callable[[LayerParts], bool]] = {
    "norm queries otherwise than keys": lambda parts: not _norms_alike(parts),
    "have another activation than SiLU or tanh's GELU": lambda parts: not (
        is_silu(parts.activation) or is_gelu(parts.activation)
    ),
}


def model_parts(model: nn.Module) -> ModelParts | Unfusable:
    """For a model that fuse_layers has left alone."""
    recognised = recognise(model)
    layers, num_layers = [seen for seen in recognised if seen is not None], len(recognised)
    if not num_layers:
        return Unfusable("they are not kept where others keep theirs")
    if len(layers) < num_layers:
        return Unfusable(f"{num_layers - len(layers)} of {num_layers} have parts of unknown use")
    for says, is_beyond in _BEYOND_KERNELS.items():
        num_beyond = sum(is_beyond(seen.parts) for seen in layers)
        if num_beyond:
            return Unfusable(f"{num_beyond} of {num_layers} {says}")
    if len({seen.parts.gate[0].shape for seen in layers}) > 1:
        return Unfusable("their MLPs differ in width")
    return _with_ends(model, layers)


@torch.inference_mode()
def _with_ends(model: nn.Module, layers: list[Recognised]) -> ModelParts | Unfusable:
    hf: Any = model
    decoder, embedding, config = hf.get_decoder(), hf.get_input_embeddings(), hf.config.get_text_config()
    try:
        norm, head = norm_of(decoder.norm), affine_of(hf.get_output_embeddings())
    except (AttributeError, TypeError):
        return Unfusable("the last norm or head is of another kind")
    positions = trial_positions(model)
    # Directions of the head's own rows give logits so large that a cap would show.
    last_hidden = head[0][: len(positions)]
    stubs, logits = run_without_layers(model, positions, last_hidden)

    rotary_types = _rotary_types(model, positions, layers, stubs)
    if rotary_types is None:
        return Unfusable("they differ in their rotary embeddings")
    parts = ModelParts(
        layers, rotary_types, embedding.weight.detach(), _embedding_multiplier(decoder, embedding), norm, head,
        1 / float(getattr(config, "logits_scaling", 1)), float(getattr(config, "final_logit_softcapping", None) or 0),
    )  # fmt: skip
    embedded = parts.embedding[: len(positions)] * parts.embedding_multiplier
    if not torch.equal(stubs[0].hidden[0], embedded):
        return Unfusable("embeddings are changed before the first")
    expected = parts.finish(F.linear(normed(last_hidden, norm), *head).float() * parts.logits_multiplier)
    if logits is None or not (logits[0].float() - expected).norm() <= _MOST_LOGITS_ERROR * expected.norm():
        return Unfusable("logits are changed after the head")
    return parts


def _embedding_multiplier(decoder: Any, embedding: Any) -> float:
    scale = getattr(embedding, "embed_scale", 1)
    if isinstance(scale, torch.Tensor):
        scale = scale.to(embedding.weight.dtype)
    return float(scale) * float(getattr(decoder, "embedding_multiplier", 1))


def _rotary_types(
    model: nn.Module, positions: torch.Tensor, layers: list[Recognised], stubs: list[Stub]
) -> list[str | None] | None:
    """What rotation_table is to be told of each layer, if what it has then is what the layers are given."""
    try:
        types = [rotary_type(model, index) for index in range(len(layers))]
        tables = {kind: rotation_table(model, positions, layers[0].parts.head_dim, kind) for kind in set(types)}
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError):
        return None
    first: dict[str | None, Embeddings] = {}
    for kind, seen, stub in zip(types, layers, stubs, strict=True):
        given = stub.embeddings
        if seen.use.num_rotated and (given is None or first.setdefault(kind, given)[0] is not given[0]):
            return None
    return types if all(_are_of(tables[kind], given) for kind, given in first.items()) else None


def _are_of(table: torch.Tensor, given: Embeddings) -> bool:
    half = given[0].shape[-1] // 2
    parts = zip(given, table.chunk(2, dim=1), strict=True)
    # The model rounds them to its own precision.
    return all(torch.allclose(turns[0, :, :half].float(), ours[:, :half], atol=0.01) for turns, ours in parts)


def _norms_alike(parts: LayerParts) -> bool:
    query, key = parts.query_norm, parts.key_norm
    if query is None or key is None:
        return query is key
    if parts.norms_heads_together:
        return len(query.weight) == len(parts.query[0]) and len(key.weight) == len(parts.key[0])
    return query.eps == key.eps
