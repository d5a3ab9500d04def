"""Loads a model and makes it ready to run: the definition checked, the KV pool sized, attention paged, layers fused."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import nn
from transformers import PreTrainedConfig

from inference.config import Attention, Device, EngineConfig
from inference.errors import ModelLoadError
from inference.mask_ledger import MaskJob, MaskMaker
from inference.paged_kv.pool import KVLayout, KVPool
from inference.runner.attention import TorchAttention
from inference.runner.checkpoint import TORCH_DTYPES, definition, eos_token_ids, load_weights, read_config
from inference.runner.fused_layer import FusedLayer
from inference.runner.fusions import decoder_layers, fuse_layers
from inference.runner.linear import Int8Linear, dense, quantize_linears
from inference.runner.memory import check_weights_fit, free_kv_bytes, memory_for, size_kv
from inference.runner.model_parts import ModelParts, Unfusable, model_parts
from inference.runner.model_runner import ModelRunner
from inference.runner.phase_clock import PhaseClock
from inference.runner.probe import KVShape, probe, shape_of_definition
from inference.runner.rotary import settle_rotary
from inference.shared_masks import SharedMasks
from inference.step import StepBounds, StepPlan
from inference.types import ContextBound

if TYPE_CHECKING:
    from inference.runner.step_model import StepModel

logger = logging.getLogger("headrace.engine")

_STEP_TOKENS: dict[Device, int] = {"cpu": 256, "cuda": 2048}
# Heads that our CUDA kernels take are powers of two wide, and at least this: what a tensor core multiplies.
_LEAST_HEAD_DIM = 16


class Runner(Protocol):
    """What the engine drives; one implementation a device."""

    bounds: StepBounds

    @property
    def attention_name(self) -> str: ...

    @property
    def mask_counts(self) -> tuple[int, float]: ...

    def launch(self, plan: StepPlan) -> Any: ...

    def reset_masks(self) -> None: ...

    @property
    def shared_masks(self) -> SharedMasks | None:
        """Where other processes may write masks; None: they are made where they are wanted."""
        ...

    def leave_masks_to(self, maker: MaskMaker) -> None: ...

    def post_masks(self, jobs: list[MaskJob]) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A runner that is ready, and what it turned out to be. max_model_len: tokens a sequence may reach, and
    context_bound what sets that."""

    runner: Runner
    architecture: str
    attention_backend: str
    max_model_len: int
    context_bound: ContextBound
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    num_blocks: int
    kv_bytes: int
    num_parameters: int
    max_step_tokens: int


def load(config: EngineConfig, clock: PhaseClock | None = None) -> LoadedModel:
    """Raises ModelLoadError when the folder cannot be served; the message says why. clock: what times the phases."""
    clock = clock or PhaseClock()
    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    _check_device(config)
    hf_config = read_config(config.model_dir)
    eos_ids = () if config.random_weights else eos_token_ids(config.model_dir, hf_config)
    text_config = hf_config.get_text_config()
    on_cpu = config.device == "cpu"
    free_bytes = free_kv_bytes(config) if on_cpu else 0
    model, shape = _checked_model(hf_config, config, free_bytes)
    clock.lap("weights")
    with memory_for("weights"):
        parts = None if on_cpu else model_parts(model)
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    layout = _kv_layout(shape, config)
    if not on_cpu:
        free_bytes = free_kv_bytes(config)  # what the weights have left
    longest = int(text_config.max_position_embeddings)
    max_model_len, num_blocks, bound = size_kv(longest, config, layout, free_bytes)
    for kind in settle_rotary(model, max_model_len):
        logger.info("%s rotary embeddings are those for sequences of %d tokens", kind, max_model_len)
    place = _Place(layout, num_blocks, max_model_len, config.max_rows, config.attention)
    if parts is None:
        runner: Runner = _cpu_runner(model, place, config)
    else:
        runner = _cuda_runner(model, parts, place, shape.num_heads, clock)
    return LoadedModel(
        runner=runner,
        architecture=type(model).__name__,
        attention_backend=runner.attention_name,
        max_model_len=max_model_len,
        context_bound=bound,
        vocab_size=text_config.vocab_size,
        eos_token_ids=eos_ids,
        num_blocks=num_blocks,
        kv_bytes=num_blocks * layout.bytes_per_block,
        num_parameters=num_parameters,
        max_step_tokens=config.max_step_tokens or _STEP_TOKENS[config.device],
    )


