"""`headrace serve`, once its options are known: from the backend to the end of the server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine

from gateway.config import ServeOptions
from gateway.listener import listen
from gateway.serve import serve
from gateway.startup import banner, build_backend
from inference.engine_launch import EngineProcess


def run_server(options: ServeOptions, started: EngineProcess | None) -> None:
    """Returns when the server has ended. started: the engine's process, where the options need one.

    Raises ConfigError, ModelLoadError, PortTaken and UpstreamMisconfigured.
    """
    logging.basicConfig(level=options.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("uvicorn").setLevel(max(logging.WARNING, logging.getLevelName(options.log_level)))
    loaded = build_backend(options, started)
    config = loaded.gateway_config(options)
    listener = listen(config.host, config.port)

    def announce(base_url: str) -> None:
        print(banner(base_url, loaded, config), flush=True)

    _run(serve(loaded.backend, config, listener, announce))


def _run(serving: Coroutine[None, None, None]) -> None:
    """On uvloop where it is installed: it keeps the tail of latencies under load a tenth of asyncio's own loop."""
    try:
        # Not to be had on Windows.
        import uvloop
    except ImportError:
        asyncio.run(serving)
    else:
        uvloop.run(serving)
