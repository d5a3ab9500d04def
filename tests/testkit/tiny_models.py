"""Random models of a few thousand parameters, one for each supported architecture, saved as checkpoint folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

VOCAB = 300
_COMMON: dict[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "max_position_embeddings": 512, "eos_token_id": 2, "bos_token_id": 1,
    "rms_norm_eps": 1e-5, "initializer_range": 0.25,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", "tie_word_embeddings": True},
    "llama_with_biases": {"model_type": "llama", "attention_bias": True, "mlp_bias": True},
    "qwen2": {"model_type": "qwen2"},
    "qwen3": {"model_type": "qwen3", "head_dim": 16},
    "mistral": {"model_type": "mistral", "head_dim": 8, "sliding_window": 16},
    "llama3_rope": {
        "model_type": "llama",
        "rope_parameters": {
            "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
        },
    },
}
# Head widths that tensor cores take.
_CUDA_COMMON = _COMMON | {"hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4, "head_dim": 32}
CUDA_CONFIGS: dict[str, dict[str, Any]] = {
    f"cuda_{name}": _CUDA_COMMON | CONFIGS[name] | {"head_dim": 32} for name in ("llama", "qwen2", "qwen3", "mistral")
}


def tiny_config(name: str) -> dict[str, Any]:
    return CUDA_CONFIGS[name] if name in CUDA_CONFIGS else _COMMON | CONFIGS[name]


def save_tiny_model(name: str, folder: Path) -> Path:
    """A checkpoint with weights drawn from a fixed seed."""
    torch.manual_seed(20261130)
    options = tiny_config(name)
    config = AutoConfig.for_model(options.pop("model_type"), **options)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.save_pretrained(folder)
    return folder


def write_config(name: str, path: Path) -> Path:
    path.write_text(json.dumps(tiny_config(name)))
    return path
