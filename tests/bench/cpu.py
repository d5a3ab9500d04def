"""Decode speed on the CPU: this engine against Transformers' generate, and llama.cpp where it is installed.

One run, the same model, prompts and thread count, best of several rounds taken in turns, so that the ratios mean
something on a noisy machine. Also the time to first token with a cold and a warm prefix. Prints a table and, last, one
JSON line.

    python tests/bench/cpu.py [--streams 1,4,16] [--new-tokens 48] [--rounds 3] [--dtype int8]
                              [--llama-python PATH --gguf FILE]

--llama-python names the Python of an environment with llama-cpp-python, whose dependencies need not be ours.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from inference.config import EngineConfig
from inference.engine_launch import process_environment
from inference.models import resolve

QUESTIONS = [f"Tell me a long story about the number {number}." for number in range(64)]


def main() -> None:
    args = _arguments()
    source = resolve(None)
    config = EngineConfig(source.name, source.folder, dtype=args.dtype)
    environment = process_environment("cpu")
    if os.environ.get("GOMP_SPINCOUNT") != environment["GOMP_SPINCOUNT"]:
        # The allocator and OpenMP read these at start-up: run again as the engine's own process runs.
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)
    ours, reference = _Headrace(config), _Transformers(source.folder)
    prompts = [ours.prompt(question) for question in QUESTIONS]
    results = []
    for streams in args.streams:
        best = {"headrace": 0.0, "generate fp32": 0.0, "generate bf16": 0.0}
        for _ in range(args.rounds):
            best["headrace"] = max(best["headrace"], ours.decode(prompts[:streams], args.new_tokens))
            for dtype in ("fp32", "bf16"):
                speed = reference.decode(prompts[:streams], args.new_tokens, dtype)
                best[f"generate {dtype}"] = max(best[f"generate {dtype}"], speed)
        results.append({"streams": streams, **{name: round(speed, 1) for name, speed in best.items()}})
    if args.llama_python:
        results[0]["llama.cpp"] = _llama(args.llama_python, args.gguf, args.new_tokens, args.rounds)
    _report(args, results, ours.prefix_ttft(args.prefix))
    ours.close()


class _Headrace:
    def __init__(self, config: EngineConfig) -> None:
        from inference.runner.loader import load
        from inference.tokenizer import CheckpointTokenizer
        from tests.testkit.local_engine import local_engine

        self._model = load(config)
        self._tokenizer = CheckpointTokenizer.from_folder(config.model_dir)
        self._make = lambda: local_engine(self._model)

    def prompt(self, question: str) -> list[int]:
        text = self._tokenizer.render_chat([{"role": "user", "content": question}])
        return self._tokenizer.encode(text)

    def decode(self, prompts: list[list[int]], new_tokens: int) -> float:
        """Tokens a second over all streams, first token to last."""
        engine = self._make()
        for index, prompt in enumerate(prompts):
            engine.submit(str(index), prompt, temperature=0, max_tokens=new_tokens, ignore_eos=True)
        while len(engine.chunks) < len(prompts):
            engine.step()
        seen = sum(len(chunks) for chunks in engine.chunks.values())
        started = time.perf_counter()
        engine.run()
        return (len(prompts) * new_tokens - seen) / (time.perf_counter() - started)

    def prefix_ttft(self, num_tokens: int) -> dict[str, float]:
        """Seconds to the first token of two prompts that share their first num_tokens tokens, one after the other."""
        engine = self._make()
        prefix = [5 + (7 * i) % 4000 for i in range(num_tokens)]
        seconds = {}
        for name, tail in (("cold", [11, 12, 13]), ("warm", [21, 22, 23])):
            started = time.perf_counter()
            engine.submit(name, prefix + tail, temperature=0, max_tokens=1)
            engine.run()
            seconds[name] = time.perf_counter() - started
        return seconds

    def close(self) -> None:
        self._model.runner.close()


class _Transformers:
    def __init__(self, folder: Path) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        self._torch = torch
        self._models = {
            name: AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
            for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16))
        }

    def decode(self, prompts: list[list[int]], new_tokens: int, dtype: str) -> float:
        """Tokens a second of generate's decoding: the time of a one-token run is taken off."""
        seconds = {}
        for count in (1, new_tokens):
            started = time.perf_counter()
            self._generate(prompts, count, dtype)
            seconds[count] = time.perf_counter() - started
        return len(prompts) * (new_tokens - 1) / (seconds[new_tokens] - seconds[1])

    def _generate(self, prompts: list[list[int]], count: int, dtype: str) -> None:
        torch = self._torch
        longest = max(map(len, prompts))
        ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        with torch.inference_mode():
            self._models[dtype].generate(
                ids, attention_mask=mask, do_sample=False, min_new_tokens=count, max_new_tokens=count, pad_token_id=0
            )


