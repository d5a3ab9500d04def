"""The first thing that an engine process runs: what takes longest to load, in an order that wastes no time.

Started by inference.engine_launch as `python -m inference.engine_start FD DEVICE STARTED`: its end of a socket pair,
cpu or cuda, and when it was started in seconds of the monotonic clock. It knows nothing of models: those come with the
first message, which may take longer than everything that is loaded here.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable

from inference.runner.phase_clock import PhaseClock

Serve = Callable[[socket.socket, PhaseClock], int]


def main(argv: list[str]) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the gateway decides when to end
    descriptor, device, started_s = int(argv[0]), argv[1], float(argv[2])
    clock = PhaseClock(started_s)
    clock.lap("python")
    connection = socket.socket(fileno=descriptor)
    threading.Thread(target=end_with_gateway, args=(connection,), daemon=True).start()
    # Imports make a million objects that stay: looking for garbage among them takes an eighth of their time.
    gc.disable()
    serve = _load(device, clock)
    gc.freeze()
    gc.enable()
    return serve(connection, clock)


def end_with_gateway(connection: socket.socket) -> None:
    """Returns when the first message is there, and takes nothing of it. Without a gateway nobody needs what is loaded
    until then, and the process ends at once."""
    try:
        is_there = connection.recv(1, socket.MSG_PEEK)
    except ConnectionError:
        is_there = b""
    if not is_there:
        os._exit(0)


def _load(device: str, clock: PhaseClock) -> Serve:
    """Late imports, since they are the work that is begun in order and timed here."""
    import torch  # noqa: F401

    clock.lap("torch")
    from inference.runner.warm_up import warm_up_device

    warming = warm_up_device() if device == "cuda" else None
    from transformers import AttentionInterface, AutoModelForCausalLM  # noqa: F401

    clock.lap("transformers")
    from inference.engine_process import serve

    clock.lap("engine")
    if warming is not None:
        warming.join()  # a device that captures is nobody else's
        clock.lap("device")
    return serve


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
