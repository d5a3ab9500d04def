"""Formats as grammars write them: what usual types hold."""

from __future__ import annotations

import pytest

from inference.grammar.text_patterns import FORMATS
from inference.grammar.text_sets import text_set


@pytest.mark.parametrize("text", ["P999999Y999999M99999999DT999999999H999999999M999999999S", "P9999999W", "PT0S"])
def test_a_duration_is_one_that_a_timedelta_holds(text: str) -> None:
    assert text in text_set(FORMATS["duration"])


@pytest.mark.parametrize("text", ["P9999999Y", "P99999999W", "P999999999D", "P", "PT", "3D", "P1D1M"])
def test_longer_durations_are_not_written(text: str) -> None:
    assert text not in text_set(FORMATS["duration"])
