import threading

import pytest
import torch

from inference.runner.warm_up import warm_up_device


def test_warming_up_a_device_that_is_not_there_raises_nothing(monkeypatch):
    raised = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    if torch.cuda.is_available():
        pytest.skip("there is one")
    warm_up_device().join(30)
    assert raised == []


@pytest.mark.gpu
def test_a_device_is_in_use_once_it_is_warm():
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    warm_up_device().join(60)
    assert torch.cuda.is_initialized()


@pytest.mark.gpu
def test_a_warm_device_has_launched_a_kernel(monkeypatch):
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    from triton import knobs

    from inference.runner.kernels.rows import scatter

    warm_up_device().join(60)
    compiled = []
    monkeypatch.setattr(knobs.runtime, "jit_cache_hook", lambda **told: compiled.append(told["repr"]))
    nothing = torch.zeros(64, dtype=torch.int32, device="cuda")
    scatter(nothing, nothing, 1)
    assert compiled == []
