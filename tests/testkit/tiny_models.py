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
    "rms_norm_eps": 1e-5, "initializer_range": 0.25, "pad_token_id": 0,
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
    "phi3": {"model_type": "phi3", "head_dim": 12, "sliding_window": 20},
    "phi3_partial_rotary": {
        "model_type": "phi3", "head_dim": 16,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    },
    "gemma2": {
        "model_type": "gemma2", "head_dim": 16, "sliding_window": 16, "query_pre_attn_scalar": 24,
        "attn_logit_softcapping": 2.0, "final_logit_softcapping": 5.0, "tie_word_embeddings": False,
    },
    "gemma3": {
        "model_type": "gemma3_text", "head_dim": 16, "sliding_window": 16, "query_pre_attn_scalar": 24,
        "tie_word_embeddings": False,  # tied and untrained, it repeats its input
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
    },
    "granite": {
        "model_type": "granite", "attention_multiplier": 0.2, "embedding_multiplier": 3.0, "residual_multiplier": 0.4,
        "logits_scaling": 4.0,
    },
    "olmo2": {"model_type": "olmo2"},
    "glm": {"model_type": "glm", "head_dim": 8, "attention_bias": True},  # pairs of neighbours, half of them rotated
    "smollm3": {
        "model_type": "smollm3", "no_rope_layers": [1, 0, 1], "use_sliding_window": True, "sliding_window": 16,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
}
LONGROPE_ORIGINAL = 32
_LONGROPE: dict[str, Any] = {
    "model_type": "phi3", "original_max_position_embeddings": LONGROPE_ORIGINAL,
    "rope_parameters": {
        "rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0, 1.1, 1.3, 1.9],
        "long_factor": [1.2, 2.0, 5.0, 9.0], "original_max_position_embeddings": LONGROPE_ORIGINAL,
    },
}
# What no fusion knows: they run as Transformers defines them.
UNFUSED_CONFIGS: dict[str, dict[str, Any]] = {
    "gpt_neox": {"model_type": "gpt_neox", "num_key_value_heads": 6},
    "cohere2": {
        "model_type": "cohere2", "sliding_window": 16,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "stablelm": {"model_type": "stablelm"},  # its layers do not hand keyword arguments on to attention
    "ministral3": {  # turns up its queries from the 64th token on
        "model_type": "ministral3", "head_dim": 8,
        "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "original_max_position_embeddings": 64,
            "llama_4_scaling_beta": 0.5, "mscale": 1.0, "mscale_all_dim": 1.0,
        },
    },
    "mixtral": {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2},
}
OTHER_CONFIGS = UNFUSED_CONFIGS | {
    "phi3_longrope": _LONGROPE,
    "gemma3_wide": CONFIGS["gemma3"] | {"head_dim": 256, "num_attention_heads": 2, "num_key_value_heads": 1},
}
# Head widths that tensor cores take.
_CUDA_COMMON = _COMMON | {"hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4, "head_dim": 32}
CUDA_CONFIGS: dict[str, dict[str, Any]] = {
    f"cuda_{name}": _CUDA_COMMON | CONFIGS[name] | {"head_dim": 32} for name in ("llama", "qwen2", "qwen3", "mistral")
}
# Those whose every layer is our kernels on CUDA.
FUSED_ON_CUDA = (*CONFIGS, "gemma3_wide", *CUDA_CONFIGS)


def tiny_config(name: str) -> dict[str, Any]:
    return CUDA_CONFIGS[name] if name in CUDA_CONFIGS else _COMMON | (CONFIGS | OTHER_CONFIGS)[name]


def tiny_model(name: str, **changes: Any) -> Any:
    """Weights drawn from a fixed seed, float32."""
    torch.manual_seed(20261130)
    options = tiny_config(name) | changes
    config = AutoConfig.for_model(options.pop("model_type"), **options)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    for part, parameter in model.named_parameters():
        if "norm" in part:  # an untrained norm multiplies by one, which hides mistakes
            parameter.data.add_(torch.rand_like(parameter) - 0.5)
    return model


def save_tiny_model(name: str, folder: Path) -> Path:
    """A tiny_model as a checkpoint."""
    tiny_model(name).save_pretrained(folder)
    return folder


def write_config(name: str, path: Path) -> Path:
    path.write_text(json.dumps(tiny_config(name)))
    return path
