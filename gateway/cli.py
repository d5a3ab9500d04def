"""The `headrace` command: `headrace serve` and `headrace chat`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from gateway import __version__
from gateway.config import ServeOptions, add_serve_arguments, serve_options
from gateway.errors import UpstreamMisconfigured
from gateway.listener import PortTaken
from gateway.option_types import ConfigError
from inference.engine_launch import EngineProcess
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
        _serve(serve_options(options, os.environ))
    except (ConfigError, ModelLoadError, PortTaken, UpstreamMisconfigured) as error:
        print(f"headrace: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        return 130
    return 0


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


def _serve(options: ServeOptions) -> None:
    started = EngineProcess(options.device) if options.needs_engine else None
    try:
        # Late: the engine's process, which takes longest to load, does so while the gateway does.
        from gateway.serve_command import run_server

        run_server(options, started)
    finally:
        if started is not None:
            started.end(patience_s=0)


if __name__ == "__main__":
    sys.exit(main())
