"""Compiles the kernels of passes before they are launched: all at once, where a pass comes to one after another.

What is compiled for a launch depends on its arguments, and Triton alone knows how. So passes are run once without these
launches, which is a mode of Triton's as its own for compiling in threads is (AsyncCompileMode, Triton 3.6), except that
a launch does not wait there: it is left out. Knows nothing of what passes compute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from typing import Any

import torch
from triton import AsyncCompileMode

Pass = Callable[[], object]
_Compile = Callable[[], Any]
_Finish = Callable[[Any], None]


class AheadCompiler:
    """Compiles each kernel once, in the threads given: compilers hold the interpreter's lock a sixth of their time.

    One caller thread, and nobody else launches kernels meanwhile.
    """

    def __init__(self, device: torch.device, threads: Executor) -> None:
        self._device, self._threads = device, threads
        self._begun: dict[str, tuple[Future[Any], _Finish]] = {}

    def begin(self, passes: Iterable[Pass]) -> None:
        """Run the passes without the kernels that are not loaded, then begin to compile those.

        Torch's operations and kernels loaded before do run, on whatever is there where others would have written: what
        takes indices from there must find valid ones.
        """
        with _LeavingOut() as left_out:
            for run in passes:
                run()
        for key, (compile_kernel, finish) in left_out.kernels.items():
            if key not in self._begun:
                self._begun[key] = (self._threads.submit(self._loaded, compile_kernel), finish)

    def wait(self) -> None:
        """Until all that has begun is loaded; launches find it then. Raises what a compilation has raised."""
        for kernel, finish in self._begun.values():
            finish(kernel.result())

    def _loaded(self, compile_kernel: _Compile) -> Any:
        """The kernel, compiled or from Triton's cache on the disk."""
        with torch.cuda.device(self._device):
            kernel = compile_kernel()
            _ = kernel.run  # is made, by a C compiler, when it is first asked for
        return kernel


class _LeavingOut(AsyncCompileMode):  # type: ignore[misc]  # Triton has no types
    """Within it, on this thread, launches of kernels that are not loaded are left out.

    kernels: by what Triton knows them by on the disk, how to compile each, and how to hand it to its launches.
    """

    def __init__(self) -> None:
        super().__init__(executor=None)  # see submit: there is nothing for it to do
        self.kernels: dict[str, tuple[_Compile, _Finish]] = {}

    def submit(self, key: str, compile_fn: _Compile, finalize_fn: _Finish) -> None:
        """Asked by a launch for its kernel, and there is none."""
        self.kernels.setdefault(key, (compile_fn, finalize_fn))
