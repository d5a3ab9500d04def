"""The page on repairs and the code say the same."""

import re
from pathlib import Path

import pytest

from stream_parser.json_scanner import JsonScanner
from stream_parser.references import References
from stream_parser.repair import REASONS
from stream_parser.schema import TypeSet
from tests.testkit.scanning import scan_all_ways

PAGE = (Path(__file__).parents[3] / "docs" / "repair.md").read_text()
EXAMPLES = re.findall(r"^\| `(\w+)` \| ` ?(.+?) ?` \| `(.+?)` \|$", PAGE, re.MULTILINE)
SCHEMA = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "on": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "opts": {"type": "object", "properties": {"n": {"type": "integer"}}},
    },
}


@pytest.mark.parametrize(("reason", "before", "after"), EXAMPLES)
def test_an_example_of_the_page_is_true(reason, before, after):
    types = TypeSet(SCHEMA, References(SCHEMA)) if reason == "coerced_type" else None
    result = scan_all_ways(lambda: JsonScanner(types=types), before)
    assert result.text == after
    assert reason in result.reasons


def test_the_page_names_every_reason_and_no_other():
    assert (
        set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) - {"ok", "repaired", "invalid", "truncated"} == REASONS
    )


def test_reasons_are_words_that_can_be_joined_by_commas():
    assert all(re.fullmatch("[a-z_]+", reason) for reason in REASONS)


def test_there_are_examples():
    assert len(EXAMPLES) > 30
