"""From `headrace serve` to ready and to a first answer, phase by phase, as a user starts it. A table, last a JSON line.

--cold drops the packages' and the model's files from the page cache first, as far as that goes without root: pages that
other running programs map stay, and so do directories; "read" is what then came from the disk.
--fresh-bytecode and --fresh-kernels give Python and Triton empty caches, as on a machine that has never served where
packages were installed without bytecode.

    python tests/bench/startup.py [--device cuda] [--model qwen3-0.6b | --model SPEC] [--dtype bf16] [--repeat 3]
                                  [--max-model-len 8192] [--kv-memory 2GiB]
                                  [--cold] [--fresh-bytecode] [--fresh-kernels]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench.shapes import SHAPES, write_config

_READY = re.compile(r"headrace\.engine: ready in ([\d.]+) s: (.*)")


def main() -> None:
    args = _arguments()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        spec = args.model
        if spec in SHAPES:
            spec = f"random:{write_config(spec, Path(scratch)) / 'config.json'}"
        for number in range(args.repeat):
            if args.cold:
                _evict([ROOT, *_package_folders(), *_model_folder(spec)])
            rows.append(_start(_command(spec, args), _environment(args, Path(scratch) / f"caches-{number}")))
    names = list(dict.fromkeys(name for row in rows for name in row))
    for name in names:
        print(f"{name:<20}" + "".join(f"{row.get(name, float('nan')):>9.2f}" for row in rows))
    shown = ("device", "model", "cold", "fresh_bytecode", "fresh_kernels")
    facts = {name: getattr(args, name) for name in shown} | {"writes_bytecode": not sys.dont_write_bytecode}
    print(json.dumps({"bench": "startup", **facts, "rows": rows}))


def _start(command: list[str], environment: dict[str, str]) -> dict[str, float]:
    """Seconds by phase, in order; `read MB` is what the server's processes had to fetch from the disk."""
    read_before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_inblock
    with tempfile.TemporaryFile("w+") as log:
        started = time.perf_counter()
        server = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
        )  # fmt: skip
        try:
            url = _wait_ready(server)
            ready_s = time.perf_counter() - started
            if url is not None:
                _ask(url)
            answered_s = time.perf_counter() - started
        finally:
            server.terminate()
            server.wait(20)
        log.seek(0)
        text = log.read()
    found = _READY.search(text)
    if url is None or found is None:
        raise SystemExit(f"the server did not start, or its engine did not say how long it took:\n{text[-3000:]}")
    phases = {name: float(seconds) for name, seconds in re.findall(r"([\w ]+?) ([\d.]+)(?:, |$)", found[2])}
    read = resource.getrusage(resource.RUSAGE_CHILDREN).ru_inblock - read_before
    return {
        "before the engine": round(ready_s - float(found[1]), 2), **phases, "ready": round(ready_s, 2),
        "first answer": round(answered_s, 2), "read MB": round(read * 512 / 1e6, 1),
    }  # fmt: skip


def _environment(args: argparse.Namespace, caches: Path) -> dict[str, str]:
    environment = dict(os.environ)
    if args.fresh_bytecode:
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        environment["PYTHONPYCACHEPREFIX"] = str(caches / "bytecode")
    if args.fresh_kernels:
        environment["TRITON_CACHE_DIR"] = str(caches / "kernels")
    return environment


def _command(spec: str | None, args: argparse.Namespace) -> list[str]:
    options = {"--model": spec, "--dtype": args.dtype, "--max-model-len": args.max_model_len,
               "--kv-memory": args.kv_memory}  # fmt: skip
    given = [text for name, value in options.items() if value is not None for text in (name, str(value))]
    return [sys.executable, "-m", "gateway.cli", "serve", "--device", args.device, "--port", "0", *given]


def _wait_ready(server: subprocess.Popen[str]) -> str | None:
    assert server.stdout is not None
    for line in server.stdout:
        if match := re.match(r"Ready: (\S+)", line):
            return match[1]
    return None


def _ask(url: str) -> None:
    """One token, so that nothing is left for later which the first client would wait for."""
    body = json.dumps({"prompt": [11, 12, 13], "max_tokens": 1, "temperature": 0, "ignore_eos": True}).encode()
    request = urllib.request.Request(f"{url}/v1/completions", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        assert json.load(answer)["usage"]["completion_tokens"] == 1


def _package_folders() -> Iterator[Path]:
    paths = sysconfig.get_paths()
    return (Path(paths[name]) for name in ("purelib", "platlib", "stdlib"))


def _model_folder(spec: str | None) -> Iterator[Path]:
    if spec is not None and Path(spec).is_dir():
        yield Path(spec)


def _evict(folders: list[Path]) -> None:
    for folder in dict.fromkeys(folders):
        for root, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(root, name)
                if os.path.isfile(path) and os.access(path, os.R_OK):
                    descriptor = os.open(path, os.O_RDONLY)
                    try:
                        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                    finally:
                        os.close(descriptor)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--model", help="a shape of tests/bench/shapes.py, or what `headrace serve` takes")
    parser.add_argument("--dtype")
    parser.add_argument("--max-model-len", type=int)
    parser.add_argument("--kv-memory")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--fresh-bytecode", action="store_true")
    parser.add_argument("--fresh-kernels", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
