"""Raw model text from `fixtures/parser/`: the same reading at any cut, and no invented or leaked text when cut off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stream_parser import DIALECTS
from stream_parser.dialect import Dialect
from stream_parser.dialects import DETECTION_ORDER
from stream_parser.events import Message
from stream_parser.patterns import plain
from tests.testkit.parser_streams import comparable, cuts, parse_message, tool

FIXTURES = Path(__file__).parents[2] / "fixtures" / "parser"
ARGUMENTS: dict[str, object] = {
    "city": {"type": "string"},
    "n": {"type": "integer"},
    "command": {"type": "string"},
    "flag": {"type": "boolean"},
    "tags": {"type": "array", "items": {"type": "string"}},
}
TOOLS = [
    tool("get_weather", **ARGUMENTS),
    tool("run_shell", **ARGUMENTS),
    tool("ping"),
    tool("search", query={"type": "string"}),
    tool("python", code={"type": "string"}),
]


def load() -> list[Any]:
    found = []
    for path in sorted(FIXTURES.glob("*/cases.jsonl")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
            case = json.loads(line)
            found.append(pytest.param(DIALECTS[path.parent.name], case, id=f"{path.parent.name}-{number}"))
    return found


CASES = load()


def test_every_dialect_has_a_fixture() -> None:
    calling = {dialect.name for dialect in DETECTION_ORDER if dialect.calls or dialect.messages}
    assert {path.parent.name for path in FIXTURES.glob("*/cases.jsonl")} == calling


@pytest.mark.parametrize(("dialect", "case"), CASES)
def test_fixture_reads_the_same_at_every_cut(dialect: Dialect, case: dict[str, Any]) -> None:
    finish, tail = case.get("finish", "stop"), case.get("prompt_tail", "")
    whole = parse_message(dialect, case["text"], TOOLS, finish, tail)

    assert whole.reasoning.strip() == case.get("reasoning", "")
    assert whole.content.strip() == case.get("content", "")
    assert [call.name for call in whole.tool_calls] == [call["name"] for call in case.get("calls", [])]
    for call, wanted in zip(whole.tool_calls, case.get("calls", []), strict=True):
        assert json.loads(call.arguments) == wanted["arguments"]
        assert call.outcome in (wanted.get("outcome", "ok"), wanted.get("outcome", "repaired"))
    for pieces in cuts(case["text"], max_pairs=400):
        assert comparable(parse_message(dialect, pieces, TOOLS, finish, tail)) == comparable(whole)


@pytest.mark.parametrize(("dialect", "case"), CASES)
def test_fixture_cut_off_anywhere_leaks_no_marker_and_completes_nothing(dialect: Dialect, case: dict[str, Any]) -> None:
    text, tail = case["text"], case.get("prompt_tail", "")
    whole = parse_message(dialect, text, TOOLS, case.get("finish", "stop"), tail)
    for end in range(len(text)):
        cut = parse_message(dialect, text[:end], TOOLS, "length", tail)
        assert cut.finish_reason == "length"
        assert not leaks(dialect, cut, whole), (text[:end], cut)
        for call, complete in zip(cut.tool_calls, whole.tool_calls, strict=False):
            if call.outcome == "truncated":
                assert complete.arguments.startswith(call.arguments) or "repaired" in complete.outcome


def leaks(dialect: Dialect, cut: Message, whole: Message) -> bool:
    """Text beyond what the whole answer says holds one of the dialect's call markers."""
    markers = {m for section in dialect.sections for m in (*section.opens, *section.closes)}
    markers |= {m for call in dialect.calls for m in (*call.opens, *call.closes, *call.tails)}
    told = whole.content + whole.reasoning
    return any(plain(m) in cut.content + cut.reasoning and plain(m) not in told for m in markers)