def _checked_model(
    hf_config: PreTrainedConfig, config: EngineConfig, free_bytes: int
) -> tuple[nn.Module, KVShape]:
    """With its weights; what can be said before they are read is said then."""
    text_config = hf_config.get_text_config()
    longest, num_layers = int(text_config.max_position_embeddings), text_config.num_hidden_layers
    defined = definition(hf_config, config.model_dir)
    if config.device == "cpu":
        check_weights_fit(defined, TORCH_DTYPES[config.dtype])
    expected = shape_of_definition(defined, num_layers)
    if expected is not None and (config.device == "cpu" or config.kv_bytes is not None):
        size_kv(longest, config, _kv_layout(expected, config), free_bytes)
    with memory_for("weights"):
        model = load_weights(hf_config, config)
        return model, probe(model, num_layers, longest)


def _check_device(config: EngineConfig) -> None:
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ModelLoadError("--device cuda: torch finds no CUDA device here. Use --device cpu.")
    if config.device == "cuda" and config.dtype == "int8":
        raise ModelLoadError("--dtype int8 is for CPUs. With --device cuda use bf16, fp16 or fp32.")
    if config.device == "cpu" and config.attention != "auto":
        raise ModelLoadError(f"--attention {config.attention} is for --device cuda. Leave it out on the CPU.")
    if config.dtype == "int8" and not {"x86", "fbgemm"} & set(torch.backends.quantized.supported_engines):
        raise ModelLoadError("--dtype int8 needs an x86 CPU with AVX2. Use --dtype fp32 or bf16.")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a model is to run: the cache's layout and size, and what bounds the rows."""

    layout: KVLayout
    num_blocks: int
    max_model_len: int
    max_rows: int
    attention: Attention


def _cpu_runner(model: nn.Module, place: _Place, config: EngineConfig) -> ModelRunner:
    quantized = config.dtype == "int8"
    fuse_layers(model, Int8Linear if quantized else dense)
    layers = decoder_layers(model)
    unfused = Counter(type(layer).__name__ for layer in layers if not isinstance(layer, FusedLayer))
    logger.info(
        "fused %d of %d layers (%s)%s", len(layers) - unfused.total(), place.layout.num_layers, config.dtype,
        "".join(f"; {count} {name} run as Transformers defines them" for name, count in unfused.items()),
    )  # fmt: skip
    if quantized:
        logger.info("%d more linears run as int8", quantize_linears(model))
    pool = KVPool(place.layout, place.num_blocks, torch.device("cpu"))
    return ModelRunner(
        model, pool, TorchAttention(pool), max_rows=place.max_rows, max_model_len=place.max_model_len
    )


def _cuda_runner(
    model: nn.Module, parts: ModelParts | Unfusable, place: _Place, num_heads: int, clock: PhaseClock
) -> Runner:
    # Late: Triton is there only where CUDA is.
    from inference.runner.cuda_runner import CudaRunner
    from inference.runner.flash_prefill import flash_prefill

    with memory_for("pool"):
        pool = KVPool(place.layout, place.num_blocks + 1, torch.device("cuda"))  # one for the spare row
    with memory_for("steps"):
        on_device = _step_model(model, parts, pool, num_heads, place.max_model_len)
        prefills = flash_prefill(place.attention, on_device.shape, pool)
        runner = CudaRunner(
            on_device, pool, max_rows=place.max_rows, max_model_len=place.max_model_len, prefills=prefills
        )
        clock.lap("fusing")
        sizes = [*range(1, min(32, place.max_rows) + 1), *range(40, place.max_rows + 1, 8)]
        try:
            runner.compile(sizes)
            clock.lap("kernels")
            runner.capture(sizes)
            clock.lap("graphs")
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise ModelLoadError(
                f"{type(model).__name__}: its step cannot be captured as a CUDA graph, so it cannot run on CUDA yet: "
                f"{error}. Serve it with --device cpu."
            ) from error
    logger.info("attention: %s", runner.attention_name)
    return runner


def _step_model(
    model: nn.Module, parts: ModelParts | Unfusable, pool: KVPool, num_heads: int, max_model_len: int
) -> StepModel:
    from inference.runner.cuda_model import DeviceModel
    from inference.runner.cuda_unfused import UnfusedModel

    if isinstance(parts, ModelParts):
        logger.info("fused all %d layers, embeddings and head", pool.layout.num_layers)
        return DeviceModel(model, parts, pool, max_model_len)
    logger.info(
        "fused none of %d layers: %s. They run as Transformers defines them, only attention by our kernels",
        pool.layout.num_layers, parts.because,
    )  # fmt: skip
    return UnfusedModel(model, pool, num_heads, max_model_len)


def _kernel_head_dim(head_dim: int) -> int:
    return max(_LEAST_HEAD_DIM, 1 << (head_dim - 1).bit_length())


def _kv_layout(shape: KVShape, config: EngineConfig) -> KVLayout:
    return KVLayout(
        num_layers=shape.num_layers,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim if config.device == "cpu" else _kernel_head_dim(shape.head_dim),
        block_size=config.block_size,
        dtype=TORCH_DTYPES[config.dtype],
    )
