"""When the masks of a device's rows are there, and who waits for them. On the CPU: pinned memory is the same to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from inference.mask_ledger import MaskJob
from inference.runner import device_masks
from inference.runner.device_masks import DeviceMasks
from tests.testkit.matchers import RandomMatcher

HOLDER = 3


class Gated(RandomMatcher):
    """Its mask comes when the gate is open."""

    def __init__(self, *, mask_may_take_long: bool) -> None:
        super().__init__(1, 50, 64)
        self.gate = threading.Event()
        self.mask_may_take_long = mask_may_take_long

    def mask(self, out: np.ndarray) -> bool:
        assert self.gate.wait(20)
        return super().mask(out)


@pytest.fixture
def masks() -> Iterator[DeviceMasks]:
    found = DeviceMasks(4, 64, torch.device("cpu"), num_threads=1)
    yield found
    found.close()


def _word(position: int) -> int:
    return HOLDER << 32 | position << 1


def _quick(row: int, *, is_awaited: bool = True) -> MaskJob:
    return MaskJob(row, HOLDER, 0, RandomMatcher(row, 50, 64), is_awaited)


def test_quick_masks_that_are_awaited_are_there_when_the_call_returns(
    masks: DeviceMasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_masks, "_GIVE_WAY_S", 20)
    jobs = [_quick(row) for row in (0, 2, 3)]
    masks.post(jobs)
    assert masks.posted.tolist() == [_word(0), 0, _word(0), _word(0)]
    for job in jobs:
        expected = np.zeros(2, np.int32)
        assert job.matcher is not None
        job.matcher.mask(expected)
        assert masks.words[job.row].tolist() == expected.tolist()


def test_what_nobody_awaits_and_what_may_take_long_is_not_waited_for(
    masks: DeviceMasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_masks, "_GIVE_WAY_S", 20)
    unhurried, slow = Gated(mask_may_take_long=False), Gated(mask_may_take_long=True)
    started = time.monotonic()
    masks.post([MaskJob(0, HOLDER, 0, unhurried)])
    masks.post([MaskJob(1, HOLDER, 0, slow, is_awaited=True)])
    assert time.monotonic() - started < 10
    assert masks.posted.tolist() == [0, 0, 0, 0]
    unhurried.gate.set()
    slow.gate.set()
    masks.settle()
    assert masks.posted.tolist() == [_word(0), _word(0), 0, 0]


def test_a_mask_that_was_thought_to_be_quick_is_waited_for_a_moment_only(masks: DeviceMasks) -> None:
    wrong = Gated(mask_may_take_long=False)
    masks.post([MaskJob(0, HOLDER, 0, wrong, is_awaited=True), _quick(1)])
    assert masks.posted.tolist() == [0, 0, 0, 0]
    wrong.gate.set()
    masks.settle()
    assert masks.posted.tolist() == [_word(0), _word(0), 0, 0]


def test_a_row_whose_mask_cannot_be_computed_goes_on_without(
    masks: DeviceMasks, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(device_masks, "_GIVE_WAY_S", 20)

    def fail(*_: object) -> list[bool]:
        raise RuntimeError("no masks today")

    masks.together = fail
    masks.post([_quick(1)])
    assert masks.posted.tolist() == [0, _word(0) | 1, 0, 0]
    assert "masks could not be computed" in caplog.text


@pytest.mark.parametrize("may_take_long", [False, True])
def test_what_let_everything_through_is_withdrawn_before_the_mask_for_a_second_draw_is_there(
    masks: DeviceMasks, may_take_long: bool
) -> None:
    masks.post([MaskJob(0, HOLDER, 8, None), MaskJob(1, 4, 8, None)])
    assert masks.posted.tolist() == [_word(8) | 1, 4 << 32 | 8 << 1 | 1, 0, 0]
    matcher = Gated(mask_may_take_long=may_take_long)
    masks.post([MaskJob(0, HOLDER, 8, matcher)])
    assert masks.posted.tolist() == [0, 4 << 32 | 8 << 1 | 1, 0, 0]
    matcher.gate.set()
    masks.settle()
    assert masks.posted.tolist() == [_word(8), 4 << 32 | 8 << 1 | 1, 0, 0]


class Watching(RandomMatcher):
    """Notes what had been posted whenever somebody asked whether its mask is there."""

    def __init__(self, row: int, masks: DeviceMasks) -> None:
        super().__init__(row, 50, 64)
        self._masks = masks
        self.seen: list[list[int]] = []

    @property
    def has_mask(self) -> bool:
        self.seen.append(self._masks.posted.tolist())
        return super().has_mask


def test_all_rows_of_a_batch_are_posted_before_any_of_its_masks_is_looked_at(masks: DeviceMasks) -> None:
    matchers = [Watching(row, masks) for row in range(4)]
    masks.post([MaskJob(row, HOLDER, 0, matcher, is_awaited=True) for row, matcher in enumerate(matchers)])
    masks.settle()
    assert [matcher.seen for matcher in matchers] == [[[_word(0)] * 4]] * 4


@pytest.mark.parametrize("may_take_long", [False, True])
def test_a_mask_that_comes_when_its_row_is_anothers_leaves_the_row_alone(
    masks: DeviceMasks, may_take_long: bool
) -> None:
    late, other = Gated(mask_may_take_long=may_take_long), _quick(1, is_awaited=False)
    masks.post([MaskJob(0, HOLDER, 8, late), other])
    masks.post([MaskJob(0, HOLDER + 1, 0, None)])
    late.gate.set()
    masks.settle()
    assert masks.posted.tolist() == [HOLDER + 1 << 32 | 1, _word(0), 0, 0]
    assert not masks.words[0].any()
    assert masks.words[1].any()
    assert masks.num_computed == 2
