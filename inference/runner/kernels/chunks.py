"""Packed chunks as prefill attention that is not ours takes them; no kernel, so that it needs no Triton."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch

if TYPE_CHECKING:
    from inference.runner.kernels.heads import LayerAttention


@dataclass(frozen=True, slots=True)
class Chunks:
    """Chunks of new tokens, one after another.

    ends: [n + 1] int32, 0 and where each chunk ends among the packed tokens; num_keys: [n] int32, tokens of its row up
    to there; tables: [n, max_blocks] int32, the rows' block tables. The last chunks may be empty, and the last tokens
    no chunk's.
    """

    ends: torch.Tensor
    num_keys: torch.Tensor
    tables: torch.Tensor


class ChunkAttention(Protocol):
    """is_used: whether it took any layer that asked."""

    name: str

    @property
    def is_used(self) -> bool: ...

    def takes(self, layer: LayerAttention) -> bool:
        """May compile, and wait for the device, the first time that a layer of a kind asks."""
        ...

    def __call__(self, layer: LayerAttention, qkv: torch.Tensor, chunks: Chunks) -> torch.Tensor:
        """[T, heads * head_dim], causal; qkv and the cache as kernels.heads.store_heads leaves them. What stands for
        tokens of no chunk is anything, even infinite."""
        ...
