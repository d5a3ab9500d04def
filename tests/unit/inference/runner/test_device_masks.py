"""What is posted with the masks of a device's rows. On the CPU: pinned memory is the same to it."""

from __future__ import annotations

import numpy as np
import torch

from inference.mask_ledger import MaskJob
from inference.runner.device_masks import DeviceMasks
from tests.testkit.matchers import RandomMatcher

HOLDER = 3


def _word(position: int) -> int:
    return HOLDER << 32 | position << 1


def test_masks_are_there_when_the_call_returns_and_what_lets_everything_through_says_so() -> None:
    masks = DeviceMasks(4, 64, torch.device("cpu"))
    jobs = [MaskJob(row, HOLDER, 0, RandomMatcher(row, 50, 64)) for row in (0, 2, 3)]
    masks.post([*jobs, MaskJob(1, 4, 8, None)])
    assert masks.posted.tolist() == [_word(0), 4 << 32 | 8 << 1 | 1, _word(0), _word(0)]
    for job in jobs:
        expected = np.zeros(2, np.int32)
        assert job.matcher is not None
        job.matcher.mask(expected)
        assert masks.words[job.row].tolist() == expected.tolist()
    assert masks.counts[0] == 3
    assert masks.counts[1] > 0
    masks.reset()
    assert masks.posted.tolist() == [0, 0, 0, 0]
    masks.close()


def test_what_let_everything_through_is_withdrawn_before_the_mask_for_a_second_draw_is_there() -> None:
    masks = DeviceMasks(1, 64, torch.device("cpu"))
    seen = []

    class Watching(RandomMatcher):
        def mask(self, out: np.ndarray) -> bool:
            seen.append(masks.posted.tolist())
            return super().mask(out)

    masks.post([MaskJob(0, HOLDER, 8, None)])
    masks.post([MaskJob(0, HOLDER, 8, Watching(1, 50, 64))])
    assert seen == [[0]]
    assert masks.posted.tolist() == [_word(8)]
