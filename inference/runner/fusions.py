"""Recognises decoder layers by their parts, not by the model's name, and runs each as one module.

A layer of RMSNorms, grouped-query attention and a gated MLP becomes a FusedLayer. A fusion is trusted only after it has
reproduced the original layer's output on random input; what does not match stays as Transformers defines it.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn

from inference.errors import ModelLoadError
from inference.paged_kv.pool import KVLayout, KVPool
from inference.runner.attention import AttentionBackend, TorchAttention
from inference.runner.fused_layer import Embeddings, FusedLayer, MakeLinear, Use
from inference.runner.input_batch import Span, StepInputs
from inference.runner.layer_parts import LayerParts, parts_of
from inference.runner.linear import dense

_TRIAL_TOKENS = 7


@dataclass(frozen=True, slots=True)
class Recognised:
    """A decoder layer of the known pattern, with the way in which it uses attention."""

    layer: nn.Module
    parts: LayerParts
    use: Use

    @property
    def index(self) -> int:
        return cast(int, cast(Any, self.layer).self_attn.layer_idx)


def recognise(model: nn.Module) -> list[Recognised | None]:
    """For each decoder layer, whether its parts are known and a fusion of them gives what the layer gives."""
    layers = decoder_layers(model)
    if not layers:
        return []
    positions = trial_positions(model)
    stubs, _ = run_without_layers(model, positions)
    return [_recognised(layer, stub.embeddings, positions) for layer, stub in zip(layers, stubs, strict=True)]


def fuse_layers(model: nn.Module, make_linear: MakeLinear) -> tuple[int, int]:
    """Replace the decoder layers that can be fused; returns (fused, total). Old weights are freed layer by layer."""
    layers = decoder_layers(model)
    recognised = recognise(model)
    for index, seen in enumerate(recognised):
        if seen is not None:
            layers[index] = FusedLayer(seen.layer, make_linear, seen.use)
            recognised[index] = None
    return sum(isinstance(layer, FusedLayer) for layer in layers), len(layers)


def decoder_layers(model: nn.Module) -> nn.ModuleList:
    """Empty where the definition keeps its layers under another name, which then stay as they are."""
    layers = getattr(cast(Any, model).get_decoder(), "layers", None)
    return layers if isinstance(layers, nn.ModuleList) else nn.ModuleList()


def trial_positions(model: nn.Module) -> torch.Tensor:
    """[num_tokens] int64, from the first that the model reaches to the last: some do other things far along."""
    inner: Any = model
    last = int(inner.config.get_text_config().max_position_embeddings) - 1
    device = inner.get_input_embeddings().weight.device
    return torch.arange(_TRIAL_TOKENS, device=device) * last // (_TRIAL_TOKENS - 1)


class Stub(nn.Module):
    """Takes a decoder layer's place: returns `answer`, or what it is given, and notes what that is.

    hidden: [1, num_tokens, width]; embeddings: (cosines, sines), [1, num_tokens, rotated] each, or None.
    """

    def __init__(self, answer: torch.Tensor | None = None) -> None:
        super().__init__()
        self.answer = answer
        self.hidden = torch.empty(0)
        self.embeddings: Embeddings | None = None

    def forward(self, hidden_states: torch.Tensor, *_: Any, **options: Any) -> torch.Tensor:
        given = options.get("position_embeddings")
        self.hidden = hidden_states
        if isinstance(given, tuple) and len(given) == 2:
            self.embeddings = given
        return hidden_states if self.answer is None else self.answer[None]


@torch.inference_mode()
def run_without_layers(
    model: nn.Module, positions: torch.Tensor, last_hidden: torch.Tensor | None = None
) -> tuple[list[Stub], torch.Tensor | None]:
    """One pass of tokens 0, 1, 2, ... in which each layer returns what it is given, the last one last_hidden: (what
    that was, the logits)."""
    layers = decoder_layers(model)
    originals = list(layers)
    stubs = [Stub() for _ in originals[1:]] + [Stub(last_hidden)]
    for index, stub in enumerate(stubs):
        layers[index] = stub
    try:
        input_ids = torch.arange(len(positions), device=positions.device)
        return stubs, model(input_ids=input_ids[None], position_ids=positions[None], use_cache=False).logits
    except (AttributeError, TypeError):  # the definition reads something off its layers
        return [Stub() for _ in originals], None
    except IndexError as error:
        raise ModelLoadError(
            f"{type(model).__name__} is not supported: it has no position {positions.max()}, though its config.json "
            "gives a larger max_position_embeddings."
        ) from error
    finally:
        for index, original in enumerate(originals):
            layers[index] = original


def one_block(num_tokens: int, device: torch.device, first: int = 0, block_size: int = 16) -> StepInputs:
    """A step of one row, at positions from `first` on, whose cache is block 0."""
    at = torch.arange(first, first + num_tokens, device=device)
    span = Span(0, 1, num_tokens, block_size, torch.zeros(1, dtype=torch.int64, device=device), at[None])
    return StepInputs(at, at, at, at[-1:], [0], [num_tokens], [span])


class _Witness:
    """An attention backend that notes with which scale, window and soft cap a layer calls it."""

    name = "witness"

    def __init__(self, backend: AttentionBackend[StepInputs]) -> None:
        self._backend = backend
        self.seen: tuple[float, int | None, float] = (0.0, None, 0.0)

    def __call__(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, step: StepInputs, *,
        scale: float, window: int | None = None, soft_cap: float = 0.0,
    ) -> torch.Tensor:
        self.seen = (scale, window, soft_cap)
        return self._backend(layer, query, key, value, step, scale=scale, window=window, soft_cap=soft_cap)


def _recognised(layer: nn.Module, embeddings: Embeddings | None, positions: torch.Tensor) -> Recognised | None:
    parts = parts_of(layer)
    if parts is None or embeddings is None:
        return None
    try:
        use = _verified(layer, parts, embeddings, positions)
    except torch.OutOfMemoryError:
        raise
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError):
        return None  # it needs something that the trial does not give
    return None if use is None else Recognised(layer, parts, use)


@torch.inference_mode()
def _verified(layer: nn.Module, parts: LayerParts, embeddings: Embeddings, positions: torch.Tensor) -> Use | None:
    """How the layer uses attention, if a dense FusedLayer equals it on random hidden states in float32."""
    trial = _copy_as_float32(layer)
    attention = cast(Any, trial.self_attn)
    device = parts.query[0].device
    hidden = torch.randn(1, _TRIAL_TOKENS, parts.query[0].shape[1], device=device)
    layout = KVLayout(1, parts.num_kv_heads, parts.head_dim, 16, torch.float32)
    witness = _Witness(TorchAttention(KVPool(layout, 1, device)))
    given = (embeddings[0].float(), embeddings[1].float())

    def run(module: nn.Module) -> torch.Tensor:
        step = one_block(_TRIAL_TOKENS, device)
        out = module(hidden.clone(), attention_mask=None, position_ids=positions[None], position_embeddings=given,
                     paged=step, paged_backend=witness)
        return cast(torch.Tensor, out[0] if isinstance(out, tuple) else out)

    index, attention.layer_idx = attention.layer_idx, 0  # the trial's cache has one layer
    try:
        expected = run(trial)
        # Where a layer adds large numbers, small sums of them have large errors.
        tolerance = 1e-4 * max(1.0, float((expected - hidden).square().mean().sqrt()))
        width = given[0].shape[-1]
        for num_rotated, adjacent in ((width, False), (width, True), (0, False)):  # some layers are told no positions
            use = Use(*witness.seen, num_rotated=num_rotated, adjacent=adjacent)
            if torch.allclose(run(FusedLayer(trial, dense, use)), expected, rtol=1e-4, atol=tolerance):
                return use
        return None
    finally:
        attention.layer_idx = index


def _copy_as_float32(layer: nn.Module) -> nn.Module:
    if all(parameter.dtype == torch.float32 for parameter in layer.parameters()):
        return layer
    return deepcopy(layer).float()
