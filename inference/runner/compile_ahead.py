"""Compiles the kernels of passes before they are launched: all at once, where a pass comes to one after another.

What is compiled for a launch depends on its arguments, and Triton alone knows how. So passes are run with launches left
out: Triton tells a hook of each kernel that it is about to compile, and leaves out the launch of one that the hook
keeps for later (jit_cache_hook of Triton 3.6; what it is told is what JITFunction.preload takes). Knows nothing of what
passes compute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any

import torch
from triton import knobs

Pass = Callable[[], object]
_Compilation = Callable[[], object]
# A function's module and name, and what Triton calls the kernel among its own.
_Key = tuple[str, str, str]


class AheadCompiler:
    """Compiles each kernel once, in the threads given: compilers hold the interpreter's lock a sixth of their time.

    One caller thread, and nobody else launches kernels meanwhile.
    """

    def __init__(self, threads: Executor) -> None:
        self._threads = threads
        self._begun: dict[_Key, Future[object]] = {}

    def begin(self, passes: Iterable[Pass]) -> None:
        """Run the passes without the kernels that are not loaded, then begin to compile those.

        Loaded kernels and torch's operations do run, on whatever is there where others would have written: what takes
        indices from there must find valid ones.
        """
        found: dict[_Key, _Compilation] = {}
        with knobs.runtime.scope():
            knobs.runtime.jit_cache_hook = partial(_keep_for_later, found)
            for run in passes:
                run()
        for key, compilation in found.items():
            if key not in self._begun:
                self._begun[key] = self._threads.submit(compilation)

    def wait(self) -> None:
        """Until all that has begun is ready to be launched. Raises what a compilation has raised."""
        for compilation in self._begun.values():
            compilation.result()


def _keep_for_later(
    found: dict[_Key, _Compilation], *, fn: Any, compile: dict[str, Any], is_manual_warmup: bool, **_: object
) -> bool:
    """Triton's JITHook: True leaves out the compilation, and the launch that asks for it."""
    if is_manual_warmup:
        return False  # one that has been found before, and is now compiled
    kept = partial(_ready, fn.jit_function, compile["specialization_data"], compile["device"])
    found[fn.module, fn.name, compile["key"]] = kept
    return True


def _ready(function: Any, specialization: str, device: int) -> object:
    """Compiles a kernel, or takes it from Triton's cache on the disk, and loads it."""
    with torch.cuda.device(device):
        # Triton builds what launches a kernel, with a C compiler, when it is first asked for that.
        return function.preload(specialization).run
