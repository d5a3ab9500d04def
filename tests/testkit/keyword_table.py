"""The table of JSON Schema's keywords in docs/structured-outputs.md, from fixtures/json_schema/keywords.json.

    python -m tests.testkit.keyword_table    # writes it into the page
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "fixtures" / "json_schema"
PAGE = ROOT / "docs" / "structured-outputs.md"
# The cases beside the table.
CASES: list[tuple[str, dict[str, Any]]] = [
    (f"{file.stem}: {case['about']}", case)
    for file in sorted(FOLDER.glob("*.json"))
    if file.stem != "keywords"
    for case in json.loads(file.read_text(encoding="utf-8"))
]
ROWS: list[dict[str, Any]] = json.loads((FOLDER / "keywords.json").read_text(encoding="utf-8"))
_TABLE = re.compile(r"(?<=\n)\| keyword \|.*?\n(?=\n)", re.DOTALL)


def table() -> str:
    lines = ["| keyword | | |", "|---|---|---|"]
    for row in ROWS:
        names = ", ".join(f"`{name}`" for name in row["keywords"])
        lines.append(f"| {names} | {row['verdict']} | {row['note']} |".replace("|  |", "| |"))
    return "\n".join(lines) + "\n"


def verdicts() -> dict[str, str]:
    return {name: row["verdict"] for row in ROWS for name in row["keywords"]}


def page_with_table(text: str) -> str:
    assert len(_TABLE.findall(text)) == 1
    return _TABLE.sub(lambda _: table(), text)


if __name__ == "__main__":
    PAGE.write_text(page_with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
