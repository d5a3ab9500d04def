"""With a Triton that has a cache and a mode, and nothing else: tests/gpu/test_cuda_compile.py has the real one."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from threading import Barrier, Thread, current_thread
from types import ModuleType, SimpleNamespace

import pytest
import torch


class FakeMode:
    """triton.AsyncCompileMode."""

    active: FakeMode | None = None

    def __init__(self, executor: None) -> None:
        assert executor is None

    def __enter__(self) -> FakeMode:
        FakeMode.active = self
        return self

    def __exit__(self, *_: object) -> None:
        FakeMode.active = None


class FakeFunction:
    """A JITFunction. compiled: what has been, in order; launched: likewise."""

    def __init__(self, name: str = "kernel", compiler: Callable[[], object] = list) -> None:
        self._name, self._compiler = name, compiler
        self._cache: dict[str, FakeKernel] = {}
        self.compiled: list[str] = []
        self.launched: list[str] = []

    def loaded_by(self, key: str) -> Thread | None:
        return self._cache[key].loaded_by

    def launch(self, key: str) -> None:
        if key not in self._cache:
            assert FakeMode.active is not None, "nothing is left to compile for passes themselves"
            finish = partial(self._cache.__setitem__, key)
            if FakeMode.active.submit(f"{self._name}-{key}", partial(self._compile, key), finish) is None:
                return
        assert self._cache[key].is_loaded
        self.launched.append(key)

    def _compile(self, key: str) -> FakeKernel:
        self._compiler()
        self.compiled.append(key)
        return FakeKernel(key)


class FakeKernel:
    """Of the signature that its key is. loaded_by: the thread that has."""

    def __init__(self, key: str) -> None:
        self.src = SimpleNamespace(signature={"x": key[0], "y": "constexpr"})
        self.loaded_by: Thread | None = None

    @property
    def is_loaded(self) -> bool:
        return self.loaded_by is not None

    @property
    def run(self) -> object:
        self.loaded_by = self.loaded_by or current_thread()
        return self


@pytest.fixture
def make_compiler(monkeypatch):
    """Of a module of its own, since what others have loaded may know the real Triton."""
    triton = ModuleType("triton")
    triton.AsyncCompileMode = FakeMode
    monkeypatch.setitem(sys.modules, "triton", triton)
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    spec = importlib.util.find_spec("inference.runner.compile_ahead")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return lambda threads: module.AheadCompiler(torch.device("cuda"), threads)


def _passes(function, *all_keys):
    def launch_all(keys):
        for key in keys:
            function.launch(key)

    return [lambda keys=keys: launch_all(keys) for keys in all_keys]


def test_what_passes_would_launch_is_compiled_once_and_not_launched(make_compiler):
    function = FakeFunction()
    with ThreadPoolExecutor(4) as threads:
        compiler = make_compiler(threads)
        compiler.begin(_passes(function, "abca", "bd"))
        compiler.wait()
    assert sorted(function.compiled) == ["a", "b", "c", "d"]
    assert function.launched == []


def test_nothing_is_left_to_compile_for_the_passes_themselves(make_compiler):
    function = FakeFunction()
    passes = _passes(function, "ab", "bc")
    with ThreadPoolExecutor(4) as threads:
        compiler = make_compiler(threads)
        compiler.begin(passes)
        compiler.wait()
    for run in passes:
        run()
    assert sorted(function.compiled) == ["a", "b", "c"]
    assert function.launched == ["a", "b", "b", "c"]


def test_kernels_of_one_pass_are_compiled_side_by_side(make_compiler):
    together = Barrier(3)
    function = FakeFunction(compiler=lambda: together.wait(30))
    with ThreadPoolExecutor(3) as threads:
        compiler = make_compiler(threads)
        compiler.begin(_passes(function, "abc"))
        compiler.wait()
    assert sorted(function.compiled) == ["a", "b", "c"]


def test_nothing_is_compiled_before_all_passes_have_been_run(make_compiler):
    function = FakeFunction()
    seen = []
    with ThreadPoolExecutor(1) as threads:
        compiler = make_compiler(threads)
        compiler.begin([*_passes(function, "a"), lambda: seen.append(list(function.compiled))])
        compiler.wait()
    assert seen == [[]]


def test_what_has_begun_does_not_begin_again_and_is_launched_once_it_was_waited_for(make_compiler):
    function = FakeFunction()
    with ThreadPoolExecutor(4) as threads:
        compiler = make_compiler(threads)
        compiler.begin(_passes(function, "ab"))
        compiler.begin(_passes(function, "a"))
        assert function.launched == []
        compiler.wait()
        compiler.begin(_passes(function, "bc"))
        compiler.wait()
    assert sorted(function.compiled) == ["a", "b", "c"]
    assert function.launched == ["b"]


def test_equal_specializations_of_two_functions_are_two_kernels(make_compiler):
    first, second = FakeFunction("first"), FakeFunction("second")
    with ThreadPoolExecutor(4) as threads:
        compiler = make_compiler(threads)
        compiler.begin([*_passes(first, "a"), *_passes(second, "a")])
        compiler.wait()
    assert (first.compiled, second.compiled) == (["a"], ["a"])


def test_what_a_compilation_raises_is_raised_to_who_waits(make_compiler):
    def fail():
        raise RuntimeError("no C compiler")

    function = FakeFunction(compiler=fail)
    with ThreadPoolExecutor(4) as threads:
        compiler = make_compiler(threads)
        compiler.begin(_passes(function, "a"))
        with pytest.raises(RuntimeError, match="no C compiler"):
            compiler.wait()


def test_a_pass_that_fails_leaves_no_mode_behind(make_compiler):
    def fail():
        raise ValueError("a pass")

    with ThreadPoolExecutor(4) as threads, pytest.raises(ValueError, match="a pass"):
        make_compiler(threads).begin([fail])
    assert FakeMode.active is None


def test_a_launcher_that_kernels_share_is_loaded_beside_others_but_once(make_compiler):
    function = FakeFunction()
    keys = ["a", "a2", "a3", "b", "b2", "c"]
    with ThreadPoolExecutor(6) as threads:
        compiler = make_compiler(threads)
        compiler.begin(_passes(function, keys[:4]))
        compiler.begin(_passes(function, keys[4:]))
        compiler.wait()
        elsewhere = [key[0] for key in keys if function.loaded_by(key) is not current_thread()]
        assert sorted(elsewhere) == ["a", "b", "c"]
        compiler.begin(_passes(function, ["c2", "d"]))
        compiler.wait()
    assert function.loaded_by("c2") is current_thread()
    assert function.loaded_by("d") not in (None, current_thread())
