"""Chunk streams of misbehaving providers, one a line of `fixtures/parser/upstream/*.jsonl`, and what they mean."""

import json
from pathlib import Path

import pytest

from stream_parser import UpstreamNormalizer, collect
from tests.testkit.parser_streams import check_promises

FIXTURES = Path(__file__).parents[2] / "fixtures" / "parser" / "upstream"
CASES = [
    pytest.param(json.loads(line), id=f"{file.stem}-{json.loads(line)['id']}")
    for file in sorted(FIXTURES.glob("*.jsonl"))
    for line in file.read_text().splitlines()
]


@pytest.mark.parametrize("case", CASES)
def test_a_chunk_stream_has_its_one_meaning(case):
    normalizer = UpstreamNormalizer(case["tools"], case.get("content_dialect"))
    events = []
    for chunk in case["chunks"]:
        events += normalizer.feed(chunk)
    events += normalizer.finish(done=case["done"])

    check_promises(events)
    message, expect = collect(events), case["expect"]
    assert (message.reasoning, message.content) == (expect["reasoning"], expect["content"])
    assert message.finish_reason == expect["finish"]
    assert [call.name for call in message.tool_calls] == [call["name"] for call in expect["calls"]]
    for call, expected in zip(message.tool_calls, expect["calls"], strict=True):
        if "partial" in expected:
            assert (call.arguments, call.outcome) == (expected["partial"], "truncated")
            continue
        assert json.loads(call.arguments) == expected["arguments"]
        assert call.outcome == ("repaired" if call.reason else "ok")
        assert call.reason.split(",")[0] == expected.get("reason", call.reason.split(",")[0])
        assert call.id == expected.get("id", call.id)


def test_there_are_cases_of_every_kind():
    assert {file.stem for file in FIXTURES.glob("*.jsonl")} == {
        "arguments", "ends", "fields", "names", "recovered", "routing",
    }  # fmt: skip
    assert len(CASES) > 90
