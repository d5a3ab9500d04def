"""Kernels compiled ahead, by Triton itself: nothing is launched meanwhile, and nothing is compiled after."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import current_thread

import pytest
import torch

pytest.importorskip("triton")

from triton import knobs

from inference.runner.compile_ahead import AheadCompiler
from inference.runner.kernels.elementwise import gated
from inference.runner.kernels.rows import scatter

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.timeout(100),
]


@pytest.fixture
def compiled(monkeypatch):
    """The threads in which Triton compiles from then on."""
    found = []
    monkeypatch.setattr(knobs.compilation, "listener", lambda **_: found.append(current_thread()))
    return found


def test_passes_launch_what_was_compiled_ahead(compiled):
    arena = torch.zeros(64, dtype=torch.int32, device="cuda")
    # Three writes of one word each.
    staged = torch.tensor([3, 0, 10, 1, 5, 11, 1, 7, 12, 1, 41, 42, 43], dtype=torch.int32, device="cuda")
    pairs = torch.ones(3, 128, dtype=torch.float64, device="cuda")  # no model's dtype: nobody has compiled it before
    seen = []
    passes = [lambda: scatter(arena, staged, 3), lambda: seen.append(gated(pairs))]
    with ThreadPoolExecutor() as threads:
        compiler = AheadCompiler(arena.device, threads)
        compiler.begin(passes)
        compiler.wait()
    assert compiled
    assert current_thread() not in compiled
    compiled.clear()

    for run in passes:
        run()
    assert compiled == []
    assert arena[[0, 5, 7]].tolist() == [41, 42, 43]
    expected = torch.nn.functional.silu(torch.ones(3, 64, device="cuda"))
    torch.testing.assert_close(seen[-1].float(), expected, rtol=1e-4, atol=1e-4)
