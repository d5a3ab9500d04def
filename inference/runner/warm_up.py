"""Has CUDA ready by the time that a model needs it. Everything here would happen anyway, later and one by one."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from subprocess import SubprocessError
from threading import Thread

import torch


def warm_up_device() -> Thread:
    """In a thread, while others import: starts the driver, makes the context and the matrix library's handle, and has
    Triton launch its first kernel, for which it reads all of itself, 400 MB, to know whose kernels are in its cache.

    Nothing is said where there is no device: whoever loads a model on it finds out, and has the words for it.
    """
    thread = Thread(target=_warm_up, name="headrace-warm-up", daemon=True)
    thread.start()
    return thread


def _warm_up() -> None:
    with suppress(OSError, AttributeError):
        # torch does so too, but holds the interpreter's lock meanwhile.
        ctypes.CDLL("libcuda.so.1").cuInit(0)
    with suppress(ImportError, OSError, RuntimeError, AssertionError, SubprocessError):
        ones = torch.ones(16, 16, dtype=torch.bfloat16, device="cuda")
        torch.mm(ones, ones)
        _launch_one_kernel()
        torch.cuda.synchronize()


def _launch_one_kernel() -> None:
    """One that every engine launches: of no writes."""
    # Late: Triton is there only where CUDA is.
    from inference.runner.kernels.rows import scatter

    nothing = torch.zeros(64, dtype=torch.int32, device="cuda")
    scatter(nothing, nothing, 1)
