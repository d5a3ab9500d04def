"""FlashAttention 4 in the place of our prefill kernel, where the package flash-attn-4 is installed and can run.

The one file that knows that package (4.0.0b36: flash_attn.cute). What a version of it can do on a card is found by
trying: a kind of layer is handed to it once a small problem of that kind has come out as plain torch has it.
"""

from __future__ import annotations

import importlib
import logging
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import torch

from inference.config import Attention
from inference.errors import ModelLoadError
from inference.paged_kv.pool import KVLayout, KVPool
from inference.runner.attention import TorchAttention
from inference.runner.input_batch import Span, StepInputs
from inference.runner.kernels.chunks import Chunks

if TYPE_CHECKING:
    from inference.runner.kernels.heads import HeadShape, LayerAttention

logger = logging.getLogger("headrace.engine")

# Major compute capabilities with paged keys: of Blackwell's, those of data centres.
_CAPABILITIES = (9, 10, 11)
_WIDEST_HEAD = 256

# flash_attn.cute.flash_attn_varlen_func: (q, k, v, *, ...) to (attended, log of sums or None).
VarlenAttention = Callable[..., tuple[torch.Tensor, Any]]


@dataclass(frozen=True, slots=True)
class Unavailable:
    """because: a clause; remedy: a sentence."""

    because: str
    remedy: str


def flash_prefill(wanted: Attention, shape: HeadShape, pool: KVPool) -> FlashPrefill | None:
    """None: our own kernel is to be used. Raises ModelLoadError where "flash" is wanted and cannot be."""
    if wanted == "triton":
        return None
    device = pool.keys[0].device
    found = find_flash(pool.layout, torch.cuda.get_device_capability(device))
    if not isinstance(found, Unavailable):
        return FlashPrefill(found, shape, pool.layout, device, is_required=wanted == "flash")
    if wanted == "flash":
        raise ModelLoadError(f"--attention flash: {found.because}. {found.remedy}")
    logger.info("prefill attention is our own: %s", found.because)
    return None


def find_flash(layout: KVLayout, capability: tuple[int, int]) -> VarlenAttention | Unavailable:
    """The package's attention over such a cache; imports it only where all else fits."""
    if capability[0] not in _CAPABILITIES:
        because = f"flash-attn-4 has no paged attention for GPUs of compute capability {'.'.join(map(str, capability))}"
        return Unavailable(because, "Use --attention triton.")
    if layout.dtype not in (torch.bfloat16, torch.float16):
        because = f"flash-attn-4 computes in bf16 and fp16, not in {str(layout.dtype).removeprefix('torch.')}"
        return Unavailable(because, "Use --dtype bf16, or --attention triton.")
    if layout.head_dim > _WIDEST_HEAD:
        because = f"flash-attn-4 takes heads of up to {_WIDEST_HEAD} dimensions, this model's have {layout.head_dim}"
        return Unavailable(because, "Use --attention triton.")
    try:
        attend = cast(VarlenAttention, importlib.import_module("flash_attn.cute").flash_attn_varlen_func)
    except ModuleNotFoundError as error:
        if error.name in ("flash_attn", "flash_attn.cute"):
            return Unavailable("flash-attn-4 is not installed", "Install it: pip install --pre 'flash-attn-4[cu13]'.")
        return Unavailable(f"flash-attn-4 lacks the module {error.name}", "Install that, or use --attention triton.")
    except Exception as error:  # it loads native libraries and a compiler, which fail in ways of their own
        return Unavailable(f"flash-attn-4 cannot be imported: {error}", "Repair it, or use --attention triton.")
    # What its compiler warns of is for those who write kernels.
    warnings.filterwarnings("ignore", category=UserWarning, module=r"cutlass\.")
    return attend


