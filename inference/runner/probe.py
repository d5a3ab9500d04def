"""What a loaded model asks of attention, found by running it on a dozen tokens; refuses what pages cannot give.

The model runs twice: whole, with the attention and masks of its own definition, and in two pieces through paged
attention. Every layer must call attention once, with nothing that the pages do not know; and both runs must agree.
State that a layer carries from step to step besides its keys and values, a mask other than causal and windowed, or a
score that depends on more than query and key cannot pass. Windows are shortened meanwhile, so that they matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn
from transformers import AttentionInterface

from inference.errors import ModelLoadError
from inference.paged_kv.pool import KVLayout, KVPool
from inference.runner.attention import INTERFACE_NAME, HeldPass, TorchAttention, hold_passes, paged_attention_forward
from inference.runner.foreign_errors import told
from inference.runner.fusions import one_block
from inference.runner.input_batch import StepInputs

_PROBE_NAME = "headrace_probe"
_FIRST_TOKENS, _MORE_TOKENS = 5, 7
_SHORT_WINDOW = 4
_WINDOW_NAMES = ("sliding_window", "attention_chunk_size")
# Median error of a token's logits. The second run sums in another order; a wrong mask or lost state gives far more.
_TOLERANCES = {torch.float32: 1e-2, torch.bfloat16: 0.2, torch.float16: 0.2}
# What Transformers' definitions pass to attention and paged attention either honours or has no use for.
_KNOWN = frozenset((
    "scaling", "sliding_window", "softcap", "dropout", "is_causal", "position_ids", "position_embeddings", "use_cache",
    "cache", "past_key_values", "output_attentions", "output_hidden_states", "output_router_logits", "return_dict",
    "logits_to_keep", "paged", "paged_backend",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class KVShape:
    """What every layer hands over for a token, and the number of layers."""

    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int


def shape_of_definition(model: nn.Module, num_layers: int) -> KVShape | None:
    """What a model without weights, on the meta device, tells already; None if it cannot run there, as where experts
    are picked by value. Raises ModelLoadError."""
    calls = _Calls(type(model).__name__)
    positions = torch.arange(_FIRST_TOKENS, device="meta")
    cast(Any, model).set_attn_implementation(_PROBE_NAME)
    try:
        with torch.inference_mode():
            model(input_ids=positions[None], position_ids=positions[None], use_cache=False,
                  paged=one_block(_FIRST_TOKENS, positions.device), paged_backend=calls)  # fmt: skip
    except ModelLoadError:
        raise
    except Exception:
        return None  # the loaded model will show whether that matters
    return calls.shape(num_layers)


def probe(model: nn.Module, num_layers: int, longest: int) -> KVShape:
    """longest: tokens that the model reaches. Raises ModelLoadError where it needs more than paged attention gives.
    Leaves it set to run through the pages."""
    embedding = cast(Any, model).get_input_embeddings().weight
    device = embedding.device
    input_ids = (torch.arange(1, _FIRST_TOKENS + _MORE_TOKENS + 1, device=device) * 37) % embedding.shape[0]
    calls = _Calls(type(model).__name__)
    with torch.inference_mode(), _short_windows(model, longest):
        expected = _run(model, "eager", input_ids)
        first = one_block(_FIRST_TOKENS, device)
        second = one_block(_MORE_TOKENS, device, first=_FIRST_TOKENS)
        try:
            _run(model, _PROBE_NAME, input_ids[:_FIRST_TOKENS], first, calls)
        except _NotHandedOn:
            hold_passes(model)
            _run(model, _PROBE_NAME, input_ids[:_FIRST_TOKENS], first, calls)
        shape = calls.shape(num_layers)
        got = _run(model, _PROBE_NAME, input_ids[_FIRST_TOKENS:], second, calls)
    _compare(type(model).__name__, got, expected[_FIRST_TOKENS:], _TOLERANCES[embedding.dtype])
    cast(Any, model).set_attn_implementation(INTERFACE_NAME)
    return shape


class _NotHandedOn(Exception):
    """An attention module is not given what the model was called with."""


class _Calls:
    """The layers' calls of attention in one pass; keeps each layer's keys and values in a block of its own.

    It is the paged backend of its passes, and hands each call on to the layer's own.
    """

    name = "probe"

    def __init__(self, architecture: str) -> None:
        self._architecture = architecture
        self._shapes: dict[int, tuple[int, int, int]] = {}
        self._backends: dict[int, TorchAttention] = {}
        self._counts: dict[int, int] = {}

    def note(
        self, module: nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: dict[str, Any]
    ) -> None:
        if options.pop("mask") is not None:
            raise self._refused("it masks attention in a way of its own")
        strange = sorted(
            name for name, given in options.items() if name not in _KNOWN and given is not None and given is not False
        )
        if strange:
            raise self._refused(f"its attention depends on {', '.join(strange)}, which paged attention does not know")
        if options.get("is_causal") is False or getattr(module, "is_causal", True) is False:
            raise self._refused("its attention also looks ahead, where paged attention is causal")
        if key.shape[-1] != value.shape[-1]:
            raise self._refused(
                f"its keys have {key.shape[-1]} dimensions and its values {value.shape[-1]}; one width is supported"
            )
        layer = getattr(module, "layer_idx", None)
        if not isinstance(layer, int):
            raise self._refused(f"its {type(module).__name__} has no layer_idx")
        self._counts[layer] = self._counts.get(layer, 0) + 1
        self._shapes[layer] = (query.shape[1], key.shape[1], key.shape[-1])

    def shape(self, num_layers: int) -> KVShape:
        """After one pass; layers are those that have called."""
        silent = sorted(set(range(num_layers)) - self._counts.keys())
        if silent:
            raise self._refused(
                f"{len(silent)} of its {num_layers} layers do not call Transformers' attention interface (the first: "
                f"layer {silent[0]}), so what they remember is no paged keys and values"
            )
        if len(self._counts) != num_layers:
            raise self._refused(f"{len(self._counts)} layers call attention, where config.json gives {num_layers}")
        if set(self._counts.values()) != {1}:
            raise self._refused("its layers call attention more than once a pass")
        shapes = set(self._shapes.values())
        if len(shapes) != 1:
            raise self._refused(
                "its layers differ in what they cache: "
                + ", ".join(f"{heads} heads over {kv} of {dims} dimensions" for heads, kv, dims in sorted(shapes))
            )
        return KVShape(num_layers, *shapes.pop())

    def _refused(self, reason: str) -> ModelLoadError:
        return ModelLoadError(f"{self._architecture} is not supported: {reason}.")

    def __call__(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, step: StepInputs, **options: Any
    ) -> torch.Tensor:
        if layer not in self._backends:
            layout = KVLayout(1, key.shape[1], key.shape[2], step.spans[0].kv_len, key.dtype)
            self._backends[layer] = TorchAttention(KVPool(layout, 1, key.device))
        return self._backends[layer](0, query, key, value, step, **options)


def _probed_attention_forward(
    module: nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: object,
    **options: Any,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    held = getattr(module, "held_pass", None)
    calls = held.paged_backend if isinstance(held, HeldPass) else options.get("paged_backend")
    if calls is None:
        raise _NotHandedOn
    cast(_Calls, calls).note(module, query, key, value, options | {"mask": attention_mask})
    return paged_attention_forward(module, query, key, value, attention_mask, **options)


def _run(
    model: nn.Module, implementation: str, input_ids: torch.Tensor, step: StepInputs | None = None,
    calls: _Calls | None = None,
) -> torch.Tensor:  # fmt: skip
    """[num_tokens, vocab] float32."""
    cast(Any, model).set_attn_implementation(implementation)
    positions = torch.arange(len(input_ids), device=input_ids.device) if step is None else step.positions
    paged = {} if step is None else {"paged": step, "paged_backend": calls}
    try:
        logits = model(input_ids=input_ids[None], position_ids=positions[None], use_cache=False, **paged).logits
    except torch.OutOfMemoryError:
        raise
    except (ModelLoadError, _NotHandedOn):
        raise
    except Exception as error:  # whatever a definition that is not made for this does
        where = "through paged attention" if step is not None else "without a cache"
        raise ModelLoadError(
            f"{type(model).__name__} is not supported: it does not run {where}: {told(error)}"
        ) from error
    return cast(torch.Tensor, logits)[0].float()


def _compare(architecture: str, got: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    errors = (got - expected).norm(dim=-1) / expected.norm(dim=-1).clamp_min(1e-20)
    if torch.isfinite(expected).all() and not errors.median() <= tolerance:
        raise ModelLoadError(
            f"{architecture} is not supported: run in pieces through paged attention it gives other logits than run "
            f"whole (relative error {errors.median():.2g}), so its layers keep more than keys and values, or mask "
            "attention in a way of their own."
        )


@contextmanager
def _short_windows(model: nn.Module, longest: int) -> Iterator[None]:
    """Windows and chunks of attention are _SHORT_WINDOW tokens, wherever the definition keeps them; those that no
    sequence fills stay as they are."""
    owners: dict[int, Any] = {}
    for module in model.modules():
        for owner in (module, getattr(module, "config", None)):
            if owner is not None:
                owners[id(owner)] = owner
    saved = [
        (owner, name, getattr(owner, name))
        for owner in owners.values()
        for name in _WINDOW_NAMES
        if type(getattr(owner, name, None)) is int and getattr(owner, name) < longest
    ]
    try:
        for owner, name, _ in saved:
            setattr(owner, name, _SHORT_WINDOW)
        yield
    finally:
        for owner, name, value in saved:
            setattr(owner, name, value)


AttentionInterface.register(_PROBE_NAME, _probed_attention_forward)
