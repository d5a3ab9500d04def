"""A Transformers model taken apart into what a CUDA step runs: a few kernels a layer.

Layers are recognised by their parts (inference.runner.fusions). Decode runs our kernels throughout; prefill runs
cuBLAS products between our attention kernels. Weights are shared by both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import nn

from inference.errors import ModelLoadError
from inference.paged_kv.pool import KVPool
from inference.runner.fusions import Recognised, recognise
from inference.runner.kernels.attention import PagedAttention
from inference.runner.kernels.heads import HeadShape, HeadTargets, LayerAttention, pairwise, store_heads
from inference.runner.kernels.linear import MAX_ROWS, RowSquares, SmallLinear, gated, interleave
from inference.runner.kernels.rows import RowInputs


@dataclass(frozen=True, slots=True)
class Scratch:
    """Activations of one decode pass, reused by all layers; the first B rows are used.

    query: [rows, heads * head_dim]; attended, activated likewise; logits: [rows, vocab] float32.
    """

    inputs: RowInputs
    query: torch.Tensor
    attended: torch.Tensor
    activated: torch.Tensor
    logits: torch.Tensor


@dataclass(frozen=True, slots=True)
class PackedTokens:
    """The tokens of prefill chunks, one after another.

    token_ids, slots, positions: [T] int32; tiles: [n, 8] int32, the chunks cut as kernels.attention.tiles_of does;
    sample_at: [S] int64, tokens whose logits are wanted.
    """

    token_ids: torch.Tensor
    slots: torch.Tensor
    positions: torch.Tensor
    tiles: torch.Tensor
    sample_at: torch.Tensor


class DeviceLinear:
    """A linear layer with a norm before it and, if gated, SwiGLU after it, for any number of rows.

    The norm's weight is multiplied into the layer's, unless others share the layer's weight (folds=False).
    """

    def __init__(
        self, weight: torch.Tensor, *, bias: torch.Tensor | None = None,
        norm: tuple[torch.Tensor, float] | None = None, folds: bool = True, gated: bool = False, head_dim: int = 0,
    ) -> None:  # fmt: skip
        norm_weight, eps = norm if norm is not None else (None, None)
        if norm_weight is not None and folds:
            weight = (weight.float() * norm_weight.float()).to(weight.dtype)
            norm_weight = None
        self.small = SmallLinear(weight, bias=bias, eps=eps, norm_weight=norm_weight, gated=gated, head_dim=head_dim)

    def __call__(
        self, x: torch.Tensor, out: torch.Tensor, squares: RowSquares | None, *, residual: torch.Tensor | None = None
    ) -> torch.Tensor:
        if x.shape[0] <= MAX_ROWS:
            return self.small(x, out, squares=squares, residual=residual)
        y = self.many(x, residual=residual)
        return y if residual is not None else out.copy_(y)

    def many(self, x: torch.Tensor, *, residual: torch.Tensor | None = None) -> torch.Tensor:
        """For many rows: cuBLAS. The residual, if any, is added in place."""
        small = self.small
        if small.eps is not None:
            x = F.rms_norm(x, (small.num_inputs,), small.norm_weight, small.eps)
        if residual is not None and small.bias is None:
            return residual.addmm_(x, small.weight.t())
        y = F.linear(x, small.weight, small.bias)
        if small.gated:
            y = gated(y)
        return y if residual is None else residual.add_(y)


class DeviceLayer:
    """One decoder layer's weights, fused, and its part of the cache."""

    def __init__(self, seen: Recognised, pool: KVPool, shape: HeadShape, cos_sin: torch.Tensor) -> None:
        layer = cast(Any, seen.layer)
        attention, mlp = layer.self_attn, layer.mlp
        index = attention.layer_idx
        has_norms = hasattr(attention, "q_norm")
        self.attention = LayerAttention(
            keys=pool.keys[index], values=pool.values[index], scale=seen.scale, window=seen.window,
            query_norm=pairwise(attention.q_norm.weight.detach(), shape.head_dim) if has_norms else None,
            key_norm=pairwise(attention.k_norm.weight.detach(), shape.head_dim) if has_norms else None,
            eps=attention.q_norm.variance_epsilon if has_norms else 0.0,
        )  # fmt: skip
        weight, bias = _qkv(attention, shape.head_dim)
        self.qkv = DeviceLinear(
            weight, bias=bias,
            norm=_norm(layer.input_layernorm), head_dim=shape.head_dim,
        )  # fmt: skip
        self.out = DeviceLinear(attention.o_proj.weight.detach(), bias=_bias(attention.o_proj))
        self.gate_up = DeviceLinear(
            interleave(mlp.gate_proj.weight.detach(), mlp.up_proj.weight.detach()),
            bias=_interleaved_bias(mlp), norm=_norm(layer.post_attention_layernorm), gated=True,
        )  # fmt: skip
        self.down = DeviceLinear(mlp.down_proj.weight.detach(), bias=_bias(mlp.down_proj))
        self._shape, self._cos_sin = shape, cos_sin

    def decode(self, scratch: Scratch, batch: int, paged: PagedAttention) -> None:
        inputs, attended = scratch.inputs.first(batch), scratch.attended[:batch]
        hidden, squares = inputs.hidden, inputs.squares
        if batch <= MAX_ROWS:
            heads = HeadTargets(self._shape, self.attention, inputs.slots, inputs.rotations)
            query = self.qkv.small(hidden, scratch.query[:batch], squares=squares, heads=heads)
        else:
            query = self._heads(hidden, inputs.slots, inputs.positions)
        paged.decode(self.attention, query, inputs.positions, inputs.tables, attended)
        self.out(attended, hidden, squares, residual=hidden)
        activated = self.gate_up(hidden, scratch.activated[:batch], squares)
        self.down(activated, hidden, squares, residual=hidden)

    def prefill(self, hidden: torch.Tensor, tokens: PackedTokens, paged: PagedAttention) -> None:
        qkv = self._heads(hidden, tokens.slots, tokens.positions)
        attended = hidden.new_empty(hidden.shape[0], self._shape.query_width)
        paged.prefill(self.attention, qkv, tokens.tiles, attended)
        self.out.many(attended, residual=hidden)
        self.down.many(self.gate_up.many(hidden), residual=hidden)

    def _heads(self, hidden: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """[T, qkv_width], queries ready to attend; keys and values are in the cache."""
        qkv = self.qkv.many(hidden)
        store_heads(self._shape, self.attention, qkv, slots, positions, self._cos_sin)
        return qkv


class DeviceModel:
    """The whole model. `decode` fills scratch.logits for a batch of rows; `prefill` returns logits of chosen tokens.

    cos_sin: [max_model_len, head_dim] float32, as cos_sin_table gives it.
    """

    def __init__(self, model: nn.Module, pool: KVPool, cos_sin: torch.Tensor) -> None:
        hf: Any = model
        decoder, layout = hf.get_decoder(), pool.layout
        recognised = recognise(model)
        if not all(recognised):
            raise ModelLoadError(
                f"{type(model).__name__}: {recognised.count(None)} of {len(recognised)} layers do not have the parts "
                "that the CUDA runner fuses. Serve it with --device cpu."
            )
        first = cast(Any, recognised[0]).layer.self_attn
        self.shape = HeadShape(first.q_proj.out_features // layout.head_dim, layout.num_kv_heads, layout.head_dim)
        self.embedding = hf.get_input_embeddings().weight.detach()
        self.cos_sin = cos_sin
        self.layers = []
        for index, seen in enumerate(recognised):
            assert seen is not None
            self.layers.append(DeviceLayer(seen, pool, self.shape, cos_sin))
            recognised[index] = None
            decoder.layers[index] = nn.Identity()  # its separate projections are not needed any more
        head = hf.get_output_embeddings()
        self.head = DeviceLinear(head.weight.detach(), bias=_bias(head), norm=_norm(decoder.norm), folds=False)
        self.num_outputs = self.head.small.num_outputs
        self.intermediate_size = self.layers[0].gate_up.small.num_results

    def scratch(self, rows: int, block_table: torch.Tensor) -> Scratch:
        embedding, shape = self.embedding, self.shape
        return Scratch(
            inputs=RowInputs.empty(rows, embedding, block_table, shape.head_dim),
            query=embedding.new_empty(rows, shape.query_width),
            attended=embedding.new_empty(rows, shape.query_width),
            activated=embedding.new_empty(rows, self.intermediate_size),
            logits=embedding.new_empty(rows, self.head.small.num_outputs, dtype=torch.float32),
        )

    def decode(self, scratch: Scratch, batch: int, paged: PagedAttention) -> torch.Tensor:
        """scratch.inputs holds the batch; returns its logits, [B, vocab] float32."""
        for layer in self.layers:
            layer.decode(scratch, batch, paged)
        return self.head(scratch.inputs.hidden[:batch], scratch.logits[:batch], scratch.inputs.squares)

    def prefill(self, tokens: PackedTokens, paged: PagedAttention) -> torch.Tensor:
        """Logits [S, vocab] float32 of the tokens at tokens.sample_at."""
        hidden = F.embedding(tokens.token_ids, self.embedding)
        for layer in self.layers:
            layer.prefill(hidden, tokens, paged)
        return self.head.many(hidden[tokens.sample_at]).float()


@torch.inference_mode()
def cos_sin_table(model: nn.Module, max_model_len: int) -> torch.Tensor:
    """[max_model_len, head_dim] float32: cosines, then sines, of each position, as the model's own rotary has them."""
    decoder: Any = cast(Any, model).get_decoder()
    device = cast(Any, model).get_input_embeddings().weight.device
    positions = torch.arange(max_model_len, device=device)[None]
    cos, sin = decoder.rotary_emb(torch.zeros(1, 1, dtype=torch.float32, device=device), position_ids=positions)
    half = cos.shape[-1] // 2
    return torch.cat([cos[0, :, :half], sin[0, :, :half]], dim=-1).contiguous()


def _norm(module: Any) -> tuple[torch.Tensor, float]:
    return module.weight.detach(), float(module.variance_epsilon)


def _bias(linear: Any) -> torch.Tensor | None:
    return None if linear.bias is None else linear.bias.detach()


def _qkv(attention: Any, head_dim: int) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The weight and bias of one product for queries, keys and values; queries and keys pairwise."""
    linears = (attention.q_proj, attention.k_proj, attention.v_proj)

    def joined(parts: list[torch.Tensor]) -> torch.Tensor:
        return torch.cat([pairwise(parts[0], head_dim), pairwise(parts[1], head_dim), parts[2]])

    weight = joined([linear.weight.detach() for linear in linears])
    if all(linear.bias is None for linear in linears):
        return weight, None
    zeros = [linear.weight.new_zeros(linear.out_features) for linear in linears]
    biases = [linear.bias for linear in linears]
    return weight, joined([z if bias is None else bias.detach() for z, bias in zip(zeros, biases, strict=True)])


def _interleaved_bias(mlp: Any) -> torch.Tensor | None:
    if mlp.gate_proj.bias is None:
        return None
    return interleave(mlp.gate_proj.bias.detach()[:, None], mlp.up_proj.bias.detach()[:, None]).flatten()
