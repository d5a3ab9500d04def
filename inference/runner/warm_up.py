"""Has CUDA ready by the time that a model needs it. Everything here would happen anyway, later and one by one."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from threading import Thread

import torch


def warm_up_device() -> Thread:
    """In a thread, while others import: starts the driver and makes the context and the matrix library's handle.

    Nothing is said where there is no device: whoever loads a model on it finds out, and has the words for it.
    """
    thread = Thread(target=_warm_up, name="headrace-warm-up", daemon=True)
    thread.start()
    return thread


def _warm_up() -> None:
    with suppress(OSError, AttributeError):
        # torch does so too, but holds the interpreter's lock meanwhile.
        ctypes.CDLL("libcuda.so.1").cuInit(0)
    with suppress(RuntimeError, AssertionError):
        ones = torch.ones(16, 16, dtype=torch.bfloat16, device="cuda")
        torch.mm(ones, ones)
        torch.cuda.synchronize()
