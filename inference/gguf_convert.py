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
from typing import Any, cast

from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging


def convert(gguf: Path, folder: Path) -> None:
    """Weights in float32: exactly what the file's quantised blocks stand for."""
    source: dict[str, Any] = {"gguf_file": gguf.name, "local_files_only": True}
    model = cast(Any, AutoModelForCausalLM.from_pretrained(gguf.parent, **source))
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


def main(argv: list[str]) -> int:
    warnings.filterwarnings("ignore")
    logging.set_verbosity_error()
    try:
        convert(Path(argv[0]), Path(argv[1]))
    except (OSError, ValueError, KeyError, RuntimeError, NotImplementedError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
