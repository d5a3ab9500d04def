"""The tensors behind the block ids: one key and one value pool a layer, the same layout on every device."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class KVLayout:
    """What one layer's cache looks like; bytes_per_block covers keys and values of all layers."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    block_size: int
    dtype: torch.dtype

    @property
    def bytes_per_block(self) -> int:
        return 2 * self.num_layers * self.block_size * self.num_kv_heads * self.head_dim * self.dtype.itemsize


class KVPool:
    """keys[i], values[i]: [num_blocks, block_size, num_kv_heads, head_dim], contiguous, of layer i.

    Written only by the runner, on its thread or stream. Blocks start as zeros: attention kernels may read (and mask)
    slots past a sequence's end, which must then be finite.
    """

    def __init__(self, layout: KVLayout, num_blocks: int, device: torch.device) -> None:
        shape = (num_blocks, layout.block_size, layout.num_kv_heads, layout.head_dim)
        self.layout = layout
        self.num_blocks = num_blocks
        self.keys = [torch.zeros(shape, dtype=layout.dtype, device=device) for _ in range(layout.num_layers)]
        self.values = [torch.zeros(shape, dtype=layout.dtype, device=device) for _ in range(layout.num_layers)]

    def copy(self, source_ids: torch.Tensor, copy_ids: torch.Tensor) -> None:
        """Copy whole blocks in every layer. Both: [n] int64, on the pool's device."""
        for tensor in (*self.keys, *self.values):
            tensor[copy_ids] = tensor[source_ids]
