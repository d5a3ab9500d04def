"""How the terminal chat shows events; knows nothing of clients and of the keyboard."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TextIO, assert_never

from headrace.agent import AgentDone, AgentEvent, ToolResult
from headrace.events import (
    ContentDelta,
    ReasoningDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    TurnDone,
    TurnStarted,
)

_DIM = "\x1b[2m"
_PLAIN = "\x1b[0m"
_SHOWN_CHARS = 400
# A model's text must not steer the terminal: all control characters but tab and newline go.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def use_color(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether to write ANSI codes: on a terminal, unless NO_COLOR (https://no-color.org) is set or TERM is dumb."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


class ChatScreen:
    """Writes one answer after the other; every write is flushed, so that text appears as it comes."""

    def __init__(self, stream: TextIO, *, color: bool) -> None:
        self._stream = stream
        self._color = color
        self._is_dim = False
        self._at_line_start = True
        self._names: dict[int, str] = {}

    def show(self, event: AgentEvent) -> None:
        match event:
            case ReasoningDelta(text=text):
                self._write(text, dim=True)
            case ContentDelta(text=text):
                if self._is_dim:
                    self._end_line()
                self._write(text, dim=False)
            case ToolCallStart(index=index, name=name):
                self._names[index] = name
            case ToolCallEnd(index=index, arguments=arguments, outcome=outcome):
                flag = "" if outcome == "ok" else f"  [{outcome}]"
                self.note(f"→ {self._names.get(index, '?')} {_short(arguments)}{flag}")
            case ToolResult(name=name, content=content):
                self.note(f"← {name} {_short(content)}")
            case TurnDone(finish_reason="length"):
                self.note("[cut: the limit of tokens is reached]")
            case TurnDone() | AgentDone():
                self._end_line()
            case TurnStarted() | ToolCallDelta():
                pass
            case _:
                assert_never(event)

    def note(self, text: str) -> None:
        """A line of the program's own, dimmed."""
        self._end_line()
        self._write(text, dim=True)
        self._end_line()

    def _write(self, text: str, *, dim: bool) -> None:
        text = _CONTROLS.sub("", text)
        if not text:
            return
        self._set_dim(dim)
        self._stream.write(text)
        self._stream.flush()
        self._at_line_start = text.endswith("\n")

    def _end_line(self) -> None:
        self._set_dim(False)
        if not self._at_line_start:
            self._stream.write("\n")
            self._at_line_start = True
        self._stream.flush()

    def _set_dim(self, dim: bool) -> None:
        if self._color and dim != self._is_dim:
            self._stream.write(_DIM if dim else _PLAIN)
        self._is_dim = dim


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_CHARS else f"{line[:_SHOWN_CHARS]}..."
