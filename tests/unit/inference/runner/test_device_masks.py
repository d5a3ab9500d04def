"""Masks that a device may look at while they are computed. Here the device is the CPU, and only reads what is posted."""

import threading

import numpy as np
import pytest
import torch

from inference.mask_ledger import MaskJob
from inference.runner.device_masks import DeviceMasks


class _Gated:
    """A mask that is there once the gate is open."""

    def __init__(self, *, may_take_long: bool) -> None:
        self.mask_may_take_long = may_take_long
        self.gate = threading.Event()

    def mask(self, out: np.ndarray) -> bool:
        assert self.gate.wait(10)
        out[:] = 5
        return True


@pytest.mark.parametrize("may_take_long", [False, True])
def test_what_let_everything_through_is_withdrawn_before_the_mask_for_a_second_draw_is_there(may_take_long):
    masks = DeviceMasks(2, 64, torch.device("cpu"), num_threads=1)
    masks.post([MaskJob(0, 3, 8, None), MaskJob(1, 4, 8, None)])
    assert masks.posted.tolist() == [3 << 32 | 8 << 1 | 1, 4 << 32 | 8 << 1 | 1]
    matcher = _Gated(may_take_long=may_take_long)
    masks.post([MaskJob(0, 3, 8, matcher)])
    assert masks.posted.tolist() == [0, 4 << 32 | 8 << 1 | 1]
    matcher.gate.set()
    masks.settle()
    assert masks.posted.tolist() == [3 << 32 | 8 << 1, 4 << 32 | 8 << 1 | 1]
    assert masks.words[0].tolist() == [5, 5]
    masks.close()
