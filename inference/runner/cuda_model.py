"""A Transformers model taken apart into what a CUDA step runs: a few kernels a layer.

Of its parts (inference.runner.model_parts) what multiplies a layer's results is folded into its weights. Decode runs
our kernels throughout; prefill runs cuBLAS products between our attention kernels. Weights are shared by both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import nn

from inference.paged_kv.pool import KVPool
from inference.runner.fusions import Recognised
from inference.runner.kernels.attention import PagedAttention
from inference.runner.kernels.chunks import Chunks
from inference.runner.kernels.elementwise import add_normed, gated
from inference.runner.kernels.heads import HeadShape, HeadTargets, LayerAttention, store_heads
from inference.runner.kernels.linear import MAX_ROWS, RowSquares, SmallLinear, interleave
from inference.runner.kernels.overlap import NO_OVERLAP, Overlap, may_overlap
from inference.runner.kernels.rows import RowInputs
from inference.runner.layer_parts import Affine, Norm, is_gelu
from inference.runner.model_parts import ModelParts
from inference.runner.rotary import rotation_table

# With more rows, what starts early takes the running kernel's room rather than what it leaves: measured on an H200.
_MOST_EARLY_ATTENTION, _MOST_EARLY_OUT = 16, 1


def nothing() -> None:
    """What is done before the logits where nobody asks for anything."""


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
    sample_at: [S] int64, tokens whose logits are wanted; chunks: once more, where PagedAttention.wants_chunks.
    """

    token_ids: torch.Tensor
    slots: torch.Tensor
    positions: torch.Tensor
    tiles: torch.Tensor
    sample_at: torch.Tensor
    chunks: Chunks | None = None


class DeviceLinear:
    """A linear layer with a norm before it and, if gated, SwiGLU or GeGLU after it, for any number of rows.

    The norm's weight is multiplied into the layer's, unless others share the layer's weight (folds=False).
    """

    def __init__(
        self, affine: Affine, *, norm: Norm | None = None, folds: bool = True, gated: bool = False, gelu: bool = False,
        head_dim: int = 0,
    ) -> None:  # fmt: skip
        weight, bias = affine
        eps, norm_weight = (None, None) if norm is None else (norm.eps, norm.weight.to(weight.dtype))
        if norm is not None and folds:
            weight, norm_weight = (weight.float() * norm.weight.float()).to(weight.dtype), None
        self.small = SmallLinear(
            weight, bias=bias, eps=eps, norm_weight=norm_weight, gated=gated, gelu=gelu, head_dim=head_dim
        )

    def __call__(
        self, x: torch.Tensor, out: torch.Tensor, squares: RowSquares | None, *, residual: torch.Tensor | None = None,
        overlap: Overlap = NO_OVERLAP,
    ) -> torch.Tensor:  # fmt: skip
        if x.shape[0] <= MAX_ROWS:
            return self.small(x, out, squares=squares, residual=residual, overlap=overlap)
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
            y = gated(y, small.gelu)
        return y if residual is None else residual.add_(y)


class DeviceAddition:
    """A linear layer whose result, normed if there is a norm, is multiplied and added to the hidden states."""

    def __init__(self, affine: Affine, norm: Norm | None, multiplier: float) -> None:
        self._norm = None if norm is None else Norm(_times(norm.weight, multiplier), norm.eps)
        weight, bias = affine
        if norm is None:
            weight, bias = _times(weight, multiplier), None if bias is None else _times(bias, multiplier)
        self._linear = DeviceLinear((weight, bias))

    @property
    def may_start_early(self) -> bool:
        return self._norm is None and self._linear.small.tiling.groups > 1

    def __call__(
        self, x: torch.Tensor, hidden: torch.Tensor, squares: RowSquares, *, starts_early: bool = False
    ) -> None:
        if self._norm is None:
            self._linear(x, hidden, squares, residual=hidden, overlap=Overlap(starts_early=starts_early))
        else:
            y = self._linear(x, torch.empty_like(hidden), None)
            add_normed(y, self._norm.weight, self._norm.eps, hidden, squares if len(x) <= MAX_ROWS else None)

    def many(self, x: torch.Tensor, hidden: torch.Tensor) -> None:
        if self._norm is None:
            self._linear.many(x, residual=hidden)
        else:
            add_normed(self._linear.many(x), self._norm.weight, self._norm.eps, hidden, None)


