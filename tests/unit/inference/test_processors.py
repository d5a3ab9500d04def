"""One number for the threads that compute masks and the replicas that keep them busy."""

from __future__ import annotations

import os

import pytest

from inference.grammar.compile import GrammarCompiler
from inference.processors import num_mask_threads
from tests.testkit.grammar_kit import schema_source, vocabulary


@pytest.mark.parametrize(("num_processors", "expected"), [(None, 1), (1, 1), (2, 1), (4, 2), (10, 8), (64, 16)])
def test_two_processors_are_left_and_sixteen_are_enough(
    num_processors: int | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: num_processors)
    assert num_mask_threads() == expected


def test_a_grammar_has_as_many_replicas_as_masks_have_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 5)
    own, source = GrammarCompiler(vocabulary()), schema_source({"type": "string"})
    rows = [own.matcher(source) for _ in range(5)]
    own._replica_thread.submit(int).result(20)  # behind the replicas that are wanted
    assert own._compiled(source).num_replicas == num_mask_threads() == 3
    assert len(rows) == 5
    own.close()
