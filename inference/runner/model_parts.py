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

from inference.runner.fused_layer import normed
from inference.runner.fusions import Recognised, Stub, recognise, run_without_layers, trial_positions
from inference.runner.layer_parts import Affine, LayerParts, Norm, affine_of, is_silu, norm_of
from inference.runner.rotary import rotation_table

_MOST_LOGITS_ERROR = 5e-3  # of the same operations in the same precision


@dataclass(frozen=True, slots=True)
class ModelParts:
    """Hidden states begin as embedding_multiplier times tokens' rows of `embedding`, in its precision. Logits are
    logits_multiplier times what `head` makes of the last ones, normed. All that layers rotate, they rotate alike.

    layers: whoever builds a device's layers takes them out, so that their weights can be freed one by one.
    """

    layers: list[Recognised]
    embedding: torch.Tensor
    embedding_multiplier: float
    norm: Norm
    head: Affine
    logits_multiplier: float


@dataclass(frozen=True, slots=True)
class Unfusable:
    """because: goes on from "the layers are not fused: "."""

    because: str


# What a layer of the known pattern may have, and kernels do not.
_BEYOND_KERNELS: dict[str, Callable[[LayerParts], bool]] = {
    "project what they have not normed": lambda parts: parts.attention_in is None or parts.mlp_in is None,
    "norm what attention and MLP give": lambda parts: parts.attention_out is not None or parts.mlp_out is not None,
    "norm the heads of a token together": lambda parts: not _norms_head_by_head(parts),
    "have another activation than SiLU": lambda parts: not is_silu(parts.activation),
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
    decoder, embedding = hf.get_decoder(), hf.get_input_embeddings().weight.detach()
    try:
        norm, head = norm_of(decoder.norm), affine_of(hf.get_output_embeddings())
    except (AttributeError, TypeError):
        return Unfusable("the last norm or head is of another kind")
    parts = ModelParts(
        layers, embedding, float(getattr(decoder, "embedding_multiplier", 1)), norm, head,
        1 / float(getattr(hf.config, "logits_scaling", 1)),
    )  # fmt: skip
    positions = trial_positions(model)
    # Directions of the head's own rows give logits so large that a cap would show.
    last_hidden = head[0][: len(positions)]
    stubs, logits = run_without_layers(model, positions, last_hidden)

    if not torch.equal(stubs[0].hidden[0], embedding[: len(positions)] * parts.embedding_multiplier):
        return Unfusable("embeddings are changed before the first")
    if not _rotate_alike(model, positions, layers, stubs):
        return Unfusable("they differ in their rotary embeddings")
    expected = F.linear(normed(last_hidden, norm), *head).float() * parts.logits_multiplier
    if logits is None or not (logits[0].float() - expected).norm() <= _MOST_LOGITS_ERROR * expected.norm():
        return Unfusable("logits are changed after the head")
    return parts


def _rotate_alike(
    model: nn.Module, positions: torch.Tensor, layers: list[Recognised], stubs: list[Stub]
) -> bool:
    """Whether all layers that rotate are given the same, and it is what rotation_table has."""
    given = [stub.embeddings for seen, stub in zip(layers, stubs, strict=True) if seen.use.num_rotated]
    if not given or given[0] is None:
        return not given
    if any(embeddings is None or embeddings[0] is not given[0][0] for embeddings in given):
        return False
    half = given[0][0].shape[-1] // 2
    try:
        tables = rotation_table(model, positions, 2 * half).chunk(2, dim=1)
    except (AttributeError, KeyError, RuntimeError, TypeError):
        return False
    # The model rounds them to its own precision.
    return all(torch.allclose(a[0, :, :half].float(), b, atol=0.01) for a, b in zip(given[0], tables, strict=True))


def _norms_head_by_head(parts: LayerParts) -> bool:
    query, key = parts.query_norm, parts.key_norm
    if query is None or key is None:
        return query is key
    return len(query.weight) == len(key.weight) == parts.head_dim and query.eps == key.eps
