"""A checkpoint folder: its config, what config.json alone rules out, and its weights in the Transformers definition."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any, cast

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from inference.config import Dtype, EngineConfig
from inference.errors import ModelLoadError

TORCH_DTYPES: dict[Dtype, torch.dtype] = {
    "int8": torch.float32, "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16
}

_NEEDED = ("num_hidden_layers", "max_position_embeddings", "vocab_size")


def read_config(model_dir: Path) -> PreTrainedConfig:
    try:
        config = cast(PreTrainedConfig, AutoConfig.from_pretrained(model_dir, local_files_only=True))
    except (OSError, AttributeError, KeyError, TypeError, ValueError, StrictDataclassError) as error:
        raise ModelLoadError(f"{model_dir}: config.json cannot be read as a Transformers model: {error}") from error
    reason = _unsupported(config)
    if reason is not None:
        raise ModelLoadError(f"{model_dir}: model_type {config.model_type!r} is not supported: {reason}.")
    return config


def definition(hf_config: PreTrainedConfig, model_dir: Path) -> nn.Module:
    """The model without weights, on the meta device; bfloat16, which every operation takes. Raises ModelLoadError."""
    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(deepcopy(hf_config), dtype=torch.bfloat16)
    except (AttributeError, ImportError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise ModelLoadError(f"{model_dir}: Transformers makes no model of config.json: {error}") from error
    return cast(nn.Module, model.eval())


def load_weights(hf_config: PreTrainedConfig, config: EngineConfig) -> nn.Module:
    """Transformers maps the files and moves one tensor at a time to the device, in the dtype wanted: no second copy."""
    dtype = TORCH_DTYPES[config.dtype]
    if config.random_weights:
        torch.manual_seed(0)
        with torch.device(config.device):
            model = AutoModelForCausalLM.from_config(hf_config, dtype=dtype)
    else:
        try:
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                config.model_dir, dtype=dtype, local_files_only=True, device_map={"": config.device},
                output_loading_info=True,
            )  # fmt: skip
        except torch.OutOfMemoryError:
            raise
        except (OSError, ValueError, RuntimeError, ImportError, SafetensorError) as error:
            raise ModelLoadError(f"{config.model_dir}: the weights cannot be loaded: {error}") from error
        model, info = loaded
        missing = sorted(info["missing_keys"])
        if missing:  # Transformers would draw them at random
            raise ModelLoadError(
                f"{config.model_dir}: the checkpoint lacks {len(missing)} of the model's weights, {missing[0]} first."
            )
    return cast(nn.Module, model.eval().requires_grad_(False))


def eos_token_ids(model_dir: Path, hf_config: PreTrainedConfig) -> tuple[int, ...]:
    """What ends a turn, by generation_config.json where there is one, else by config.json."""
    path = model_dir / "generation_config.json"
    generation: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    eos = generation.get("eos_token_id", getattr(hf_config, "eos_token_id", None))
    if eos is None:
        return ()
    return tuple(eos) if isinstance(eos, list) else (int(eos),)


def _unsupported(config: PreTrainedConfig) -> str | None:
    """What config.json alone tells; the rest is seen when the model runs (inference.runner.probe)."""
    if config.is_encoder_decoder:
        return "it is an encoder-decoder, and only decoders are served"
    other = [name.removesuffix("_config") for name in config.sub_configs if name != "text_config"]
    if other:
        return f"it also takes {', '.join(other)} inputs, and only text models are served"
    if config.model_type not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return "Transformers has no causal language model of this type"
    kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention", "sliding_attention"}
    if kinds:
        return f"it has layers of {', '.join(sorted(kinds))}, and only full and sliding-window attention is paged"
    missing = [name for name in _NEEDED if getattr(config.get_text_config(), name, None) is None]
    if missing:
        return f"its config.json gives no {', '.join(missing)}"
    return None
