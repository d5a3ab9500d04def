"""A model on CUDA as Transformers defines it: its layers run as they are, and only attention is ours.

For decoders whose layers inference.runner.cuda_model does not know. Attention goes through Transformers' attention
interface to the paged cache, so that a whole step is captured in a CUDA graph like that of a fused model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn

from inference.paged_kv.pool import KVPool
from inference.runner.cuda_model import PackedTokens, Scratch, nothing
from inference.runner.kernels.attention import PagedAttention
from inference.runner.kernels.heads import HeadShape, LayerAttention
from inference.runner.kernels.rows import RowInputs


@dataclass(frozen=True, slots=True)
class DeviceStep:
    """What a pass hands to its attention layers.

    slots: [T] int64, where each token's key and value go; query_stride: how far apart `attend` wants its queries;
    attend(layer, query): query: [T, query_stride], heads first; returns [T, heads * head_dim].
    """

    slots: torch.Tensor
    query_stride: int
    attend: Callable[[LayerAttention, torch.Tensor], torch.Tensor]


class CachedAttention:
    """The AttentionBackend of a DeviceStep. Heads narrower than the cache's are padded with zeros, which changes
    neither scores nor what is read of the values."""

    name = "triton"

    def __init__(self, pool: KVPool, shape: HeadShape) -> None:
        self._pool, self._shape = pool, shape

    def __call__(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, step: DeviceStep, *,
        scale: float, window: int | None = None, soft_cap: float = 0.0,
    ) -> torch.Tensor:  # fmt: skip
        keys, values = self._pool.keys[layer], self._pool.values[layer]
        num_tokens, num_heads, head_dim = query.shape
        for cache, new in ((keys, key), (values, value)):
            cache.flatten(0, 1)[:, :, :head_dim].index_copy_(0, step.slots, new.to(cache.dtype))

        rows = self._query_rows(query, step.query_stride, keys.dtype)
        attended = step.attend(LayerAttention(keys, values, scale, window, soft_cap=soft_cap), rows)
        return attended.view(num_tokens, num_heads, -1)[:, :, :head_dim].to(query.dtype)

    def _query_rows(self, query: torch.Tensor, stride: int, dtype: torch.dtype) -> torch.Tensor:
        """[T, stride]: the queries as wide as the cache's heads."""
        num_tokens, num_heads, head_dim = query.shape
        if head_dim == self._shape.head_dim and stride == self._shape.query_width:
            return query.to(dtype).reshape(num_tokens, stride)
        rows = torch.zeros(num_tokens, stride, dtype=dtype, device=query.device)
        heads = rows[:, : self._shape.query_width].view(num_tokens, num_heads, self._shape.head_dim)
        heads[:, :, :head_dim] = query
        return rows


class UnfusedModel:
    """A StepModel around a Transformers model that is set to the paged attention interface.

    The model embeds and rotates by itself, so what gather_rows brings of a token is its id, and of a position nothing.
    """

    def __init__(self, model: nn.Module, pool: KVPool, num_heads: int, max_model_len: int) -> None:
        self._model = cast(Any, model)
        weight = self._model.get_input_embeddings().weight
        self.shape = HeadShape(num_heads, pool.layout.num_kv_heads, pool.layout.head_dim)
        self.embedding = torch.arange(weight.shape[0], dtype=torch.int32, device=weight.device)[:, None]
        self.cos_sin = torch.zeros(max_model_len, 1, device=weight.device)
        self.num_outputs: int = self._model.get_output_embeddings().weight.shape[0]
        self._attention = CachedAttention(pool, self.shape)

    def scratch(self, rows: int, block_table: torch.Tensor) -> Scratch:
        nothing = self.cos_sin.new_empty(0)
        inputs = RowInputs.empty(rows, self.embedding, block_table, head_dim=1)
        inputs.hidden.zero_()  # token ids, also in passes that run before gather_rows is compiled
        return Scratch(
            inputs=inputs,
            query=nothing, attended=nothing, activated=nothing,
            logits=self.cos_sin.new_empty(rows, self.num_outputs),
        )  # fmt: skip

    def decode(
        self, scratch: Scratch, batch: int, paged: PagedAttention, *, before_logits: Callable[[], None] = nothing
    ) -> torch.Tensor:
        inputs = scratch.inputs.first(batch)

        def attend(layer: LayerAttention, query: torch.Tensor) -> torch.Tensor:
            out = query.new_empty(query.shape)
            paged.decode(layer, query, inputs.positions, inputs.tables, out)
            return out

        step = DeviceStep(inputs.slots.long(), self.shape.query_width, attend)
        logits = self._run(inputs.hidden[:, 0], inputs.positions, step, None)
        before_logits()  # nobody knows where in the model its last product is
        return scratch.logits[:batch].copy_(logits)

    def prefill(self, tokens: PackedTokens, paged: PagedAttention) -> torch.Tensor:
        def attend(layer: LayerAttention, query: torch.Tensor) -> torch.Tensor:
            return paged.attend_packed(layer, query, tokens.tiles, tokens.chunks)

        step = DeviceStep(tokens.slots.long(), self.shape.qkv_width, attend)
        return self._run(tokens.token_ids, tokens.positions, step, tokens.sample_at).float()

    def _run(
        self, token_ids: torch.Tensor, positions: torch.Tensor, step: DeviceStep, keep: torch.Tensor | None
    ) -> torch.Tensor:
        output = self._model(
            input_ids=token_ids.long()[None], position_ids=positions.long()[None], use_cache=False,
            logits_to_keep=0 if keep is None else keep, paged=step, paged_backend=self._attention,
        )  # fmt: skip
        return cast(torch.Tensor, output.logits)[0]
