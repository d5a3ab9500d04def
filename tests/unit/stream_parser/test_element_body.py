"""Nested elements (E): objects, arrays and text by the schema, streamed where they can only be text."""

from __future__ import annotations

import pytest

from stream_parser import StreamParser
from stream_parser.element_body import MAX_DEPTH
from stream_parser.events import ToolCallDelta
from tests.testkit.parser_streams import parse_message, tool
from tests.testkit.parser_tools import TOOLS, calls, endings, read

N = "]<]minimax[>["


def invoke(body: str, name: str = "put_note", closed: str = f"{N}</invoke>\n{N}</tool_call>") -> str:
    return f'{N}<tool_call>\n{N}<invoke name="{name}">' + body.replace("<", f"{N}<") + closed


def arguments(body: str) -> object:
    (_, found), *rest = calls(read("minimax_m3", invoke(body)))
    assert not rest
    return found


def test_text_streams_where_the_schema_says_string() -> None:
    parser = StreamParser("minimax_m3", TOOLS)
    parser.feed(invoke("<text>ab", closed=""))
    assert parser.feed("cd") == [ToolCallDelta(0, "cd")]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("", {}),
        ("<text>a\n ]b[</text>", {"text": "a\n ]b["}),
        ("<level>3</level>\n<urgent>true</urgent>", {"level": 3, "urgent": True}),
        ("<tags><item>a</item><item>b</item></tags>", {"tags": ["a", "b"]}),
        ("<tags><item>a</item></tags>", {"tags": ["a"]}),
        ("<tags><other>a</other></tags>", {"tags": ["a"]}),
        ("<tags></tags>", {"tags": []}),
        ("<tags>a</tags><tags>b</tags>", {"tags": ["a", "b"]}),
        ("<tags>a</tags><level>1</level>", {"tags": ["a"], "level": 1}),
        ('<tags>["a", "b"]</tags>', {"tags": ["a", "b"]}),
        ("<meta></meta>", {"meta": {}}),
        ("<meta><depth>2</depth></meta>", {"meta": {"depth": 2}}),
        ("<meta><items>1</items><items>2</items></meta>", {"meta": {"items": [1, 2]}}),
        ("<meta><x>1</x><x>2</x></meta>", {"meta": {"x": [1, 2]}}),
        ("<meta>so <depth>2</depth></meta>", {"meta": {"depth": 2, "$text": "so "}}),
        ("<new><item>1</item><item>b</item></new>", {"new": [1, "b"]}),
        ("<new><a>1</a></new>", {"new": {"a": 1}}),
        ("<new>text</new>", {"new": "text"}),
        ("<owner>null</owner>", {"owner": None}),
        ("<owner></owner>", {"owner": ""}),
    ],
)
def test_elements_become_what_the_schema_says(body: str, expected: object) -> None:
    assert arguments(body) == expected


def test_elements_of_an_unknown_tool_are_read_by_their_looks() -> None:
    message = read("minimax_m3", invoke("<a><item>1</item></a><b>x</b><b>y</b>", name="nobody"))
    assert message.tool_calls[0].arguments == '{"a": [1], "b": "x", "b": "y"}'


def test_tags_inside_a_text_are_text() -> None:
    assert arguments("<text>a<b>c</b>d</text>") == {"text": f"a{N}<b>cd"}


def test_closing_tag_of_nothing_is_passed_over() -> None:
    assert arguments("<level>3</x></level>") == {"level": 3}


def test_call_ends_inside_an_element_that_was_not_closed() -> None:
    message = read("minimax_m3", invoke("<meta><depth>2"))
    assert calls(message) == [("put_note", {"meta": {"depth": 2}})]
    assert endings(message) == [("repaired", "unclosed_value")]


@pytest.mark.parametrize("held", ["", N[:5], f"{N}</te"])
def test_end_of_the_turn_closes_elements_and_a_cut_does_not(held: str) -> None:
    text = invoke("<text>abc", closed="") + held
    stopped, cut = read("minimax_m3", text), read("minimax_m3", text, "length")
    assert calls(stopped) == [("put_note", {"text": "abc"})]
    assert endings(stopped) == [("repaired", "unclosed_value,unclosed_call")]
    assert stopped.content == ""
    assert cut.tool_calls[0].arguments == '{"text": "abc'
    assert endings(read("minimax_m3", invoke("", closed=""), "length")) == []


def test_turn_may_end_between_elements() -> None:
    message = read("minimax_m3", invoke("<level>3</level>", closed=""))
    assert calls(message) == [("put_note", {"level": 3})]
    assert endings(message) == [("repaired", "unclosed_call")]


def test_bracket_that_begins_no_tag_is_text() -> None:
    assert arguments("<text>a]]b]</text>") == {"text": "a]]b]"}


def test_nesting_without_end_is_bounded() -> None:
    depth = 5 * MAX_DEPTH
    body = invoke("<meta>" + "<a>" * depth + "x" + "</a>" * depth + "</meta>")
    message = parse_message("minimax_m3", body, [tool("put_note", meta={"type": "object"})])
    assert message.tool_calls[0].outcome in ("ok", "repaired", "invalid")