_LLAMA = """
import sys, time
from llama_cpp import Llama
model = Llama(sys.argv[1], n_ctx=2048, n_threads=2, verbose=False)
best = 0
for _ in range(int(sys.argv[3])):
    stamps = []
    for token in model.generate(model.tokenize(b"Tell me a long story about the number 7."), temp=0):
        stamps.append(time.perf_counter())
        if len(stamps) > int(sys.argv[2]):
            break
    best = max(best, (len(stamps) - 1) / (stamps[-1] - stamps[0]))
    model.reset()
print(round(best, 1))
"""


def _llama(python: str, gguf: str, new_tokens: int, rounds: int) -> float:
    command = [python, "-c", _LLAMA, gguf, str(new_tokens), str(rounds)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])


def _report(args: argparse.Namespace, results: list[dict[str, float]], ttft: dict[str, float]) -> None:
    names = ("streams", "headrace", "generate fp32", "generate bf16", "ratio fp32", "ratio bf16")
    print("{:>8} {:>10} {:>14} {:>14} {:>11} {:>11}".format(*names))
    for row in results:
        row["ratio_fp32"] = round(row["headrace"] / row["generate fp32"], 2)
        row["ratio_bf16"] = round(row["headrace"] / row["generate bf16"], 2)
        print(
            f"{row['streams']:>8} {row['headrace']:>10} {row['generate fp32']:>14} {row['generate bf16']:>14} "
            f"{row['ratio_fp32']:>11} {row['ratio_bf16']:>11}"
        )
    if "llama.cpp" in results[0]:
        print(f"llama.cpp, one stream: {results[0]['llama.cpp']} tokens/s")
    scaling = results[-1]["headrace"] / results[0]["headrace"]
    speedup = ttft["cold"] / ttft["warm"]
    print(f"{results[-1]['streams']} streams against 1: {scaling:.1f} x the tokens/s")
    print(
        f"TTFT with a {args.prefix}-token prefix: cold {ttft['cold']:.3f} s, warm {ttft['warm']:.3f} s: {speedup:.1f} x"
    )
    print(
        json.dumps(
            {
                "bench": "cpu",
                "dtype": args.dtype,
                "rows": results,
                "scaling": round(scaling, 2),
                "ttft_cold_s": round(ttft["cold"], 4),
                "ttft_warm_s": round(ttft["warm"], 4),
                "ttft_speedup": round(speedup, 2),
            }
        )
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=lambda text: [int(part) for part in text.split(",")], default=[1, 4, 16])
    parser.add_argument("--new-tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dtype", default="int8", choices=("int8", "fp32", "bf16"))
    parser.add_argument("--prefix", type=int, default=1000, help="tokens of the shared prefix")
    parser.add_argument("--llama-python", help="the Python of an environment with llama-cpp-python")
    parser.add_argument("--gguf", help="the GGUF file for llama.cpp")
    return parser.parse_args()


if __name__ == "__main__":
    main()
