"""Rotary embeddings: a table of them, and those whose frequencies depend on how long a sequence is, settled at load.

Transformers picks such frequencies (longrope, dynamic NTK) in each forward pass, by the longest sequence of the batch.
A cache of rotated keys outlives passes and is shared by turns of any length, so here the length that the server admits
decides for all, as in vLLM.
"""

from __future__ import annotations

from inspect import signature
from typing import Any, cast

import torch
from torch import nn

_SETTLED = "settled"


@torch.inference_mode()
def settle_rotary(model: nn.Module, max_model_len: int) -> list[str]:
    """Let each such module choose for a sequence of max_model_len tokens, and never again; returns their types."""
    settled = []
    for module in model.modules():
        kinds: Any = getattr(module, "rope_type", None)
        for layer_type, kind in list(kinds.items()) if isinstance(kinds, dict) else [(None, kinds)]:
            if isinstance(kind, str) and ("dynamic" in kind or kind == "longrope"):
                _choose(module, max_model_len, layer_type)
                settled.append(kind)
                if layer_type is None:
                    cast(Any, module).rope_type = _SETTLED
                else:
                    kinds[layer_type] = _SETTLED
    return settled


@torch.inference_mode()
def rotation_table(
    model: nn.Module, positions: torch.Tensor, width: int, layer_type: str | None = None
) -> torch.Tensor:
    """[num_positions, width] float32: cosines, then sines, of each position, as the model's own rotary has them.

    For heads that are `width` wide: the pairs that the model does not rotate stay as they are. layer_type: as
    rotary_type gives it.
    """
    rotary: Any = cast(Any, model).get_decoder().rotary_emb
    options = {} if layer_type is None else {"layer_type": layer_type}
    cosines, sines = rotary(torch.zeros(1, 1, device=positions.device), position_ids=positions[None], **options)
    half = cosines.shape[-1] // 2
    table = torch.zeros(len(positions), width, device=positions.device)
    table[:, : width // 2] = 1
    table[:, :half] = cosines[0, :, :half]
    table[:, width // 2 : width // 2 + half] = sines[0, :, :half]
    return table


def rotary_type(model: nn.Module, layer: int) -> str | None:
    """What the model's rotary must be told of a layer; None where it rotates for all alike."""
    inner: Any = model
    if "layer_type" not in signature(inner.get_decoder().rotary_emb.forward).parameters:
        return None
    return cast(str, inner.config.get_text_config().layer_types[layer])


def _choose(module: Any, max_model_len: int, layer_type: str | None) -> None:
    device = next(module.buffers()).device
    options = {} if layer_type is None else {"layer_type": layer_type}
    module(torch.zeros(1, device=device), torch.tensor([[max_model_len - 1]], device=device), **options)
