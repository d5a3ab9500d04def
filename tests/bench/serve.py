"""The whole server under agents' load: sessions of short turns over one growing prompt, closed loop, over HTTP.

Each session shares a system prompt with all others, and then takes turns: the prompt grows by the last output and
new "tool result" tokens, and a short completion is asked for. Prints a table and, last, one JSON line.

    python tests/bench/serve.py [--models qwen3-0.6b] [--sessions 1,4,16] [--device cuda] [--dtype bf16]
                                [--max-guess 0] [--turns 4] [--system 1024] [--first 256] [--tool 192] [--out 64]
                                [--repeat 2]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench.shapes import SHAPES, write_config


def main() -> None:
    args = _arguments()
    rows = []
    for model in args.models:
        with tempfile.TemporaryDirectory() as scratch:
            rows += _serve_and_load(model, write_config(model, Path(scratch)), args)
    names = ("model", "sessions", "ttft p50", "ttft p95", "itl p50", "itl p95", "turn p50", "turns/s", "ready s")
    print(("{:<14}" + "{:>10}" * 8).format(*names))
    for row in rows:
        print(("{:<14}" + "{:>10}" * 8).format(*(row[name] for name in names)))
    print(json.dumps({"bench": "serve", "device": args.device, "dtype": args.dtype, "rows": rows}))


def _serve_and_load(model: str, folder: Path, args: argparse.Namespace) -> list[dict[str, object]]:
    command = [
        sys.executable, "-W", "ignore", "-m", "gateway.cli", "serve", "--model", f"random:{folder / 'config.json'}",
        "--device", args.device, "--dtype", args.dtype, "--port", "0", "--max-model-len", str(args.max_model_len),
        "--max-guess", str(args.max_guess),
    ]  # fmt: skip
    started = time.perf_counter()
    with tempfile.TemporaryFile("w+") as log:
        server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            url = _wait_ready(server)
            if url is None:
                log.seek(0)
                raise SystemExit(f"the server did not start:\n{log.read()[-3000:]}")
            ready_s = time.perf_counter() - started
            host, port = re.match(r"http://([^:]+):(\d+)", url).groups()
            asyncio.run(_level(host, int(port), model, 1, args, seed=-1))  # warms up what is compiled on first use
            rows = []
            for sessions in args.sessions:
                row = asyncio.run(_level(host, int(port), model, sessions, args, seed=sessions))
                rows.append({"model": model, "sessions": sessions, "ready s": round(ready_s, 1), **row})
                print(rows[-1], file=sys.stderr, flush=True)
            return rows
        finally:
            server.terminate()
            server.wait(10)


def _wait_ready(server: subprocess.Popen[str]) -> str | None:
    assert server.stdout is not None
    for line in server.stdout:
        if match := re.match(r"Ready: (\S+)", line):
            return match[1]
    return None


async def _level(
    host: str, port: int, model: str, sessions: int, args: argparse.Namespace, seed: int
) -> dict[str, float]:
    rng = random.Random(seed)
    vocab = min(100_000, SHAPES[model]["vocab_size"])
    system = [random.Random(7).randrange(10, vocab) for _ in range(args.system)]
    record: list[tuple[float, list[float]]] = []

    async def one_session() -> None:
        for _ in range(args.repeat):
            history = system + [rng.randrange(10, vocab) for _ in range(args.first)]
            for _ in range(args.turns):
                record.append(await _turn(host, port, model, history, args.out))
                history += [rng.randrange(10, vocab) for _ in range(args.out + args.tool)]

    started = time.perf_counter()
    await asyncio.gather(*(one_session() for _ in range(sessions)))
    wall_s = time.perf_counter() - started
    ttft = sorted(stamps[0] - begin for begin, stamps in record)
    turn = sorted(stamps[-1] - begin for begin, stamps in record)
    itl = sorted((stamps[-1] - stamps[0]) / (args.out - 1) for _, stamps in record)

    def ms(values: list[float], q: float) -> float:
        return round(values[min(len(values) - 1, int(q * len(values)))] * 1e3, 2)

    return {
        "ttft p50": ms(ttft, 0.5), "ttft p95": ms(ttft, 0.95), "itl p50": ms(itl, 0.5), "itl p95": ms(itl, 0.95),
        "turn p50": ms(turn, 0.5), "turns/s": round(len(record) / wall_s, 2),
    }  # fmt: skip


async def _turn(host: str, port: int, model: str, prompt: list[int], out: int) -> tuple[float, list[float]]:
    """When the request left, and when each chunk with a choice came."""
    body = json.dumps({
        "model": model, "prompt": prompt, "max_tokens": out, "min_tokens": out, "ignore_eos": True, "temperature": 0,
        "stream": True,
    }).encode()  # fmt: skip
    head = f"POST /v1/completions HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\nconnection: close\r\n"
    begin = time.perf_counter()
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    status = await reader.readline()
    assert b" 200 " in status, (status, await reader.read(2000))
    stamps = []
    while line := await reader.readline():
        if line.startswith(b"data: {") and b'"choices":[{' in line:
            stamps.append(time.perf_counter())
    writer.close()
    assert stamps, "nothing came"
    return begin, stamps


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=lambda text: text.split(","), default=["qwen3-0.6b"])
    parser.add_argument("--sessions", type=lambda text: [int(part) for part in text.split(",")], default=[1, 4, 16])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--max-model-len", type=int, default=8192)
    parser.add_argument("--max-guess", type=int, default=0, help="random weights repeat themselves (default: 0)")
    for name, default in (("turns", 4), ("system", 1024), ("first", 256), ("tool", 192), ("out", 64), ("repeat", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args()


if __name__ == "__main__":
    main()
