"""`python -m inference.gguf_convert FILE.gguf FOLDER`: dequantise a GGUF file into a Transformers checkpoint folder.

The folder appears at once and whole: an interrupted conversion leaves nothing behind that looks finished.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

from gguf import GGUFReader
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from inference.gguf_metadata import Metadata


def convert(gguf: Path, folder: Path) -> None:
    """Weights in float32: exactly what the file's quantised blocks stand for. Raises ValueError if they are not all."""
    source: dict[str, Any] = {"gguf_file": gguf.name, "local_files_only": True}
    loaded: Any = AutoModelForCausalLM.from_pretrained(gguf.parent, output_loading_info=True, **source)
    model, info = loaded
    missing = sorted(info["missing_keys"])
    if missing:  # Transformers has drawn them at random
        raise ValueError(f"it lacks {len(missing)} of the model's weights, {missing[0]} first")
    metadata = Metadata(GGUFReader(gguf))
    if metadata.num_biases > sum(name.endswith("bias") for name in model.state_dict()):  # and does not miss the others
        raise ValueError("its layers have biases that Transformers' definition of this architecture has no place for")
    if isinstance(getattr(model.config, "rope_parameters", None), dict):
        _complete(model.config, metadata)
    # The copy is no longer quantised; left in place, these would make it be loaded as if it were.
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.hf_quantizer = None

    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    try:
        model.save_pretrained(scratch)
        AutoTokenizer.from_pretrained(gguf.parent, **source).save_pretrained(scratch)
        with contextlib.suppress(OSError):  # another process has put the same folder there meanwhile
            os.replace(scratch, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _complete(config: Any, metadata: Metadata) -> None:
    """What the file says and Transformers' reader does not hand on."""
    scaling = dict(metadata.rope_scaling())
    kinds = config.rope_parameters
    if "full_attention" in kinds:  # only layers that look far back are scaled
        config.rope_parameters = {**kinds, "full_attention": {**kinds["full_attention"], **scaling}}
    else:
        config.rope_parameters = {**kinds, **_partly_rotated(config, metadata), **scaling}
    if hasattr(config, "original_max_position_embeddings") and "long_factor" in scaling:
        config.original_max_position_embeddings = scaling["original_max_position_embeddings"]
    no_window = getattr(config, "sliding_window", 0) is None and not hasattr(config, "use_sliding_window")
    if no_window and metadata.sliding_window:
        config.sliding_window = metadata.sliding_window


def _partly_rotated(config: Any, metadata: Metadata) -> dict[str, float]:
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    num_rotated = metadata.num_rotated
    if num_rotated is None or num_rotated >= head_dim:
        return {}
    return {"partial_rotary_factor": num_rotated / head_dim}


def main(argv: list[str]) -> int:
    warnings.filterwarnings("ignore")
    logging.set_verbosity_error()
    try:
        convert(Path(argv[0]), Path(argv[1]))
    except Exception as error:  # whatever a file's content leads to in the libraries' code
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
