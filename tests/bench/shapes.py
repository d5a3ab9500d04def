"""Shapes of public dense models, for random weights: what a decode step must read, without any download."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_QWEN3 = {
    "model_type": "qwen3", "head_dim": 128, "vocab_size": 151936, "rms_norm_eps": 1e-6, "rope_theta": 1_000_000,
    "max_position_embeddings": 40960, "num_key_value_heads": 8, "attention_bias": False, "hidden_act": "silu",
}  # fmt: skip
SHAPES: dict[str, dict[str, Any]] = {
    "qwen3-0.6b": _QWEN3 | {
        "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16,
        "tie_word_embeddings": True,
    },
    "qwen3-8b": _QWEN3 | {
        "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32,
        "tie_word_embeddings": False,
    },
    "llama-3.2-1b": {
        "model_type": "llama", "head_dim": 64, "vocab_size": 128256, "rms_norm_eps": 1e-5, "rope_theta": 500_000,
        "max_position_embeddings": 131072, "num_key_value_heads": 8, "hidden_size": 2048, "intermediate_size": 8192,
        "num_hidden_layers": 16, "num_attention_heads": 32, "tie_word_embeddings": True, "attention_bias": False,
        "rope_scaling": {
            "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    },
}  # fmt: skip


def write_config(name: str, folder: Path) -> Path:
    """config.json of the shape, in a folder of its own."""
    target = folder / name
    target.mkdir(parents=True, exist_ok=True)
    (target / "config.json").write_text(json.dumps(SHAPES[name]))
    return target


def decode_bytes(name: str, bytes_each: int = 2) -> int:
    """Weights that one decode step reads: each once; of the embedding only the head's part."""
    shape = SHAPES[name]
    hidden, width = shape["hidden_size"], shape["head_dim"]
    attention = hidden * width * 2 * (shape["num_attention_heads"] + shape["num_key_value_heads"])
    layer = attention + 3 * hidden * shape["intermediate_size"] + 2 * hidden
    return bytes_each * (shape["num_hidden_layers"] * layer + shape["vocab_size"] * hidden)
