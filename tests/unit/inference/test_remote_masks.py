"""Of a row one mask at a time is made, and what is wanted of it next waits for that."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from inference.mask_ledger import MaskJob
from inference.remote_masks import RemoteMasks
from inference.shared_masks import SharedMasks, word_of


class _Process:
    """Makes a mask when it is told to, or when somebody waits."""

    def __init__(self, shared: SharedMasks) -> None:
        self.shared = shared
        self.begun: list[tuple[MaskJob, int]] = []
        self.finished: list[int] = []
        self.is_dead = False
        self.num_computed, self.seconds, self.num_waits = 0, 0.0, 0

    def begin(self, jobs: Sequence[tuple[MaskJob, int]]) -> None:
        self.begun += jobs

    def make(self) -> None:
        job, serial = self.begun.pop(0)
        self.shared.posted[job.row] = word_of(job.holder, job.position, is_open=False)
        self.finished.append(serial)
        self.num_computed += 1

    def read(self) -> bool:
        return False

    def wait_for_news(self) -> None:
        self.num_waits += 1
        self.make()


class _Rows:
    def __init__(self) -> None:
        self.shared = SharedMasks(3, 64)
        self.process = _Process(self.shared)
        self.masks = RemoteMasks(cast(Any, SimpleNamespace(shared=self.shared, all=[self.process])))

    def want(self, row: int, holder: int, position: int, *, is_open: bool = False) -> None:
        matcher = None if is_open else SimpleNamespace(process=self.process)
        self.masks.post([MaskJob(row, holder, position, cast(Any, matcher))])

    @property
    def begun(self) -> list[tuple[int, int, int]]:
        return [(job.row, job.holder, job.position) for job, _ in self.process.begun]


@pytest.fixture
def rows() -> _Rows:
    return _Rows()


def test_what_lets_everything_through_is_written_here_and_withdrawn_when_a_mask_is_wanted(rows: _Rows) -> None:
    rows.want(1, 4, 8, is_open=True)
    assert rows.shared.posted.tolist() == [0, word_of(4, 8, is_open=True), 0]
    rows.want(1, 4, 8)
    assert rows.shared.posted.tolist() == [0, 0, 0]
    assert rows.begun == [(1, 4, 8)]


@pytest.mark.parametrize("is_open", [False, True])
def test_what_is_wanted_while_a_mask_is_made_waits_for_it_and_the_last_of_it_counts(rows: _Rows, is_open: bool) -> None:
    rows.want(0, 1, 5)
    rows.want(0, 1, 6)
    rows.want(0, 1, 7, is_open=is_open)
    rows.want(2, 1, 9)
    assert rows.begun == [(0, 1, 5), (2, 1, 9)], "others do not wait"
    rows.process.make()
    rows.masks.post([])
    assert rows.process.num_waits == 0
    if is_open:
        assert rows.shared.posted[0] == word_of(1, 7, is_open=True)
    else:
        assert rows.begun == [(2, 1, 9), (0, 1, 7)]


def test_the_next_holder_of_a_row_is_not_left_without_a_mask_until_somebody_asks_again(rows: _Rows) -> None:
    rows.want(0, 1, 5)
    rows.want(0, 2, 30)
    assert rows.process.num_waits == 1
    assert rows.begun == [(0, 2, 30)]
    rows.process.make()
    assert rows.shared.posted[0] == word_of(2, 30, is_open=False)


def test_a_row_whose_process_has_ended_goes_on_without_a_mask(rows: _Rows) -> None:
    rows.want(0, 1, 5)
    rows.process.is_dead = True
    rows.process.finished += [serial for _, serial in rows.process.begun]
    rows.masks.post([])
    assert rows.shared.posted[0] == word_of(1, 5, is_open=True)


def test_a_reset_waits_for_what_is_made(rows: _Rows) -> None:
    rows.want(0, 1, 5)
    rows.want(0, 1, 6)
    rows.masks.reset()
    assert rows.shared.posted.tolist() == [0, 0, 0]
    assert rows.masks.counts == (1, 0.0)
    rows.masks.post([])
    assert rows.begun == []
