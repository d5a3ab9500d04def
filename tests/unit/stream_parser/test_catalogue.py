"""The page about dialects says what the declarations say, and its worked example works."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from stream_parser import DIALECTS
from stream_parser import catalogue as catalogue_module
from stream_parser.catalogue import catalogue, describe
from stream_parser.dialect import Dialect
from stream_parser.dialects import DETECTION_ORDER
from tests.testkit.parser_tools import calls, read

DOCS = Path(__file__).parents[3] / "docs"


def test_page_is_printed_from_the_declarations() -> None:
    assert (DOCS / "dialects.md").read_text(encoding="utf-8") == catalogue(), "run python -m stream_parser.catalogue"


def test_the_module_prints_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert catalogue_module.__file__ is not None
    runpy.run_path(catalogue_module.__file__, run_name="__main__")
    assert capsys.readouterr().out == catalogue()


@pytest.mark.parametrize("dialect", DETECTION_ORDER, ids=lambda d: d.name)
def test_every_dialect_can_be_described(dialect: Dialect) -> None:
    text = describe(dialect)
    assert text.startswith(dialect.name)
    assert all(family in text for family in dialect.families)


def test_description_tells_markers_and_names() -> None:
    text = describe(DIALECTS["glm47"])
    assert "<think> … </think>" in text
    assert "glm5" in text
    assert "<arg_key>city</arg_key>" in text


def test_worked_example_of_a_new_dialect_works() -> None:
    page = (DOCS / "adding-a-dialect.md").read_text(encoding="utf-8")
    code = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    (text,) = re.findall(r"```text\n(.*?)\n```", page, re.DOTALL)
    scope: dict[str, object] = {}
    exec(code, scope)
    dialect = scope["HERON"]
    assert isinstance(dialect, Dialect)
    message = read(dialect, text)
    assert message.reasoning == "The host answers to ping."
    assert calls(message) == [("ping", {"host": "db-1"}), ("put_note", {"text": "checked", "level": 2})]
