"""The listening socket."""

from __future__ import annotations

import socket

_BACKLOG = 2048


class PortTaken(OSError):
    """The address cannot be listened on; the message says what helps."""


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises PortTaken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's algorithm off only for sockets that name their protocol, which socket.create_server's do
    # not; with it, headers and body of an answer arrive 40 ms apart.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
        return listener
    except OSError as error:
        listener.close()
        message = f"Cannot listen on {host} port {port}: {error.strerror}. Choose another with --port."
        raise PortTaken(message) from error
