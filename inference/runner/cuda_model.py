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
from inference.runner.kernels.attention import HeadShape, LayerAttention, PagedAttention
from inference.runner.kernels.linear import MAX_ROWS, RowSquares, SmallLinear, interleave


@dataclass(frozen=True, slots=True)
class Scratch:
    """Activations of one pass, reused by all layers; the first B rows are used.

    hidden: [rows, hidden]; qkv, attended, activated likewise; logits: [rows, vocab] float32; positions: [rows] int32.
    """

    hidden: torch.Tensor
    qkv: torch.Tensor
    attended: torch.Tensor
    activated: torch.Tensor
    logits: torch.Tensor
    positions: torch.Tensor
    squares: RowSquares


class DeviceLinear:
    """A linear layer with a norm before it and, if gated, SwiGLU after it, for any number of rows.

    The norm's weight is multiplied into the layer's, unless others share the layer's weight (folds=False).
    """

    def __init__(
        self, weight: torch.Tensor, *, bias: torch.Tensor | None = None,
        norm: tuple[torch.Tensor, float] | None = None, folds: bool = True, gated: bool = False,
    ) -> None:  # fmt: skip
        norm_weight, eps = norm if norm is not None else (None, None)
        if norm_weight is not None and folds:
            weight = (weight.float() * norm_weight.float()).to(weight.dtype)
            norm_weight = None
        self.small = SmallLinear(weight, bias=bias, eps=eps, norm_weight=norm_weight, gated=gated)

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
            y = F.silu(y[:, 0::2]) * y[:, 1::2]
        return y if residual is None else residual.add_(y)


class DeviceLayer:
    """One decoder layer's weights, fused, and its part of the cache."""

    def __init__(self, seen: Recognised, pool: KVPool, shape: HeadShape) -> None:
        layer = cast(Any, seen.layer)
        attention, mlp = layer.self_attn, layer.mlp
        index = attention.layer_idx
        has_norms = hasattr(attention, "q_norm")
        self.attention = LayerAttention(
            keys=pool.keys[index], values=pool.values[index], scale=seen.scale, window=seen.window,
            query_norm=attention.q_norm.weight.detach() if has_norms else None,
            key_norm=attention.k_norm.weight.detach() if has_norms else None,
            eps=attention.q_norm.variance_epsilon if has_norms else 0.0,
        )  # fmt: skip
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        self.qkv = DeviceLinear(
            torch.cat([linear.weight.detach() for linear in projections]), bias=_cat_biases(projections),
            norm=_norm(layer.input_layernorm),
        )  # fmt: skip
        self.out = DeviceLinear(attention.o_proj.weight.detach(), bias=_bias(attention.o_proj))
        self.gate_up = DeviceLinear(
            interleave(mlp.gate_proj.weight.detach(), mlp.up_proj.weight.detach()),
            bias=_interleaved_bias(mlp), norm=_norm(layer.post_attention_layernorm), gated=True,
        )  # fmt: skip
        self.down = DeviceLinear(mlp.down_proj.weight.detach(), bias=_bias(mlp.down_proj))
        self.qkv_width = shape.qkv_width

    def decode(self, scratch: Scratch, batch: int, row_ids: torch.Tensor, paged: PagedAttention) -> None:
        hidden, attended = scratch.hidden[:batch], scratch.attended[:batch]
        squares = scratch.squares
        qkv = self.qkv(hidden, scratch.qkv[:batch], squares)
        paged.decode(self.attention, qkv, row_ids, scratch.positions[:batch], attended)
        self.out(attended, hidden, squares, residual=hidden)
        activated = self.gate_up(hidden, scratch.activated[:batch], squares)
        self.down(activated, hidden, squares, residual=hidden)

    def prefill(
        self, hidden: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor, tiles: torch.Tensor,
        paged: PagedAttention,
    ) -> None:  # fmt: skip
        qkv = self.qkv.many(hidden)
        paged.store(self.attention, qkv, slots, positions)
        attended = hidden.new_empty(hidden.shape[0], self.out.small.num_inputs)
        paged.prefill(self.attention, qkv, tiles, attended)
        self.out.many(attended, residual=hidden)
        self.down.many(self.gate_up.many(hidden), residual=hidden)


class DeviceModel:
    """The whole model. `decode` fills scratch.logits for a batch of rows; `prefill` returns logits of chosen tokens."""

    def __init__(self, model: nn.Module, pool: KVPool) -> None:
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
        self.layers = []
        for index, seen in enumerate(recognised):
            assert seen is not None
            self.layers.append(DeviceLayer(seen, pool, self.shape))
            recognised[index] = None
            decoder.layers[index] = nn.Identity()  # its separate projections are not needed any more
        head = hf.get_output_embeddings()
        self.head = DeviceLinear(head.weight.detach(), bias=_bias(head), norm=_norm(decoder.norm), folds=False)
        self.intermediate_size = self.layers[0].gate_up.small.num_results

    def scratch(self, rows: int) -> Scratch:
        embedding, shape = self.embedding, self.shape
        return Scratch(
            hidden=embedding.new_empty(rows, embedding.shape[1]),
            qkv=embedding.new_empty(rows, shape.qkv_width),
            attended=embedding.new_empty(rows, shape.num_heads * shape.head_dim),
            activated=embedding.new_empty(rows, self.intermediate_size),
            logits=embedding.new_empty(rows, self.head.small.num_outputs, dtype=torch.float32),
            positions=embedding.new_zeros(rows, dtype=torch.int32),
            squares=RowSquares.on(embedding.device),
        )

    def decode(self, scratch: Scratch, row_ids: torch.Tensor, paged: PagedAttention) -> torch.Tensor:
        """scratch.hidden and .positions hold the batch; returns its logits, [B, vocab] float32."""
        batch = row_ids.shape[0]
        for layer in self.layers:
            layer.decode(scratch, batch, row_ids, paged)
        return self.head(scratch.hidden[:batch], scratch.logits[:batch], scratch.squares)

    def prefill(
        self, token_ids: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor, tiles: torch.Tensor,
        sample_at: torch.Tensor, paged: PagedAttention,
    ) -> torch.Tensor:  # fmt: skip
        """token_ids, slots, positions: [T] int32; sample_at: [S] int64. Returns logits [S, vocab] float32."""
        hidden = F.embedding(token_ids, self.embedding)
        for layer in self.layers:
            layer.prefill(hidden, slots, positions, tiles, paged)
        return self.head.many(hidden[sample_at]).float()


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


def _cat_biases(linears: tuple[Any, ...]) -> torch.Tensor | None:
    if all(linear.bias is None for linear in linears):
        return None
    zeros = [linear.weight.new_zeros(linear.out_features) for linear in linears]
    biases = [linear.bias for linear in linears]
    return torch.cat([zero if bias is None else bias.detach() for zero, bias in zip(zeros, biases, strict=True)])


def _interleaved_bias(mlp: Any) -> torch.Tensor | None:
    if mlp.gate_proj.bias is None:
        return None
    return interleave(mlp.gate_proj.bias.detach()[:, None], mlp.up_proj.bias.detach()[:, None]).flatten()
