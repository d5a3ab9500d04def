"""A chat in the terminal: `headrace chat`, or `python -m headrace.chat`.

Text appears as the model writes it, reasoning is dimmed, calls and their results have lines of their own. Ctrl-C
cancels the running turn; at the prompt it leaves.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headrace.agent import AgentDone
from headrace.chat_screen import ChatScreen, use_color
from headrace.errors import AuthenticationError, ConnectionFailed, HeadraceError, MaxTurnsExceeded
from headrace.events import ContentDelta, TurnStarted
from headrace.sync_agent import SyncAgent
from headrace.sync_client import Client
from headrace.tools import Tool

_HELP = """\
/reset   forget the conversation
/help    show this
/quit    leave (so do Ctrl-D, and Ctrl-C at this prompt; Ctrl-C in an answer cancels it)"""
_NO_TOOLS = "[the model called a tool, and there is none to run: give some with --tools FILE.py]"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the chat. Returns the exit status: 0 when it was left, 1 when there is no server to talk to, 2 for a fault in
    the arguments."""
    arguments = _parser().parse_args(argv)
    screen = ChatScreen(sys.stdout, color=use_color(sys.stdout))
    try:
        tools = _load_tools(arguments.tools) if arguments.tools else []
        client = Client(arguments.url, api_key=arguments.api_key, model=arguments.model, transport=arguments.transport)
    except (HeadraceError, OSError, SyntaxError, ImportError) as error:
        print(f"headrace chat: {error}", file=sys.stderr)
        return 2
    with client:
        try:
            models = client.models()
        except HeadraceError as error:
            print(f"headrace chat: {_explain(error, client.url)}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 0
        screen.note(f"{client.url}, model {arguments.model or next(iter(models), 'unknown')}; /help tells the commands")
        _Chat(_agent(client, tools, arguments), screen, client.url, can_run_tools=bool(tools)).run()
    return 0


class _Chat:
    """One conversation. `_messages` holds it as it was after the last answer."""

    def __init__(self, agent: SyncAgent, screen: ChatScreen, url: str, *, can_run_tools: bool) -> None:
        self._agent = agent
        self._screen = screen
        self._url = url
        self._can_run_tools = can_run_tools
        self._messages: list[dict[str, object]] = []

    def run(self) -> None:
        """Answer until the user leaves: by /quit, by the input's end, or by Ctrl-C outside an answer."""
        prompt = ""
        if sys.stdin.isatty():
            prompt = "> "
            # Gives input() its line editing; imported here since that alone may write to what is no terminal.
            with contextlib.suppress(ImportError):
                import readline  # noqa: F401
        try:
            while (line := input(prompt).strip()) not in ("/quit", "/exit"):
                self._take(line)
        except (EOFError, KeyboardInterrupt):
            print()

    def _take(self, line: str) -> None:
        match line:
            case "":
                pass
            case "/reset":
                self._messages = []
                self._screen.note("[the conversation is forgotten]")
            case "/help":
                self._screen.note(_HELP)
            case _ if line.startswith("/") and " " not in line:
                self._screen.note(f"[there is no command {line}]\n{_HELP}")
            case _:
                self._answer(line)

    def _answer(self, line: str) -> None:
        asked: list[dict[str, object]] = [*self._messages, {"role": "user", "content": line}]
        text: list[str] = []
        try:
            with contextlib.closing(self._agent.run_stream(asked)) as events:
                for event in events:
                    # Before it is shown: an interrupt may come at any line, and what was seen must be remembered.
                    match event:
                        case TurnStarted():
                            text.clear()
                        case ContentDelta(text=piece):
                            text.append(piece)
                        case AgentDone(result=result):
                            self._messages = result.messages
                    self._screen.show(event)
        except KeyboardInterrupt:
            self._screen.note("[cancelled]")
            if text:
                self._messages = [*asked, {"role": "assistant", "content": "".join(text)}]
        except MaxTurnsExceeded as error:
            self._screen.note(f"[{error}]" if self._can_run_tools else _NO_TOOLS)
            self._messages = error.messages
        except HeadraceError as error:
            self._screen.note(f"[{_explain(error, self._url)}]")


def _agent(client: Client, tools: list[Tool[..., Any]], arguments: argparse.Namespace) -> SyncAgent:
    sampling: Any = {
        name: value for name in ("temperature", "max_tokens") if (value := getattr(arguments, name)) is not None
    }
    # Without tools there is nothing that a second turn could tell the model.
    return SyncAgent(client, tools, system=arguments.system, max_turns=20 if tools else 1, **sampling)


def _explain(error: HeadraceError, url: str) -> str:
    match error:
        case ConnectionFailed():
            return f"no server answers at {url}; start one with `headrace serve`, or name another with --url\n({error})"
        case AuthenticationError():
            return f"{url} wants another API key: give it with --api-key or in HEADRACE_API_KEY\n({error})"
        case _:
            return str(error)


def _load_tools(path: Path) -> list[Tool[..., Any]]:
    """The tools that a Python file makes with `@tool`. Runs the file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    # As for an import: dataclasses and annotations look their module up by name.
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    found = [value for value in vars(module).values() if isinstance(value, Tool)]
    if not found:
        raise ImportError(f"{path} makes no tool: put @tool before a function")
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="headrace chat", description="Chat with a Headrace server in the terminal.")
    parser.add_argument("--url", help="the server (default: $HEADRACE_URL, else http://127.0.0.1:8000)")
    parser.add_argument("--model", help="the model (default: the server's first)")
    parser.add_argument("--api-key", help="the server's key (default: $HEADRACE_API_KEY)")
    parser.add_argument("--system", help="a system message for the conversation")
    parser.add_argument("--tools", type=Path, metavar="FILE.py", help="offer the tools that this file makes with @tool")
    parser.add_argument("--temperature", type=float, help="sampling temperature (default: the server's)")
    parser.add_argument("--max-tokens", type=int, help="limit of an answer, in tokens (default: the server's)")
    parser.add_argument("--transport", choices=["websocket", "sse"], default="websocket", help="default: %(default)s")
    return parser


if __name__ == "__main__":
    sys.exit(main())
