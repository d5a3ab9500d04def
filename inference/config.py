"""What an engine is asked to serve. Frozen and picklable; standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Device = Literal["cpu", "cuda"]
Dtype = Literal["int8", "fp32", "bf16", "fp16"]
Attention = Literal["auto", "triton", "flash"]


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """model_dir: a folder with config.json and, unless random_weights, safetensors.

    max_model_len None: as far as the model and the KV memory reach. kv_bytes None: sized from free memory.
    max_step_tokens: prefill and decode tokens of one step; None: by device.
    max_guess: so many tokens of a turn are guessed at once from its history and then verified; 0 = none.
    max_waiting: turns that queue before new ones are refused.
    attention: what reads prompts on CUDA: FlashAttention 4, our Triton kernel, or whichever of them can.
    """

    model_name: str
    model_dir: Path
    random_weights: bool = False
    device: Device = "cpu"
    dtype: Dtype = "int8"
    max_model_len: int | None = None
    kv_bytes: int | None = None
    block_size: int = 16
    max_rows: int = 64
    max_step_tokens: int | None = None
    max_waiting: int = 512
    max_guess: int = 8
    num_threads: int | None = None
    attention: Attention = "auto"
