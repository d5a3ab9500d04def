"""How much memory the KV pool gets, and what is said when there is not enough of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import psutil
import torch
from torch import nn

from inference.config import EngineConfig
from inference.errors import ModelLoadError
from inference.paged_kv.pool import KVLayout
from inference.types import ContextBound

# The KV pool's share of the free memory, and its bounds, when --kv-memory is not given.
_KV_SHARE, _KV_MOST_BYTES = 0.25, 2 << 30
_CUDA_KV_SHARE, _CUDA_RESERVED_BYTES = 0.8, 2 << 30

Stage = Literal["weights", "pool", "steps"]
_STAGES: dict[Stage, tuple[str, str]] = {
    "weights": (
        "The weights do not fit into the GPU's memory",
        "Serve a smaller model, use --dtype bf16 rather than fp32, or end what else uses the GPU",
    ),
    "pool": (
        "The KV pool does not fit into the GPU's memory beside the weights",
        "Lower --kv-memory, or leave it out to have it sized from what is free",
    ),
    "steps": (
        "No GPU memory is left to run and capture steps in",
        "Lower --kv-memory, --max-rows or --max-model-len, or serve a smaller model",
    ),
}


def free_kv_bytes(config: EngineConfig) -> int:
    """What the KV pool may take when --kv-memory is not given."""
    if config.device == "cuda":
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info()
        return max(int((free - _CUDA_RESERVED_BYTES) * _CUDA_KV_SHARE), 0)
    return min(int(psutil.virtual_memory().available * _KV_SHARE), _KV_MOST_BYTES)


def check_weights_fit(definition: nn.Module, dtype: torch.dtype) -> None:
    """Raises ModelLoadError if the CPU's memory, swapped or not, cannot hold the weights: the system would end the
    process, without a word, in the midst of it."""
    needed = sum(weight.numel() for weight in definition.parameters()) * dtype.itemsize
    free = psutil.virtual_memory().available + psutil.swap_memory().free
    if needed > free:
        stored = str(dtype).removeprefix("torch.")
        raise ModelLoadError(
            f"The weights take {needed / 2**30:,.1f} GiB as {stored}, and {free / 2**30:,.1f} GiB of memory are free. "
            "Serve a smaller model, use --dtype bf16, or end what else uses the memory."
        )


def size_kv(longest: int, config: EngineConfig, layout: KVLayout, free_bytes: int) -> tuple[int, int, ContextBound]:
    """(max_model_len, num_blocks, what sets the first). The pool always holds one sequence of max_model_len tokens.

    longest: tokens that the model itself reaches. Raises ModelLoadError.
    """
    kv_bytes = config.kv_bytes if config.kv_bytes is not None else free_bytes
    num_blocks = kv_bytes // layout.bytes_per_block
    wanted = config.max_model_len if config.max_model_len is not None else longest
    if wanted < 2:
        raise ModelLoadError(f"--max-model-len {wanted}: a prompt and its answer have two tokens at least.")
    if wanted > longest:
        raise ModelLoadError(f"--max-model-len {wanted}: the model's context ends at {longest} tokens.")
    # One block is left over for the copy that a fork may need.
    reachable = (num_blocks - 1) * config.block_size
    if reachable < min(wanted, config.block_size) or (config.max_model_len is not None and reachable < wanted):
        needed = (-(-wanted // config.block_size) + 1) * layout.bytes_per_block
        source, remedy = f"--kv-memory {kv_bytes} bytes", "Raise --kv-memory or lower --max-model-len"
        if config.kv_bytes is None:
            source = f"What is free for the KV cache beside the model, {kv_bytes} bytes,"
            remedy = "Lower --max-model-len, serve a smaller model or dtype, or end what else uses the memory"
        raise ModelLoadError(
            f"{source} holds {max(reachable, 0)} tokens, but one sequence of {wanted} tokens needs "
            f"{needed} bytes. {remedy}."
        )
    bound: ContextBound = "memory" if reachable < wanted else "option" if wanted < longest else "model"
    return min(wanted, reachable), num_blocks, bound


@contextmanager
def memory_for(stage: Stage) -> Iterator[None]:
    """Out of device memory here becomes a ModelLoadError that says what to change."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        what, remedy = _STAGES[stage]
        wanted = re.search(r"[Tt]ried to allocate [\d.]+ \w+", str(error))
        detail = f" ({wanted[0][0].lower()}{wanted[0][1:]})" if wanted is not None else ""
        raise ModelLoadError(f"{what}{detail}. {remedy}.") from error
