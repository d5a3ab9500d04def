"""docs/structured-outputs.md says of every keyword, bound and dialect what the code does."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from inference.grammar import keywords
from inference.grammar.policy import Bounds
from inference.grammar.text_patterns import FORMATS

TEXT = (Path(__file__).parents[4] / "docs" / "structured-outputs.md").read_text()
ROWS = [
    re.findall(r"`([^`]+)`", cells) and (cells, rest)
    for cells, rest in re.findall(r"^\| (`.+?) \| (.*)\|$", TEXT, re.M)
]


def test_every_keyword_has_a_row_that_says_what_becomes_of_it() -> None:
    verdicts: dict[str, str] = {}
    for cells, verdict in ROWS:
        verdicts |= dict.fromkeys(re.findall(r"`([^`]+)`", cells), verdict)
    for word in keywords.ENFORCED:
        assert verdicts[word].startswith("enforced"), word
    for word in keywords.NOT_ENFORCED:
        assert verdicts[word].startswith("accepted but not enforced"), word
    for word in keywords.REFUSED:
        assert verdicts[word].startswith("refused"), word


def test_every_format_and_every_bound_is_named() -> None:
    for name in FORMATS:
        assert f"`{name}`" in TEXT
    for field in fields(Bounds):
        row = next(rest for cells, rest in ROWS if f"`{field.name}`" in cells)
        default = "false" if field.default is False else f"{field.default:,}"
        assert default in row, field.name
