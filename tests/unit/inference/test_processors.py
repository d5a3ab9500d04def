"""How many processes follow constrained rows on how large a machine."""

from __future__ import annotations

import os

import pytest

from inference.processors import num_grammar_processes, num_processors


@pytest.mark.parametrize(("count", "num_processes"), [(1, 1), (2, 1), (4, 1), (8, 3), (10, 3), (16, 6), (64, 6)])
def test_three_of_eight_processors_are_grammar_processes_up_to_what_is_enough(
    count: int, num_processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(count)))
    assert num_grammar_processes() == num_processes


def test_where_processors_cannot_be_bounded_all_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    for count in (None, 8):
        monkeypatch.setattr(os, "cpu_count", lambda count=count: count)
        assert num_processors() == (count or 1)
