"""The pages on dialects, in their details: every name, every recovery, every example."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from stream_parser import DIALECTS
from stream_parser.dialect import USUAL, ByFirstChar, Recovery, SimpleBody
from stream_parser.dialects import DETECTION_ORDER

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "dialects.md").read_text(encoding="utf-8")
GUIDE = (DOCS / "adding-a-dialect.md").read_text(encoding="utf-8")
ROWS = [row for row in re.findall(r"^\| (.*) \|$", PAGE, re.MULTILINE) if row.startswith("`")]
EXAMPLES = re.findall(r"^```python\n(.+?)^```$", GUIDE, re.DOTALL | re.MULTILINE)


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row)]


def test_every_name_that_is_understood_stands_in_the_table_once() -> None:
    assert len(ROWS) == len(DETECTION_ORDER)
    named = [name for row in ROWS for cell in (cells(row)[0], cells(row)[-1]) for name in re.findall("`([^`]+)`", cell)]
    assert sorted(named) == sorted(DIALECTS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("`")[1])
def test_row_has_all_cells_and_shows_the_call_as_it_is_declared(row: str) -> None:
    name, models, call, _, recovers, _ = cells(row)
    dialect = DIALECTS[name.strip("`")]
    assert models == ", ".join(dialect.families)
    # What Markdown makes of a code span in a table: fences gone, pipes free, all else verbatim.
    fence = re.match("`+", call)
    assert fence is not None
    inside = call.removeprefix(fence[0]).removesuffix(fence[0])
    assert fence[0] not in inside
    assert inside.replace("\\|", "|").strip() == dialect.syntax.strip()
    assert dialect.recovery - USUAL <= set(re.findall(r"`(\w+)`", recovers)) <= dialect.recovery


def test_the_page_explains_every_recovery() -> None:
    assert set(re.findall(r"^\* `(\w+)`: ", PAGE, re.MULTILINE)) == set(get_args(Recovery))


def test_the_guide_names_every_kind_of_body() -> None:
    for kind in (*get_args(SimpleBody), ByFirstChar):
        assert f"`{kind.__name__}`" in GUIDE


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_guides_examples_run(example: str) -> None:
    exec(compile(example, "adding-a-dialect.md", "exec"), {})


def test_the_guide_declares_a_dialect_in_its_promised_length_and_checks_an_import() -> None:
    declaration, imported = EXAMPLES
    (lines,) = re.findall(r"^\w+ = Dialect\(\n.+?^\)$", declaration, re.DOTALL | re.MULTILINE)
    assert 10 <= len(lines.splitlines()) <= 30
    assert "response_template=" in imported
    assert imported.count("assert ") == 2
