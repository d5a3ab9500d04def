"""The gateway under load, as a process of its own: started by tests/bench/gateway.py with its options as JSON.

Prints the port. With "engine_only" it serves nothing: the same tokens are taken from the engine and dropped, and what
that costs is printed, so that it can be told from the gateway's own part.
"""

from __future__ import annotations

import asyncio
import cProfile
import json
import pstats
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from gateway import native_connection
from gateway.app import GatewayApp
from gateway.config import GatewayConfig
from gateway.frame_socket import EXTENSION
from gateway.listener import listen
from gateway.serve import GatewayServer
from tests.testkit.paced_engine import PacedBackend, PacedPieces, StepClock


async def serve(options: dict[str, Any]) -> None:
    config = GatewayConfig(("bench",), max_live_turns=100_000, max_connection_turns=100_000)
    native_connection._WRITE_INTERVAL_S = float(options["interval_ms"]) / 1000
    app: Any = GatewayApp(PacedBackend(options["rate"]), config)
    server = GatewayServer(app, config)
    if options["http"] != "served":
        server.config.http = options["http"]
    if options["frames"] == "single":
        server.config.app = _without_batches(app)
    listener = listen("127.0.0.1", 0)
    print(listener.getsockname()[1], flush=True)
    await server.serve(sockets=[listener])


def _without_batches(app: Any) -> Any:
    """For comparison: each frame goes out by itself, through uvicorn's own send."""

    async def plain(scope: Any, receive: Any, send: Any) -> None:
        scope.get("extensions", {}).pop(EXTENSION, None)
        await app(scope, receive, send)

    return plain


async def drain_engine(options: dict[str, Any]) -> None:
    interval_s = 1 / options["rate"]
    num_streams, num_tokens = options["streams"], int(options["rate"] * options["engine_only"])

    clock = StepClock()

    async def read(stream: int) -> None:
        delay_s = stream * 0.618034 % 1 * interval_s
        async for _ in PacedPieces(clock, stream, num_tokens, interval_s, delay_s, lambda number: None):
            pass

    started_s = time.process_time()
    await asyncio.gather(*(read(stream) for stream in range(num_streams)))
    used_s = time.process_time() - started_s
    print(json.dumps({"us_a_token": used_s / (num_streams * num_tokens) * 1e6}), flush=True)


def main() -> None:
    options = json.loads(sys.argv[1])
    work = drain_engine(options) if options["engine_only"] else serve(options)
    profile = cProfile.Profile() if options["profile"] else None
    if profile is not None:
        profile.enable()
    if options["loop"] == "uvloop":
        import uvloop

        uvloop.run(work)
    else:
        asyncio.run(work)
    if profile is not None:
        profile.disable()
        pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(45)


if __name__ == "__main__":
    main()
