"""With a Triton that has a cache, a hook and nothing else: tests/gpu/test_cuda_compile.py has the real one."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from types import ModuleType, SimpleNamespace

import pytest


class FakeRuntime:
    """triton.knobs.runtime."""

    jit_cache_hook: Callable[..., bool] | None = None

    @contextmanager
    def scope(self):
        before = dict(self.__dict__)
        try:
            yield
        finally:
            self.__dict__.clear()
            self.__dict__.update(before)


class FakeFunction:
    """A JITFunction. compiled: what has been, in order; launched: likewise."""

    def __init__(self, runtime: FakeRuntime, name: str = "kernel", compiler: Callable[[], object] = list) -> None:
        self._runtime, self._name, self._compiler = runtime, name, compiler
        self._cache: dict[str, object] = {}
        self.compiled: list[str] = []
        self.launched: list[str] = []

    def launch(self, key: str) -> None:
        if key in self._cache or self._compile(key, is_manual_warmup=False):
            self.launched.append(key)

    def preload(self, specialization_data: str) -> object:
        assert self._compile(specialization_data, is_manual_warmup=True)
        return self._cache[specialization_data]

    def _compile(self, key: str, *, is_manual_warmup: bool) -> bool:
        # No device is -1 to torch, which then leaves it as it is.
        told = {"key": key, "device": -1, "specialization_data": key, "is_warmup": is_manual_warmup}
        fn = SimpleNamespace(module="kernels", name=self._name, jit_function=self)
        if self._runtime.jit_cache_hook is not None and self._runtime.jit_cache_hook(
            key=key, repr=key, fn=fn, compile=told, is_manual_warmup=is_manual_warmup, already_compiled=False
        ):
            return False
        self._compiler()
        self.compiled.append(key)
        self._cache[key] = SimpleNamespace(run=object())
        return True


@pytest.fixture
def runtime():
    return FakeRuntime()


@pytest.fixture
def make_compiler(runtime, monkeypatch):
    """A module of its own, since what others have loaded may know the real Triton."""
    triton = ModuleType("triton")
    triton.knobs = SimpleNamespace(runtime=runtime)
    monkeypatch.setitem(sys.modules, "triton", triton)
    spec = importlib.util.find_spec("inference.runner.compile_ahead")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.AheadCompiler


def _passes(function, *all_keys):
    def launch_all(keys):
        for key in keys:
            function.launch(key)

    return [lambda keys=keys: launch_all(keys) for keys in all_keys]


def test_what_passes_would_launch_is_compiled_once_and_not_launched(runtime, make_compiler):
    function = FakeFunction(runtime)
    with ThreadPoolExecutor(4) as threads:
        compiler = make_compiler(threads)
        compiler.begin(_passes(function, "abca", "bd"))
        compiler.wait()
    assert sorted(function.compiled) == ["a", "b", "c", "d"]
    assert function.launched == []


def test_nothing_is_left_to_compile_for_the_passes_themselves(runtime, make_compiler):
    function = FakeFunction(runtime)
    passes = _passes(function, "ab", "bc")
    with ThreadPoolExecutor(4) as threads:
        compiler = make_compiler(threads)
        compiler.begin(passes)
        compiler.wait()
    function.compiled.clear()
    for run in passes:
        run()
    assert function.compiled == []
    assert function.launched == ["a", "b", "b", "c"]


def test_kernels_of_one_pass_are_compiled_side_by_side(runtime, make_compiler):
    together = Barrier(3)
    function = FakeFunction(runtime, compiler=lambda: together.wait(30))
    with ThreadPoolExecutor(3) as threads:
        compiler = make_compiler(threads)
        compiler.begin(_passes(function, "abc"))
        compiler.wait()
    assert sorted(function.compiled) == ["a", "b", "c"]


def test_nothing_is_compiled_before_all_passes_have_been_run(runtime, make_compiler):
    function = FakeFunction(runtime)
    seen = []
    with ThreadPoolExecutor(1) as threads:
        compiler = make_compiler(threads)
        compiler.begin([*_passes(function, "a"), lambda: seen.append(list(function.compiled))])
        compiler.wait()
    assert seen == [[]]


def test_what_has_begun_does_not_begin_again_and_what_is_loaded_is_launched(runtime, make_compiler):
    function = FakeFunction(runtime)
    with ThreadPoolExecutor(4) as threads:
        compiler = make_compiler(threads)
        compiler.begin(_passes(function, "ab"))
        compiler.wait()
        compiler.begin(_passes(function, "bc"))
        compiler.wait()
    assert sorted(function.compiled) == ["a", "b", "c"]
    assert function.launched == ["b"]


def test_equal_specializations_of_two_functions_are_two_kernels(runtime, make_compiler):
    first, second = FakeFunction(runtime, "first"), FakeFunction(runtime, "second")
    with ThreadPoolExecutor(4) as threads:
        compiler = make_compiler(threads)
        compiler.begin([*_passes(first, "a"), *_passes(second, "a")])
        compiler.wait()
    assert (first.compiled, second.compiled) == (["a"], ["a"])


def test_what_a_compilation_raises_is_raised_to_who_waits(runtime, make_compiler):
    def fail():
        raise RuntimeError("no C compiler")

    function = FakeFunction(runtime, compiler=fail)
    with ThreadPoolExecutor(4) as threads:
        compiler = make_compiler(threads)
        compiler.begin(_passes(function, "a"))
        with pytest.raises(RuntimeError, match="no C compiler"):
            compiler.wait()


def test_a_pass_that_fails_leaves_no_hook_behind(runtime, make_compiler):
    def fail():
        raise ValueError("a pass")

    with ThreadPoolExecutor(4) as threads, pytest.raises(ValueError, match="a pass"):
        make_compiler(threads).begin([fail])
    assert runtime.jit_cache_hook is None
