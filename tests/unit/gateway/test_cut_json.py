import json

import pytest

from gateway.protocols.anthropic_messages import tool_input
from gateway.protocols.cut_json import without_open_member


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"city": "Os', {"city": "Os"}),
        ('{"city": "Oslo", "days": ', {"city": "Oslo"}),
        ('{"city": "Oslo", "days":', {"city": "Oslo"}),
        ('{"city": "Oslo", "da', {"city": "Oslo"}),
        ('{"city": "Oslo", "days"', {"city": "Oslo"}),
        ('{"city": "Oslo", ', {"city": "Oslo"}),
        ('{"ci', {}),
        ("{", {}),
        ('{"a": [1, 2', {"a": [1, 2]}),
        ('{"a": ["x", "y', {"a": ["x", "y"]}),
        ('{"a": [{"b": 1}, {"c": ', {"a": [{"b": 1}, {}]}),
        ('{"a": {"b": ', {"a": {}}),
        ('{"a": {"b": 1}, "c', {"a": {"b": 1}}),
        ('{"n": 12', {"n": 12}),
        ('{"t": tr', {}),
        ('{"s": "x", "t": true', {"s": "x", "t": True}),
        ('{"quote": "he said \\"no\\", \\"', {"quote": 'he said "no", "'}),
        ('{"brace": "{\\"k\\": ', {"brace": '{"k": '}),
    ],
)
def test_a_cut_call_has_what_was_written_and_nothing_that_was_not(text, value):
    assert tool_input(text) == value


def test_whole_text_stays_as_it_is():
    for value in ({"a": [1, {"b": None}], "c": "d, \"e\": "}, {}, {"x": [[], {}, True, -1.5e3]}):
        text = json.dumps(value)
        assert without_open_member(text) == text


@pytest.mark.parametrize("size", range(1, 60))
def test_every_beginning_of_a_call_gives_members_that_the_whole_one_has(size):
    value = {"path": "/tmp/x", "lines": [1, 22], "deep": {"ok": True, "no": None}}
    got = tool_input(json.dumps(value)[:size])
    assert set(got) <= set(value)
    assert value["path"].startswith(got.get("path", ""))
    assert set(got.get("deep", {})) <= {"ok", "no"}
    assert got.get("deep", {}).get("ok", True) is True
