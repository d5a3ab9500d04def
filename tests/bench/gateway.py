"""The gateway's own cost: many paced streams over WebSockets and event streams, on two cores.

One process serves a scripted engine (tests.testkit.paced_engine), another (this one) reads. Measured: whether every
token came, once and in order; how much later than it was due (event loop, encoding, sockets and this reader included);
CPU time a token of the serving process, less what the bare engine takes; memory. Prints a table and, last, one JSON
line. Variants with commas are measured in turns, so that their ratio means something on a busy machine.

    python tests/bench/gateway.py [--sockets 8] [--socket-streams 500] [--event-streams 200] [--rate 50] [--seconds 60]
                                  [--loop asyncio,uvloop] [--http served,httptools,h11] [--frames batch,single]
                                  [--interval-ms 1,2] [--rounds 1] [--profile]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.testkit.load_client import SocketReader, Tally, create_turn, open_event_stream, open_socket

_SERVER = Path(__file__).with_name("gateway_server.py")
_WARM_UP_S = 1.5


@dataclass(frozen=True)
class Result:
    variant: dict[str, str]
    num_tokens: int
    num_lost: int
    faults: list[str]
    tokens_a_second: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float
    us_a_token: float
    engine_us_a_token: float
    cpu_share: float
    rss_start_mib: float
    rss_end_mib: float

    @property
    def gateway_us_a_token(self) -> float:
        return self.us_a_token - self.engine_us_a_token


def main() -> None:
    args = _arguments()
    names = ("loop", "http", "frames", "interval_ms")
    variants = [
        dict(zip(names, values, strict=True))
        for values in itertools.product(args.loop, args.http, args.frames, args.interval_ms)
    ]
    results = [measure(args, variant) for _ in range(args.rounds) for variant in variants]
    _report(args, results)
    if any(result.faults for result in results):
        sys.exit(1)


def measure(args: argparse.Namespace, variant: dict[str, str]) -> Result:
    num_streams = args.socket_streams + args.event_streams
    options = {**variant, "rate": args.rate, "streams": num_streams, "profile": args.profile, "engine_only": 0}
    engine_s = min(args.seconds, 4.0)
    bare = {**options, "engine_only": engine_s, "profile": False}
    output = subprocess.run(
        [sys.executable, str(_SERVER), json.dumps(bare)], capture_output=True, check=True, text=True
    )
    engine_us = float(json.loads(output.stdout)["us_a_token"])

    command = [sys.executable, str(_SERVER), json.dumps(options)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            return asyncio.run(_load(args, variant, port, psutil.Process(server.pid), engine_us))
        finally:
            server.terminate()


async def _load(
    args: argparse.Namespace, variant: dict[str, str], port: int, server: psutil.Process, engine_us: float
) -> Result:
    num_tokens = int(args.rate * (args.seconds + 2 * _WARM_UP_S))
    tally = Tally(num_tokens)
    num_streams = args.socket_streams + args.event_streams
    sockets = await _begin(args, port, tally)

    await asyncio.sleep(_WARM_UP_S)
    before, rss_start = server.cpu_times(), server.memory_info().rss
    num_before, started_s = tally.num_tokens, asyncio.get_running_loop().time()
    tally.is_measuring = True
    await asyncio.sleep(args.seconds)
    tally.is_measuring = False
    after, rss_end = server.cpu_times(), server.memory_info().rss
    wall_s = asyncio.get_running_loop().time() - started_s
    measured = tally.num_tokens - num_before

    async with asyncio.timeout(60 + args.seconds):
        while tally.num_done < num_streams:
            await asyncio.sleep(0.05)
    for socket in sockets:
        socket.transport.abort()
    used_s = after.user + after.system - before.user - before.system
    return Result(
        variant=variant,
        num_tokens=tally.num_tokens,
        num_lost=num_streams * num_tokens - tally.num_tokens,
        faults=tally.faults,
        tokens_a_second=measured / wall_s,
        p50_ms=tally.percentile_ms(0.5),
        p99_ms=tally.percentile_ms(0.99),
        p999_ms=tally.percentile_ms(0.999),
        max_ms=tally.percentile_ms(1.0),
        us_a_token=used_s / max(measured, 1) * 1e6,
        engine_us_a_token=engine_us,
        cpu_share=used_s / wall_s,
        rss_start_mib=rss_start / 2**20,
        rss_end_mib=rss_end / 2**20,
    )


async def _begin(args: argparse.Namespace, port: int, tally: Tally) -> list[SocketReader]:
    sockets = [await open_socket("127.0.0.1", port, tally) for _ in range(args.sockets)]
    for stream in range(args.socket_streams):
        create_turn(sockets[stream % len(sockets)], stream, tally.num_tokens_each)
    for stream in range(args.socket_streams, args.socket_streams + args.event_streams):
        await open_event_stream("127.0.0.1", port, tally, stream, tally.num_tokens_each)
    return sockets


def _report(args: argparse.Namespace, results: list[Result]) -> None:
    print(
        f"{args.socket_streams} streams on {args.sockets} sockets + {args.event_streams} event streams, "
        f"{args.rate:g} tokens/s each, {args.seconds:g} s, load average {os.getloadavg()[0]:.1f}"
    )
    print(
        f"{'loop':9}{'http':11}{'frames':8}{'ms':>4}{'lost':>5}{'p50 ms':>8}{'p99 ms':>8}{'p99.9':>8}{'max':>8}", end=""
    )
    print(f"{'us/token':>10}{'engine':>8}{'gateway':>9}{'CPU':>6}{'streams/core':>14}{'RSS MiB':>14}")
    for r in results:
        v = r.variant
        print(f"{v['loop']:9}{v['http']:11}{v['frames']:8}{v['interval_ms']:>4}{r.num_lost + len(r.faults):5}", end="")
        print(f"{r.p50_ms:8.2f}{r.p99_ms:8.2f}{r.p999_ms:8.2f}{r.max_ms:8.1f}{r.us_a_token:10.1f}", end="")
        print(f"{r.engine_us_a_token:8.1f}{r.gateway_us_a_token:9.1f}{r.cpu_share:6.0%}", end="")
        print(f"{1e6 / (r.us_a_token * args.rate):14.0f}{r.rss_start_mib:8.0f}{r.rss_end_mib:6.0f}")
        for fault in r.faults:
            print("  fault:", fault)
    keys = [key for key in Result.__dataclass_fields__ if key != "variant"]
    rows: list[dict[str, Any]] = [{**r.variant, **{key: _rounded(getattr(r, key)) for key in keys}} for r in results]
    print(json.dumps({"bench": "gateway", "streams": [args.socket_streams, args.event_streams], "results": rows}))


def _rounded(value: Any) -> Any:
    return round(value, 3) if isinstance(value, float) else value


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sockets", type=int, default=8)
    parser.add_argument("--socket-streams", type=int, default=500)
    parser.add_argument("--event-streams", type=int, default=200)
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--loop", type=_words, default=["uvloop"])
    parser.add_argument("--http", type=_words, default=["served"], help="served: as `headrace serve` does")
    parser.add_argument("--frames", type=_words, default=["batch"])
    parser.add_argument("--interval-ms", type=_words, default=["1"], help="least time between a socket's writes")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--profile", action="store_true", help="print where the server spends its time")
    return parser.parse_args()


def _words(text: str) -> list[str]:
    return text.split(",")


if __name__ == "__main__":
    main()
