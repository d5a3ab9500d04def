"""Messages between the gateway and its engine process: pickles with a length in front, over a socket pair.

Both ends are ours and the socket has no name, so pickle is safe here. Standard library only.
"""

from __future__ import annotations

import pickle
import socket
import struct
from dataclasses import dataclass
from typing import Any

from inference.types import EngineInfo, EngineStats, TokenChunk, TurnRequest

HEADER = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Submit:
    request: TurnRequest


@dataclass(frozen=True, slots=True)
class Cancel:
    """choice None: all that are left of the turn."""

    turn_id: str
    choice: int | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    info: EngineInfo


@dataclass(frozen=True, slots=True)
class Failed:
    """The model could not be loaded; the process ends after this message."""

    message: str


@dataclass(frozen=True, slots=True)
class StepDone:
    """Everything one step yields, in one message."""

    chunks: tuple[TokenChunk, ...]
    stats: EngineStats


Command = Submit | Cancel
Report = Ready | Failed | StepDone


def encode(message: object) -> bytes:
    body = pickle.dumps(message, protocol=5)
    return HEADER.pack(len(body)) + body


def receive(connection: socket.socket) -> Any:
    """The next message; raises EOFError when the other side is gone. Blocks."""
    (length,) = HEADER.unpack(_read_exactly(connection, HEADER.size))
    return pickle.loads(_read_exactly(connection, length))


def _read_exactly(connection: socket.socket, count: int) -> bytes:
    parts = []
    while count:
        try:
            part = connection.recv(min(count, 1 << 20))
        except ConnectionError as error:
            raise EOFError from error
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
