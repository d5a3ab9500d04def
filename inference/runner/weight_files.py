"""The safetensors files of a checkpoint, as far as their headers tell: what is missing, damaged or quantised is named
before anything is loaded. Knows nothing of the model that they are for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open

from inference.errors import ModelLoadError

_WHOLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_LFS_POINTER = b"version https://git-lfs"


def check_files(folder: Path) -> None:
    """Raises ModelLoadError, which names the file and what helps."""
    for file in _files(folder):
        quantised = {name: dtype for name, dtype in _dtypes(file).items() if _is_quantised(name, dtype)}
        for name, dtype in quantised.items():
            raise ModelLoadError(
                f"{file}: {name} is stored as {dtype} ({len(quantised)} of the file's weights are), and only "
                "floating-point weights are read. Serve a checkpoint that is not quantised, or a GGUF file."
            )


def _files(folder: Path) -> list[Path]:
    """Those that Transformers reads."""
    if (folder / _WHOLE).is_file():
        return [folder / _WHOLE]
    if (folder / _INDEX).is_file():
        return _shards(folder)
    names = sorted(path.name for path in folder.glob("*.safetensors") if path.is_file())
    if any(name.startswith("adapter_") for name in names):
        raise ModelLoadError(f"{folder}: it holds an adapter alone. Merge it into its base model, and serve that.")
    if not names:
        raise ModelLoadError(f"{folder}: it holds no .safetensors weights.")
    remedy = f"Rename {names[0]} to {_WHOLE}" if len(names) == 1 else "Fetch the checkpoint's index"
    raise ModelLoadError(
        f"{folder}: weights are in {_WHOLE}, or in the files that {_INDEX} names, and it has neither. {remedy}."
    )


def _shards(folder: Path) -> list[Path]:
    path = folder / _INDEX
    try:
        index = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ModelLoadError(f"{path}: cannot be read as JSON: {error}. Fetch it again.") from error
    places = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(places, dict) or not places or not all(isinstance(name, str) for name in places.values()):
        raise ModelLoadError(f"{path}: its weight_map does not say which file holds which weight. Fetch it again.")
    names = sorted(set(places.values()))
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise ModelLoadError(
            f"{folder}: {missing[0]} is missing ({len(missing)} of the {len(names)} files that {_INDEX} names). Fetch "
            "what is missing."
        )
    return [folder / name for name in names]


def _dtypes(file: Path) -> Mapping[str, str]:
    try:
        with safe_open(file, "pt") as weights:
            return {name: weights.get_slice(name).get_dtype() for name in weights.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        with file.open("rb") as start:
            is_pointer = start.read(len(_LFS_POINTER)) == _LFS_POINTER
        if is_pointer:
            raise ModelLoadError(f"{file}: this is Git LFS's note of a file. Fetch the file: git lfs pull.") from error
        raise ModelLoadError(
            f"{file}: damaged or incomplete, with {file.stat().st_size} bytes: {error}. Fetch it again."
        ) from error


def _is_quantised(name: str, dtype: str) -> bool:
    """Biases and masks that old checkpoints keep as integers are buffers, which nobody reads."""
    return name.endswith(".weight") and not (dtype in ("BF16", "F16", "F32", "F64") or dtype.startswith("F8_E"))
