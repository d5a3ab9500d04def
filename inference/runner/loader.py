"""Loads a Transformers definition with its weights and makes it ready to run: paged attention in, layers fused."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import psutil
import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig

from inference.config import Device, Dtype, EngineConfig
from inference.errors import ModelLoadError
from inference.paged_kv.pool import KVLayout, KVPool
from inference.runner.attention import INTERFACE_NAME, TorchAttention
from inference.runner.fusions import fuse_layers
from inference.runner.linear import Int8Linear, dense, quantize_linears
from inference.runner.model_runner import ModelRunner
from inference.step import StepPlan
from inference.types import ContextBound

logger = logging.getLogger("headrace.engine")

SUPPORTED_MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3")
_TORCH_DTYPES: dict[Dtype, torch.dtype] = {
    "int8": torch.float32, "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16
}
# The KV pool's share of the free memory, and its bounds, when --kv-memory is not given.
_KV_SHARE, _KV_MOST_BYTES = 0.25, 2 << 30
_CUDA_KV_SHARE, _CUDA_RESERVED_BYTES = 0.8, 2 << 30
_STEP_TOKENS: dict[Device, int] = {"cpu": 256, "cuda": 2048}


class Runner(Protocol):
    """What the engine drives; one implementation a device."""

    attention_name: str

    def launch(self, plan: StepPlan) -> Any: ...

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


def load(config: EngineConfig) -> LoadedModel:
    """Raises ModelLoadError when the folder cannot be served; the message says why."""
    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    _check_device(config)
    hf_config = _read_config(config.model_dir)
    layout = _kv_layout(hf_config, config)
    if config.device == "cpu":
        max_model_len, num_blocks, bound = _size_kv(hf_config, config, layout, _free_bytes(config))
    model = _load_weights(hf_config, config)
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    if config.device == "cuda":
        # What the weights leave free is known only now.
        max_model_len, num_blocks, bound = _size_kv(hf_config, config, layout, _free_bytes(config))
        runner: Runner = _cuda_runner(model, layout, config, max_model_len, num_blocks)
    else:
        runner = _cpu_runner(model, layout, config, max_model_len, num_blocks)
    return LoadedModel(
        runner=runner,
        architecture=type(model).__name__,
        attention_backend=runner.attention_name,
        max_model_len=max_model_len,
        context_bound=bound,
        vocab_size=hf_config.vocab_size,
        eos_token_ids=() if config.random_weights else _eos_token_ids(config.model_dir, hf_config),
        num_blocks=num_blocks,
        kv_bytes=num_blocks * layout.bytes_per_block,
        num_parameters=num_parameters,
        max_step_tokens=config.max_step_tokens or _STEP_TOKENS[config.device],
    )


def _check_device(config: EngineConfig) -> None:
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ModelLoadError("--device cuda: torch finds no CUDA device here. Use --device cpu.")
    if config.device == "cuda" and config.dtype == "int8":
        raise ModelLoadError("--dtype int8 is for CPUs. With --device cuda use bf16, fp16 or fp32.")
    if config.dtype == "int8" and not {"x86", "fbgemm"} & set(torch.backends.quantized.supported_engines):
        raise ModelLoadError("--dtype int8 needs an x86 CPU with AVX2. Use --dtype fp32 or bf16.")


def _cpu_runner(
    model: nn.Module, layout: KVLayout, config: EngineConfig, max_model_len: int, num_blocks: int
) -> ModelRunner:
    _make_fast(model, config.dtype)
    pool = KVPool(layout, num_blocks, torch.device("cpu"))
    return ModelRunner(model, pool, TorchAttention(pool), max_rows=config.max_rows, max_model_len=max_model_len)


def _cuda_runner(
    model: nn.Module, layout: KVLayout, config: EngineConfig, max_model_len: int, num_blocks: int
) -> Runner:
    # Late: Triton is there only where CUDA is.
    from inference.runner.cuda_model import DeviceModel, cos_sin_table
    from inference.runner.cuda_runner import CudaRunner

    cos_sin = cos_sin_table(model, max_model_len)
    pool = KVPool(layout, num_blocks + 1, torch.device("cuda"))  # one for the spare row
    runner = CudaRunner(
        DeviceModel(model, pool, cos_sin), pool, max_rows=config.max_rows, max_model_len=max_model_len
    )
    runner.capture([*range(1, min(32, config.max_rows) + 1), *range(40, config.max_rows + 1, 8)])
    return runner


def _free_bytes(config: EngineConfig) -> int:
    """What the KV pool may take when --kv-memory is not given."""
    if config.device == "cuda":
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info()
        return int((free - _CUDA_RESERVED_BYTES) * _CUDA_KV_SHARE)
    return min(int(psutil.virtual_memory().available * _KV_SHARE), _KV_MOST_BYTES)


def _read_config(model_dir: Path) -> PreTrainedConfig:
    try:
        config = cast(PreTrainedConfig, AutoConfig.from_pretrained(model_dir, local_files_only=True))
    except (OSError, ValueError, KeyError) as error:
        raise ModelLoadError(f"{model_dir}: config.json cannot be read as a Transformers model: {error}") from error
    if config.model_type not in SUPPORTED_MODEL_TYPES:
        raise ModelLoadError(
            f"{model_dir}: model_type {config.model_type!r} is not supported yet. Supported: "
            + ", ".join(SUPPORTED_MODEL_TYPES)
        )
    return config


def _kv_layout(hf_config: PreTrainedConfig, config: EngineConfig) -> KVLayout:
    num_heads = hf_config.num_attention_heads
    return KVLayout(
        num_layers=hf_config.num_hidden_layers,
        num_kv_heads=getattr(hf_config, "num_key_value_heads", None) or num_heads,
        head_dim=getattr(hf_config, "head_dim", None) or hf_config.hidden_size // num_heads,
        block_size=config.block_size,
        dtype=_TORCH_DTYPES[config.dtype],
    )


def _size_kv(
    hf_config: PreTrainedConfig, config: EngineConfig, layout: KVLayout, free_bytes: int
) -> tuple[int, int, ContextBound]:
    """(max_model_len, num_blocks, what sets the first). The pool always holds one sequence of max_model_len tokens."""
    kv_bytes = config.kv_bytes if config.kv_bytes is not None else free_bytes
    num_blocks = kv_bytes // layout.bytes_per_block
    longest = int(hf_config.max_position_embeddings)
    wanted = config.max_model_len if config.max_model_len is not None else longest
    if wanted > longest:
        raise ModelLoadError(f"--max-model-len {wanted}: the model's context ends at {longest} tokens.")
    # One block is left over for the copy that a fork may need.
    reachable = (num_blocks - 1) * config.block_size
    if reachable < min(wanted, config.block_size) or (config.max_model_len is not None and reachable < wanted):
        needed = (-(-wanted // config.block_size) + 1) * layout.bytes_per_block
        raise ModelLoadError(
            f"--kv-memory {kv_bytes} bytes holds {max(reachable, 0)} tokens, but one sequence of {wanted} tokens needs "
            f"{needed} bytes. Raise --kv-memory or lower --max-model-len."
        )
    bound: ContextBound = "memory" if reachable < wanted else "option" if wanted < longest else "model"
    return min(wanted, reachable), num_blocks, bound


def _load_weights(hf_config: PreTrainedConfig, config: EngineConfig) -> nn.Module:
    dtype = _TORCH_DTYPES[config.dtype]
    if config.random_weights:
        torch.manual_seed(0)
        with torch.device(config.device):
            model = AutoModelForCausalLM.from_config(hf_config, dtype=dtype)
    else:
        try:
            model = AutoModelForCausalLM.from_pretrained(
                config.model_dir, dtype=dtype, local_files_only=True, device_map={"": config.device}
            )
        except (OSError, ValueError, RuntimeError) as error:
            raise ModelLoadError(f"{config.model_dir}: the weights cannot be loaded: {error}") from error
    model.set_attn_implementation(INTERFACE_NAME)
    return cast(nn.Module, model.eval().requires_grad_(False))


def _make_fast(model: nn.Module, dtype: Dtype) -> None:
    quantized = dtype == "int8"
    fused, total = fuse_layers(model, Int8Linear if quantized else dense)
    logger.info("fused %d of %d layers (%s)", fused, total, "int8" if quantized else dtype)
    if quantized:
        logger.info("%d more linears run as int8", quantize_linears(model))


def _eos_token_ids(model_dir: Path, hf_config: PreTrainedConfig) -> tuple[int, ...]:
    """What ends a turn, by generation_config.json where there is one, else by config.json."""
    path = model_dir / "generation_config.json"
    generation: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    eos = generation.get("eos_token_id", getattr(hf_config, "eos_token_id", None))
    if eos is None:
        return ()
    return tuple(eos) if isinstance(eos, list) else (int(eos),)
