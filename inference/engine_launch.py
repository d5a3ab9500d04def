"""Starts an engine process, before it is known what it is to serve. Standard library only; may block for milliseconds.

The process loads torch and Transformers, which takes seconds, and then waits for its EngineConfig: whoever needs an
engine starts it first, and finds out meanwhile which model, tokenizer and port there are.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

from inference.config import Device


class EngineProcess:
    """A running engine process, and our end of its socket pair, which whoever talks to it takes over.

    Until it is `loaded`, another process reads ahead for it.
    """

    def __init__(self, device: Device) -> None:
        command = [sys.executable, "-m", "inference.read_ahead", device]
        # What it could say is of no use to anybody, and who reads our output need not wait for its end.
        self._reader = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.connection, theirs = socket.socketpair()
        arguments = (str(theirs.fileno()), device, str(time.monotonic()))
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "inference.engine_start", *arguments],
                pass_fds=(theirs.fileno(),), env=process_environment(device), stdin=subprocess.DEVNULL,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        self._process.kill()

    def loaded(self) -> None:
        """It has nothing more to read. Idempotent."""
        self._reader.kill()
        self._reader.wait()

    def end(self, patience_s: float) -> None:
        """Close the connection, by which it ends itself, and wait; kill it when patience ends. Idempotent."""
        self.loaded()
        self.connection.close()
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def process_environment(device: Device) -> dict[str, str]:
    """The engine process's environment: what the user has set, and thread and allocator settings where they have not.

    The OpenMP workers spin briefly between the many small products of a step and then sleep, so that they neither pay
    a wake-up a product nor fight others for cores. Large buffers are kept rather than returned to the system each step.
    """
    defaults = {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    if device == "cpu":
        defaults |= {
            "GOMP_SPINCOUNT": "50000",
            "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
            "MALLOC_TRIM_THRESHOLD_": str(1 << 32),
        }
    return defaults | dict(os.environ)
