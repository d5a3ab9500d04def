"""A checkpoint folder: its config, what config.json alone rules out, and its weights in the Transformers definition."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from inference.config import Dtype, EngineConfig
from inference.errors import ModelLoadError
from inference.runner.foreign_errors import told
from inference.runner.weight_files import check_files

logger = logging.getLogger("headrace.engine")

TORCH_DTYPES: dict[Dtype, torch.dtype] = {
    "int8": torch.float32, "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16
}

# What every config must give, and between which bounds it makes sense: far beyond them, Transformers computes for ever.
_NEEDED: Mapping[str, tuple[int, int]] = {
    "num_hidden_layers": (1, 10_000), "max_position_embeddings": (2, 2**31 - 1), "vocab_size": (1, 2**31 - 1)
}
# Parts of a decoder that have a config of their own; other parts take other inputs.
_OF_TEXT = frozenset(("text_config", "attn_config", "ffn_config"))
# What older checkpoints keep in their layers beside weights: tables that are computed, and scales of quantised caches.
_NO_WEIGHT = re.compile(r"(inv_freq|attn\.bias|attention\.bias|masked_bias|[kv]_scale|kv_scale)$")


def read_config(model_dir: Path) -> PreTrainedConfig:
    try:
        loaded = AutoConfig.from_pretrained(model_dir, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # whatever the values of a config lead to in Transformers' code
        reason = told(error)
        if "trust_remote_code" in reason:
            reason = "its model is code that comes with it, and only definitions of Transformers itself are run."
        raise ModelLoadError(f"{model_dir}: config.json cannot be read as a Transformers model: {reason}") from error
    config = cast(PreTrainedConfig, loaded)
    unsupported = _unsupported(config)
    if unsupported is not None:
        raise ModelLoadError(f"{model_dir}: model_type {config.model_type!r} is not supported: {unsupported}.")
    return config


def definition(hf_config: PreTrainedConfig, model_dir: Path) -> nn.Module:
    """The model without weights, on the meta device; bfloat16, which every operation takes. Raises ModelLoadError."""
    return _made(deepcopy(hf_config), model_dir, torch.device("meta"), torch.bfloat16)


def _made(hf_config: PreTrainedConfig, model_dir: Path, device: torch.device, dtype: torch.dtype) -> nn.Module:
    try:
        with device:
            model = AutoModelForCausalLM.from_config(hf_config, dtype=dtype)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # as above
        raise ModelLoadError(f"{model_dir}: Transformers makes no model of config.json: {told(error)}") from error
    return cast(nn.Module, model.eval())


def load_weights(hf_config: PreTrainedConfig, config: EngineConfig) -> nn.Module:
    """Transformers maps the files and moves one tensor at a time to the device, in the dtype wanted: no second copy."""
    dtype = TORCH_DTYPES[config.dtype]
    if config.random_weights:
        torch.manual_seed(0)
        return _made(hf_config, config.model_dir, torch.device(config.device), dtype).requires_grad_(False)

    check_files(config.model_dir)
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            config.model_dir, dtype=dtype, local_files_only=True, trust_remote_code=False,
            device_map={"": config.device}, output_loading_info=True, ignore_mismatched_sizes=True,
        )  # fmt: skip
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # as above
        raise ModelLoadError(
            f"{config.model_dir}: the weights cannot be loaded: {told(error).rstrip('.')}.{_if_quantised(hf_config)}"
        ) from error
    model, info = loaded
    _check_complete(config.model_dir, info)
    _check_used(config.model_dir, model, sorted(info["unexpected_keys"]))
    _check_finite(config.model_dir, model)
    return cast(nn.Module, model.eval().requires_grad_(False))


def _if_quantised(hf_config: PreTrainedConfig) -> str:
    given = getattr(hf_config, "quantization_config", None)
    return "" if given is None else " It is quantised: serve a checkpoint that is not, or a GGUF file."


def _check_complete(model_dir: Path, info: Mapping[str, Any]) -> None:
    """Transformers would draw at random what is not there, or of another shape."""
    other_shapes = sorted(info["mismatched_keys"])
    if other_shapes:
        name, stored, wanted = other_shapes[0]
        raise ModelLoadError(
            f"{model_dir}: {len(other_shapes)} of the checkpoint's weights do not fit config.json: the first, {name}, "
            f"is {_shape(stored)} and should be {_shape(wanted)}. One of the two is of another model."
        )
    missing = sorted(info["missing_keys"])
    if missing:
        raise ModelLoadError(
            f"{model_dir}: the checkpoint lacks {len(missing)} of the model's weights, {missing[0]} first. Fetch it "
            "again, or the config.json that belongs to it."
        )


def _shape(sizes: Any) -> str:
    return " x ".join(map(str, sizes)) or "a single number"


def _check_used(model_dir: Path, model: nn.Module, unexpected: list[str]) -> None:
    """Weights without use are no harm beside the layers (heads of other tasks, towers of other inputs), but in a layer
    they say that it computes something else than its definition does."""
    modules = dict(model.named_modules())
    in_layers = [name for name in unexpected if not _NO_WEIGHT.search(name) and _is_in_a_layer(name, modules)]
    if in_layers:
        raise ModelLoadError(
            f"{model_dir}: config.json knows nothing of {len(in_layers)} of the weights in the checkpoint's layers, "
            f"{in_layers[0]} first: it is of another model, or does not tell how they are quantised."
        )
    if unexpected:
        logger.warning("%d weights of the checkpoint are not used, %s first", len(unexpected), unexpected[0])


def _is_in_a_layer(name: str, modules: Mapping[str, nn.Module]) -> bool:
    """Is there such a layer in the model? They are numbered, which nothing else is."""
    numbered = re.match(r"(.*?\.\d+)\.", name)
    return numbered is not None and any(owner.endswith(numbered[1]) for owner in modules)


def _check_finite(model_dir: Path, model: nn.Module) -> None:
    for name, weight in model.named_parameters():
        # A sum is a single reading without a copy; finite weights may overflow it.
        if not weight.sum().isfinite() and not weight.isfinite().all():
            raise ModelLoadError(
                f"{model_dir}: {name} holds infinities or NaN. Fetch the checkpoint again; if it is meant to be so, "
                "a wider --dtype may hold its values."
            )


def eos_token_ids(model_dir: Path, hf_config: PreTrainedConfig) -> tuple[int, ...]:
    """What ends a turn, by generation_config.json where there is one, else by config.json. Raises ModelLoadError."""
    path = model_dir / "generation_config.json"
    generation: object = {}
    if path.exists():
        try:
            generation = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise ModelLoadError(f"{path}: cannot be read as JSON: {error}. Mend it, or take it away.") from error
    if not isinstance(generation, dict):
        raise ModelLoadError(f"{path}: it must be a JSON object. Mend it, or take it away.")
    source = path if "eos_token_id" in generation else model_dir / "config.json"
    eos = generation.get("eos_token_id", getattr(hf_config, "eos_token_id", None))
    ids = eos if isinstance(eos, list) else [] if eos is None else [eos]
    if not all(type(token_id) is int for token_id in ids):
        raise ModelLoadError(f"{source}: eos_token_id must be a token id or a list of them, got {eos!r}.")
    vocab_size = hf_config.get_text_config().vocab_size
    known = tuple(dict.fromkeys(token_id for token_id in ids if 0 <= token_id < vocab_size))
    if len(known) < len(set(ids)):
        logger.warning("%s: eos_token_id %r is not all in the vocabulary of %d tokens", source, eos, vocab_size)
    return known


def _unsupported(config: PreTrainedConfig) -> str | None:
    """What config.json alone tells; the rest is seen when the model runs (inference.runner.probe)."""
    if config.is_encoder_decoder:
        return "it is an encoder-decoder, and only decoders are served"
    other = [name.removesuffix("_config") for name in config.sub_configs if name not in _OF_TEXT]
    if other:
        return f"it also takes {', '.join(other)} inputs, and only text models are served"
    if config.model_type not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return "Transformers has no causal language model of this type"
    kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention", "sliding_attention"}
    if kinds:
        names = ", ".join(sorted(map(str, kinds)))
        return f"it has layers of {names}, and only full and sliding-window attention is paged"
    text_config = config.get_text_config()
    given = {name: getattr(text_config, name, None) for name in _NEEDED}
    missing = [name for name, value in given.items() if value is None]
    if missing:
        return f"its config.json gives no {', '.join(missing)}"
    for name, value in given.items():
        least, most = _NEEDED[name]
        if type(value) is not int or not least <= value <= most:
            return f"its config.json gives {value!r} as {name}, which must be from {least} to {most}"
    return None
