"""The one seam between a model and the paged KV cache.

Every attention layer, fused or not, hands its new keys and values and its queries to an AttentionBackend; how they are
stored and read is nobody else's business. The plain torch backend below runs on the CPU and is the reference that
device kernels are tested against.
"""

from __future__ import annotations

import threading
from typing import Any, Protocol, TypeVar, cast

import torch
import torch.nn.functional as F
from transformers import AttentionInterface

from inference.paged_kv.pool import KVPool
from inference.runner.input_batch import Span, StepInputs

INTERFACE_NAME = "headrace_paged"

# What a backend takes as a step is its device's own business; a model only passes it through.
Step = TypeVar("Step", contravariant=True)


class AttentionBackend(Protocol[Step]):
    """Stores this step's keys and values and attends over everything stored, causally.

    query: [num_tokens, num_heads, head_dim]; key, value: [num_tokens, num_kv_heads, head_dim]; strides are free but the
    last. Returns [num_tokens, num_heads, head_dim]. window: how many tokens a query sees, itself included. soft_cap:
    scores s become soft_cap * tanh(s / soft_cap); 0 is none.
    """

    name: str

    def __call__(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, step: Step, *,
        scale: float, window: int | None = None, soft_cap: float = 0.0,
    ) -> torch.Tensor: ...


class TorchAttention:
    """Gathers a span's blocks and runs scaled_dot_product_attention over them."""

    name = "torch"

    def __init__(self, pool: KVPool) -> None:
        self._pool = pool
        layout = pool.layout
        row = layout.num_kv_heads * layout.head_dim
        self._key_slots = [keys.view(-1, layout.num_kv_heads, layout.head_dim) for keys in pool.keys]
        self._value_slots = [values.view(-1, layout.num_kv_heads, layout.head_dim) for values in pool.values]
        self._key_blocks = [keys.view(pool.num_blocks, layout.block_size * row) for keys in pool.keys]
        self._value_blocks = [values.view(pool.num_blocks, layout.block_size * row) for values in pool.values]

    def __call__(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, step: StepInputs, *,
        scale: float, window: int | None = None, soft_cap: float = 0.0,
    ) -> torch.Tensor:
        self._key_slots[layer].index_copy_(0, step.slots, key)
        self._value_slots[layer].index_copy_(0, step.slots, value)
        outputs = [self._attend(layer, query, span, scale, window, soft_cap) for span in step.spans]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def _attend(
        self, layer: int, query: torch.Tensor, span: Span, scale: float, window: int | None, soft_cap: float
    ) -> torch.Tensor:
        layout = self._pool.layout
        num_heads, head_dim = query.shape[-2:]
        count = span.num_rows * span.num_queries
        queries = query[span.first : span.first + count].view(span.num_rows, span.num_queries, num_heads, head_dim)
        shape = (span.num_rows, -1, layout.num_kv_heads, layout.head_dim)
        keys = self._key_blocks[layer].index_select(0, span.block_ids).view(shape)
        values = self._value_blocks[layer].index_select(0, span.block_ids).view(shape)
        heads = (queries.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2))
        mask = span.mask(window, query.dtype)
        if soft_cap:
            attended = _capped_attention(*heads, mask, scale, soft_cap)
        else:
            attended = F.scaled_dot_product_attention(
                *heads, attn_mask=mask, scale=scale, enable_gqa=num_heads != layout.num_kv_heads
            )
        return attended.transpose(1, 2).reshape(count, num_heads, head_dim)


def _capped_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, scale: float, soft_cap: float
) -> torch.Tensor:
    """scaled_dot_product_attention has no soft cap. Tensors: [rows, heads, tokens, head_dim]; mask: [rows, 1, n, m].

    The queries of one KV head are one matrix, so that a row's products have the same shape in any batch.
    """
    rows, num_kv_heads, num_keys, head_dim = key.shape
    num_queries = query.shape[2]
    queries = query.reshape(rows * num_kv_heads, -1, head_dim)
    keys, values = key.reshape(-1, num_keys, head_dim), value.reshape(-1, num_keys, head_dim)
    scores = torch.bmm(queries.float(), keys.float().transpose(1, 2)).mul_(scale / soft_cap).tanh_().mul_(soft_cap)
    scores = scores.view(rows, -1, num_queries, num_keys) + mask
    weights = scores.softmax(-1).to(value.dtype).view(rows * num_kv_heads, -1, num_keys)
    return torch.bmm(weights, values).view(query.shape)


def paged_attention_forward(
    module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: object,
    *, paged: Any = None, paged_backend: AttentionBackend[Any] | None = None, scaling: float | None = None,
    sliding_window: int | None = None, softcap: float | None = None, **_: Any,
) -> tuple[torch.Tensor, None]:
    """A Transformers attention function (AttentionInterface): tensors are [1, heads, tokens, head_dim].

    No mask function is registered beside it, so Transformers builds no mask; ours come with the step's spans. What
    else a model may pass is known to be without meaning here: inference.runner.probe has seen to that at load.
    """
    if paged_backend is None:
        held = getattr(module, "held_pass", HeldPass())
        paged, paged_backend = held.paged, held.paged_backend
    if paged_backend is None:
        raise TypeError("attention is called outside of a pass over the paged cache")
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    layer = module.layer_idx
    assert isinstance(layer, int)
    attended = paged_backend(
        layer, query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1), paged,
        scale=scale, window=sliding_window, soft_cap=softcap or 0.0,
    )
    return attended[None], None


class HeldPass(threading.local):
    """What a model is called with, for attention modules to which its layers do not hand it. One a thread."""

    paged: Any = None
    paged_backend: AttentionBackend[Any] | None = None


def hold_passes(model: torch.nn.Module) -> None:
    """For definitions whose layers keep keyword arguments to themselves: each pass is left where attention finds it."""
    held = HeldPass()

    def hold(_: torch.nn.Module, args: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        held.paged, held.paged_backend = options.pop("paged", None), options.pop("paged_backend", None)
        return args, options

    model.register_forward_pre_hook(hold, with_kwargs=True)
    for module in model.modules():
        if hasattr(module, "layer_idx"):
            cast(Any, module).held_pass = held


AttentionInterface.register(INTERFACE_NAME, paged_attention_forward)