class DeviceLayer:
    """One decoder layer's weights, fused, and its part of the cache.

    cos_sin: [max_model_len, m] float32; turns: which of its columns are the layer's.
    """

    def __init__(self, seen: Recognised, pool: KVPool, shape: HeadShape, cos_sin: torch.Tensor, turns: slice) -> None:
        parts, use = seen.parts, seen.use
        layout = use.layout(parts.head_dim, shape.head_dim)
        norms = (layout.norm(parts.query_norm), layout.norm(parts.key_norm))
        query_norm, key_norm = (None, None) if parts.norms_heads_together else norms
        self._joint_norms = norms if parts.norms_heads_together else None
        self.attention = LayerAttention(
            keys=pool.keys[seen.index], values=pool.values[seen.index], scale=use.scale, window=use.window,
            query_norm=None if query_norm is None else query_norm.weight,
            key_norm=None if key_norm is None else key_norm.weight,
            eps=0.0 if query_norm is None else query_norm.eps, soft_cap=use.soft_cap, rotates=use.num_rotated > 0,
        )  # fmt: skip
        self.qkv = DeviceLinear(
            layout.qkv(parts.query, parts.key, parts.value), norm=parts.attention_in, head_dim=shape.head_dim
        )
        self.out = DeviceAddition(layout.out(parts.out), parts.attention_out, parts.residual_multiplier)
        self.gate_up = DeviceLinear(
            _interleaved(parts.gate, parts.up), norm=parts.mlp_in, gated=True, gelu=is_gelu(parts.activation)
        )
        self.down = DeviceAddition(parts.down, parts.mlp_out, parts.residual_multiplier)
        self._shape, self._turns, self._cos_sin = shape, turns, cos_sin[:, turns]
        self._may_overlap = may_overlap(cos_sin.device)

    def decode(self, scratch: Scratch, batch: int, paged: PagedAttention) -> None:
        inputs, attended = scratch.inputs.first(batch), scratch.attended[:batch]
        hidden, squares = inputs.hidden, inputs.squares
        out_early = self._may_overlap and batch <= _MOST_EARLY_OUT and self.out.may_start_early
        attends_early = False
        if self._joint_norms is not None:
            qkv = self.qkv(hidden, hidden.new_empty(batch, self._shape.qkv_width), squares)
            query = self._stored(qkv, inputs.slots, inputs.positions)
        elif batch <= MAX_ROWS:
            attends_early = self._may_overlap and batch <= _MOST_EARLY_ATTENTION
            heads = HeadTargets(self._shape, self.attention, inputs.slots, inputs.rotations[:, self._turns])
            overlap = Overlap(lets_next_start=attends_early)
            query = self.qkv.small(hidden, scratch.query[:batch], squares=squares, heads=heads, overlap=overlap)
        else:
            query = self._stored(self.qkv.many(hidden), inputs.slots, inputs.positions)
        overlap = Overlap(starts_early=attends_early, lets_next_start=out_early)
        paged.decode(self.attention, query, inputs.positions, inputs.tables, attended, overlap=overlap)
        self.out(attended, hidden, squares, starts_early=out_early)
        activated = self.gate_up(hidden, scratch.activated[:batch], squares)
        self.down(activated, hidden, squares)

    def prefill(self, hidden: torch.Tensor, tokens: PackedTokens, paged: PagedAttention) -> None:
        qkv = self._stored(self.qkv.many(hidden), tokens.slots, tokens.positions)
        attended = paged.attend_packed(self.attention, qkv, tokens.tiles, tokens.chunks)
        self.out.many(attended, hidden)
        self.down.many(self.gate_up.many(hidden), hidden)

    def _stored(self, qkv: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """The same, [T, qkv_width], its queries ready to attend; its keys and values are in the cache."""
        if self._joint_norms is not None:
            first_key, first_value = self._shape.query_width, qkv.shape[1] - self._shape.key_width
            for heads, norm in zip((qkv[:, :first_key], qkv[:, first_key:first_value]), self._joint_norms, strict=True):
                assert norm is not None, "queries and keys are normed alike"
                heads.copy_(F.rms_norm(heads, norm.weight.shape, norm.weight.to(heads.dtype), norm.eps))
        store_heads(self._shape, self.attention, qkv, slots, positions, self._cos_sin)
        return qkv


class DeviceModel:
    """The whole model. `decode` fills scratch.logits for a batch of rows; `prefill` returns logits of chosen tokens.

    cos_sin: [max_model_len, n * head_dim] float32, n tables as rotation_table gives them, side by side.
    """

    def __init__(self, model: nn.Module, parts: ModelParts, pool: KVPool, max_model_len: int) -> None:
        """Takes the layers out of the parts, and out of the model: their separate projections are freed one by one."""
        decoder, layout = cast(Any, model).get_decoder(), pool.layout
        self.shape = HeadShape(parts.layers[0].parts.num_heads, layout.num_kv_heads, layout.head_dim)
        self.embedding, self._embedding_multiplier = parts.embedding, parts.embedding_multiplier
        positions, width = torch.arange(max_model_len, device=self.embedding.device), layout.head_dim
        types = list(dict.fromkeys(parts.rotary_types))
        self.cos_sin = torch.cat([rotation_table(model, positions, width, kind) for kind in types], dim=1)
        self.layers: list[DeviceLayer] = []
        while parts.layers:
            seen = parts.layers.pop(0)
            decoder.layers[len(self.layers)] = nn.Identity()
            first = types.index(parts.rotary_types[len(self.layers)]) * width
            self.layers.append(DeviceLayer(seen, pool, self.shape, self.cos_sin, slice(first, first + width)))
        self.head, self._finish = _head(parts), parts.finish
        self.num_outputs = self.head.small.num_outputs
        self.intermediate_size = self.layers[0].gate_up.small.num_results

    def scratch(self, rows: int, block_table: torch.Tensor) -> Scratch:
        embedding, shape = self.embedding, self.shape
        return Scratch(
            inputs=RowInputs.empty(
                rows, embedding, block_table, self.cos_sin.shape[1], embedding_multiplier=self._embedding_multiplier
            ),
            query=embedding.new_empty(rows, shape.query_width),
            attended=embedding.new_empty(rows, shape.query_width),
            activated=embedding.new_empty(rows, self.intermediate_size),
            logits=embedding.new_empty(rows, self.head.small.num_outputs, dtype=torch.float32),
        )

    def decode(
        self, scratch: Scratch, batch: int, paged: PagedAttention, *, before_logits: Callable[[], None] = nothing
    ) -> torch.Tensor:
        """See StepModel."""
        for layer in self.layers:
            layer.decode(scratch, batch, paged)
        before_logits()
        return self._finish(self.head(scratch.inputs.hidden[:batch], scratch.logits[:batch], scratch.inputs.squares))

    def prefill(self, tokens: PackedTokens, paged: PagedAttention) -> torch.Tensor:
        """Logits [S, vocab] float32 of the tokens at tokens.sample_at."""
        hidden = F.embedding(tokens.token_ids, self.embedding)
        if self._embedding_multiplier != 1:
            hidden *= self._embedding_multiplier
        for layer in self.layers:
            layer.prefill(hidden, tokens, paged)
        return self._finish(self.head.many(hidden[tokens.sample_at]).float())


def _head(parts: ModelParts) -> DeviceLinear:
    """What logits are multiplied by is multiplied into the norm: the head's weight may be the embedding's too."""
    multiplier, (weight, bias) = parts.logits_multiplier, parts.head
    norm = Norm(_times(parts.norm.weight, multiplier), parts.norm.eps)
    return DeviceLinear((weight, None if bias is None else _times(bias, multiplier)), norm=norm, folds=False)


def _times(x: torch.Tensor, multiplier: float) -> torch.Tensor:
    return x if multiplier == 1 else x * multiplier


def _interleaved(gate: Affine, up: Affine) -> Affine:
    """One projection to both, in the order that a gated SmallLinear takes."""
    weight = interleave(gate[0], up[0])
    if gate[1] is None and up[1] is None:
        return weight, None
    biases = [w.new_zeros(len(w)) if bias is None else bias for w, bias in (gate, up)]
    return weight, interleave(*biases)
