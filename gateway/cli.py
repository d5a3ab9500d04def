"""The `headrace` command: `headrace serve` and `headrace chat`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Coroutine, Sequence

from gateway import __version__
from gateway.config import ServeOptions, add_serve_arguments, serve_options
from gateway.errors import UpstreamMisconfigured
from gateway.option_types import ConfigError
from gateway.serve import PortTaken, listen, serve
from gateway.startup import banner, build_backend
from inference.errors import ModelLoadError


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, 1 when serving failed, 2 for a wrong command line, 130 after Ctrl-C at start-up."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["chat"]:
        # The SDK has its own parser; it is imported late since the server does not need it.
        from headrace.chat import main as chat_main

        return int(chat_main(arguments[1:]) or 0)
    options = _parser().parse_args(arguments)
    try:
        return _serve(serve_options(options, os.environ))
    except (ConfigError, ModelLoadError, PortTaken, UpstreamMisconfigured) as error:
        print(f"headrace: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="headrace", description="A streaming-first agent gateway with a tool-call-aware inference core."
    )
    parser.add_argument("--version", action="version", version=f"headrace {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    serve_parser = commands.add_parser(
        "serve",
        help="serve a model over HTTP and WebSocket",
        description="Serve a model over HTTP (OpenAI's API, server-sent events) and WebSocket.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_serve_arguments(serve_parser)
    commands.add_parser("chat", help="chat with a server in the terminal", add_help=False)
    return parser


def _serve(options: ServeOptions) -> int:
    logging.basicConfig(level=options.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("uvicorn").setLevel(max(logging.WARNING, logging.getLevelName(options.log_level)))
    loaded = build_backend(options)
    config = loaded.gateway_config(options)
    listener = listen(config.host, config.port)

    def announce(base_url: str) -> None:
        print(banner(base_url, loaded, config), flush=True)

    _run(serve(loaded.backend, config, listener, announce))
    return 0


def _run(serving: Coroutine[None, None, None]) -> None:
    """On uvloop where it is installed: it keeps the tail of latencies under load a tenth of asyncio's own loop."""
    try:
        # Not to be had on Windows.
        import uvloop
    except ImportError:
        asyncio.run(serving)
    else:
        uvloop.run(serving)


if __name__ == "__main__":
    sys.exit(main())