class FlashPrefill:
    """A kernels.chunks.ChunkAttention. The first layer of a kind waits for a trial, and for a compiler: seconds.

    is_required: a kind that fails its trial is an error, not our kernel's.
    """

    name = "flash-attn-4"

    def __init__(
        self, attend: VarlenAttention, shape: HeadShape, layout: KVLayout, device: torch.device, *,
        is_required: bool = False,
    ) -> None:  # fmt: skip
        self._attend, self._shape, self._layout, self._device = attend, shape, layout, device
        self._is_required = is_required
        self._fits: dict[tuple[bool, float], bool] = {}

    @property
    def is_used(self) -> bool:
        return any(self._fits.values())

    def takes(self, layer: LayerAttention) -> bool:
        """Raises ModelLoadError if it is required and does not."""
        kind = (layer.window is not None, layer.soft_cap)
        if kind not in self._fits:
            objection = self._objection(layer)
            if objection is not None and self._is_required:
                raise ModelLoadError(f"--attention flash: {objection}. Use --attention triton.")
            if objection is not None:
                logger.warning("%s: our own kernel computes such layers", objection)
            self._fits[kind] = objection is None
        return self._fits[kind]

    def __call__(self, layer: LayerAttention, qkv: torch.Tensor, chunks: Chunks) -> torch.Tensor:
        """Lengths' bounds are left to be those of the tensors: one kernel then serves every number of tokens."""
        shape = self._shape
        query = qkv[:, : shape.query_width].view(-1, shape.num_heads, shape.head_dim)
        attended, _ = self._attend(
            query, layer.keys, layer.values, cu_seqlens_q=chunks.ends, seqused_k=chunks.num_keys,
            page_table=chunks.tables, softmax_scale=layer.scale, causal=True,
            window_size=(None, None) if layer.window is None else (layer.window - 1, 0), softcap=layer.soft_cap,
        )  # fmt: skip
        return attended.flatten(1)

    def _objection(self, layer: LayerAttention) -> str | None:
        kind = "a window" if layer.window is not None else "no window"
        if layer.soft_cap:
            kind += f" and scores capped at {layer.soft_cap}"
        try:
            off_by = _Trial(self._shape, self._layout, self._device).error(self, layer)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # whatever a compiler says of a card or a shape that it does not know
            return f"flash-attn-4 fails where a layer has {kind}: {type(error).__name__}: {error}"
        return None if off_by <= _TOLERANCE else f"flash-attn-4 is wrong where a layer has {kind}, by {off_by:.0%}"


# Relative; sixteen-bit rounding gives some 0.005, one key too many or a cap left out 0.07 and more.
_TOLERANCE = 0.03
_TRIAL_WINDOW = 20
_TRIAL_CHUNKS = ((0, 3), (37, 70))  # (start, number of tokens)
_TRIAL_PADDING = 5  # tokens of no chunk


class _Trial:
    """Two chunks over scattered blocks, random."""

    def __init__(self, shape: HeadShape, layout: KVLayout, device: torch.device) -> None:
        self._random = torch.Generator(device).manual_seed(0)
        self._shape, self._device = shape, device
        self._blocks_per_row = -(-max(map(sum, _TRIAL_CHUNKS)) // layout.block_size)
        num_blocks = len(_TRIAL_CHUNKS) * self._blocks_per_row
        self._pool = KVPool(replace(layout, num_layers=1), num_blocks, device)
        for cache in (self._pool.keys[0], self._pool.values[0]):
            cache.normal_(generator=self._random)
        self._tables = torch.arange(num_blocks, device=device).flip(0).view(len(_TRIAL_CHUNKS), -1)

    def error(self, prefills: FlashPrefill, like: LayerAttention) -> float:
        """Of the layer's kind of attention, relative to plain torch's."""
        window = None if like.window is None else _TRIAL_WINDOW
        layer = replace(like, keys=self._pool.keys[0], values=self._pool.values[0], window=window)
        shape = self._shape
        counts = [count for _, count in _TRIAL_CHUNKS]
        num_tokens = sum(counts)
        qkv = torch.randn(
            num_tokens + _TRIAL_PADDING, shape.qkv_width, generator=self._random, device=self._device,
            dtype=layer.keys.dtype,
        )  # fmt: skip
        if like.soft_cap:
            qkv[:, : shape.query_width] *= like.soft_cap / 3  # scores that a cap bends
        query, key, value = (
            part.unflatten(1, (-1, shape.head_dim))
            for part in qkv[:num_tokens].split([shape.query_width, *[shape.num_kv_heads * shape.head_dim] * 2], dim=1)
        )
        expected = TorchAttention(self._pool)(
            0, query, key, value, self._step(), scale=layer.scale, window=window, soft_cap=layer.soft_cap
        )
        got = prefills(layer, qkv, self._chunks(counts))[:num_tokens]
        expected = expected.flatten(1).float()
        return float((got.float() - expected).norm() / expected.norm())

    def _chunks(self, counts: Sequence[int]) -> Chunks:
        """With an empty one at the end."""
        lists = ([0, counts[0], sum(counts), sum(counts)], [*map(sum, _TRIAL_CHUNKS), 0])
        ends, num_keys = (torch.tensor(values, dtype=torch.int32, device=self._device) for values in lists)
        return Chunks(ends, num_keys, torch.cat([self._tables, self._tables[:1]]).int())

    def _step(self) -> StepInputs:
        """What TorchAttention takes for the same chunks."""
        block_size = self._pool.layout.block_size
        spans, slots, first = [], [], 0
        for table, (start, count) in zip(self._tables, _TRIAL_CHUNKS, strict=True):
            at = torch.arange(start, start + count, device=self._device)
            slots.append(table[at // block_size] * block_size + at % block_size)
            spans.append(Span(first, 1, count, self._blocks_per_row * block_size, table, at[None]))
            first += count
        nothing = self._tables[0, :0]
        return StepInputs(nothing, nothing, torch.cat(slots), nothing, [], [], spans)
