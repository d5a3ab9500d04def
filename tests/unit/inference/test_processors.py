"""One number for the threads that compute masks and the replicas that keep them busy."""

from __future__ import annotations

import os

import pytest

from inference.grammar.compile import GrammarCompiler
from inference.processors import num_grammar_processes, num_mask_threads, num_processors
from tests.testkit.grammar_kit import schema_source, vocabulary


@pytest.mark.parametrize(
    ("count", "num_threads", "num_processes"),
    [(1, 1, 0), (2, 1, 0), (4, 2, 1), (10, 8, 2), (16, 14, 4), (64, 16, 4)],
)
def test_two_processors_are_left_to_threads_and_three_of_four_to_processes_up_to_what_is_enough(
    count: int, num_threads: int, num_processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(count)))
    assert num_mask_threads() == num_threads
    assert num_grammar_processes() == num_processes


def test_where_processors_cannot_be_bounded_all_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    for count in (None, 8):
        monkeypatch.setattr(os, "cpu_count", lambda count=count: count)
        assert num_processors() == (count or 1)


def test_a_grammar_has_as_many_replicas_as_masks_have_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(5)))
    own, source = GrammarCompiler(vocabulary()), schema_source({"type": "string"})
    rows = [own.matcher(source) for _ in range(5)]
    own._replica_thread.submit(int).result(20)  # behind the replicas that are wanted
    assert own._compiled(source).num_replicas == num_mask_threads() == 3
    assert len(rows) == 5
    own.close()
