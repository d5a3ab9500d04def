"""Compiles the kernels of passes before they are launched: all at once, where a pass comes to one after another.

What is compiled for a launch depends on its arguments, and Triton alone knows how. So passes are run once without these
launches, which is a mode of Triton's as its own for compiling in threads is (AsyncCompileMode, Triton 3.6), except that
a launch does not wait there: it is left out. Knows nothing of what passes compute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from threading import Lock
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
        self._lock = Lock()
        self._launchers: set[tuple[str, ...]] = set()  # loaded, or about to be

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
        for kernel, finish in [(begun.result(), finish) for begun, finish in self._begun.values()]:
            with torch.cuda.device(self._device):
                _ = kernel.run
            finish(kernel)

    def _loaded(self, compile_kernel: _Compile) -> Any:
        """The kernel, compiled or from Triton's cache on the disk; if nobody else does so, with its launcher.

        A launcher, made by a C compiler, is a module that all kernels of one signature share, and all launchers have
        one name. Python loads a module again by handing out the one of this name that it loaded last, with its content
        exchanged: a thread that has just loaded another would find the wrong launcher there. So none is loaded a second
        time beside others.
        """
        with torch.cuda.device(self._device):
            kernel = compile_kernel()
            signature = tuple(map(str, kernel.src.signature.values()))
            with self._lock:
                is_first = signature not in self._launchers
                self._launchers.add(signature)
            if is_first:
                _ = kernel.run
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
