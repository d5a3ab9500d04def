"""Objects that name their own tool (J): alone, in arrays, one after another, whole, damaged and cut."""

from __future__ import annotations

import pytest

from stream_parser import StreamParser, collect
from tests.testkit.parser_streams import parse_message, tool
from tests.testkit.parser_tools import TOOLS, calls, endings, read

PING = ("ping", {"host": "db"})
BARE = ("bare", {})


def tagged(body: str) -> str:
    return f"<tool_call>{body}</tool_call>"


@pytest.mark.parametrize(
    "body",
    [
        '{"name": "ping", "arguments": {"host": "db"}}',
        '{"arguments": {"host": "db"}, "name": "ping"}',
        '{"function": {"name": "ping", "arguments": {"host": "db"}}}',
        '{"type": "function", "function": {"arguments": {"host": "db"}, "name": "ping"}, "index": 0}',
        '{"function": "ping", "arguments": {"host": "db"}}',
        '{"id": "a", "extra": [1, {"name": "x"}], "name": "ping", "arguments": {"host": "db"}, "more": null}',
        "{'name': 'ping', 'arguments': {\"host\": \"db\"}}",
        '{name: "ping", arguments: {"host": "db"}}',
        '  [ {"name": "ping", "arguments": {"host": "db"}} ] ',
        '{"name": " ping ", "arguments": {"host": "db"}}',
        '{"na\\u006de": "pi\\u006eg", "arguments": {"host": "db"}}',
        '{"name": "ping", "name": "bare", "arguments": {"host": "db"}, "arguments": {}}',
    ],
)
def test_every_spelling_of_one_call_is_that_call(body: str) -> None:
    message = read("hermes", tagged(body))
    assert calls(message) == [PING]
    assert endings(message) == [("ok", "")]
    assert message.content == ""


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('{"name": "ping", "parameters": {"host": "db"}}', "alias_key"),
        ('{"args": {"host": "db"}, "name": "ping"}', "alias_key"),
        ('{"name": "ping", "arguments": {"host": "db"', "missing_closer,unclosed_call"),
        ('{"name": "ping", "arguments": {"host": "db"}', "unclosed_call"),
        ('{"name": "ping", "arguments": "{\\"host\\": \\"db\\"}"}', "double_encoded"),
        ('{"name": "ping", "arguments": {"host": "db"}, oops', "unclosed_call"),
        ('[{"name": "ping", "arguments": {"host": "db"}', "unclosed_call"),
    ],
)
def test_damage_around_the_arguments_is_repaired_and_named(body: str, reason: str) -> None:
    for text in (tagged(body), f"<tool_call>{body}"):
        message = read("hermes", text)
        assert calls(message) == [PING]
        assert endings(message) == [("repaired", reason)]


def test_array_whose_object_lacks_its_brace_still_ends() -> None:
    message = read("hermes", tagged('[{"name": "ping", "arguments": {"host": "db"}]'))
    assert calls(message) == [PING]


@pytest.mark.parametrize("between", ["", "\n", ", ", ";"])
def test_objects_one_after_another_are_calls_of_their_own(between: str) -> None:
    body = '{"name": "ping", "arguments": {"host": "db"}}' + between + '{"name": "bare", "arguments": {}}'
    assert calls(read("hermes", tagged(body))) == [PING, BARE]


def test_call_without_arguments_has_an_empty_object() -> None:
    assert calls(read("hermes", tagged('{"name": "bare"}'))) == [BARE]
    assert calls(read("hermes", tagged('{"name": "bare", "arguments": null}'))) == [BARE]


def test_entries_that_are_no_calls_are_passed_over_in_an_array_of_calls() -> None:
    body = '[{"name": "bare", "arguments": {}}, {"note": 1}, {"name": "ping", "arguments": {"host": "db"}}]'
    assert calls(read("hermes", tagged(body))) == [BARE, PING]


@pytest.mark.parametrize(
    "body",
    [
        "{}",
        "{not json}",
        '{"a": 1}',
        "[]",
        "[1]",
        "{",
        '{"name": 5}',
        '{"name": "' + "x" * 400 + '"}',
        '{"name": "a\nb',
        "[[{",
    ],
)
def test_what_names_no_tool_is_text(body: str) -> None:
    assert read("hermes", f"See {tagged(body)} there").content == f"See {tagged(body)} there"


def test_empty_name_is_no_name_and_a_later_one_counts() -> None:
    assert read("hermes", tagged('{"name": "", "arguments": {}}')).content == tagged('{"name": "", "arguments": {}}')
    assert calls(read("hermes", tagged('{"name": "", "name": "bare", "arguments": {}}'))) == [BARE]


def test_marker_behind_arguments_without_a_name_makes_all_of_it_text() -> None:
    text = '<tool_call>{"arguments": {"a": 1 <tool_call>{"name": "bare", "arguments": {}}</tool_call>'
    assert calls(read("hermes", text)) == [BARE]


def test_sign_that_begins_no_marker_between_members_is_passed_over() -> None:
    assert calls(read("hermes", tagged('{"name": "bare", <x "arguments": {}}'))) == [BARE]
    assert calls(read("hermes", tagged('{"name": "ping", "arguments": {"host": <db}}')))[0][0] == "ping"


def test_unmarked_object_with_a_required_argument_missing_is_text() -> None:
    parser = StreamParser("llama3_json", [tool("need", ["a"], a={"type": "string"})])
    events = parser.feed('{"name": "need"}') + parser.finish("stop")
    assert collect(events).content == '{"name": "need"}'


def test_broken_escape_in_a_name_is_kept_as_it_is() -> None:
    assert read("hermes", tagged('{"name": "p\\x", "arguments": {}}')).tool_calls[0].name == "p\\x"


@pytest.mark.parametrize("rest", ['{"note"', '{"note', '{"note", ', '{"note": 1', '{"no</to'])
def test_entry_that_is_no_call_may_lack_its_end(rest: str) -> None:
    message = read("hermes", tagged('[{"name": "bare", "arguments": {}}, ' + rest) + " x")
    assert calls(message) == [BARE]
    assert message.content == "x"


def test_id_with_an_open_end_waits_and_a_strange_one_is_skipped() -> None:
    body = '[{"tool_call_id": "7", "tool_name": "bare", "parameters": {}}]'
    assert read("command_a", f"<|START_ACTION|>{body}<|END_ACTION|>").tool_calls[0].id == "7"
    long_id = "x" * 400
    body = f'[{{"tool_call_id": "{long_id}", "tool_name": "bare", "parameters": {{}}}}]'
    assert calls(read("command_a", f"<|START_ACTION|>{body}<|END_ACTION|>")) == [BARE]


def test_tool_that_stands_for_no_tool_is_passed_over() -> None:
    body = '[{"tool_name": "directly-answer", "parameters": {}}, {"tool_name": "bare", "parameters": {}}]'
    assert calls(read("command_r", f"Action: ```json\n{body}\n```")) == [BARE]


def test_name_may_be_the_key_of_its_arguments() -> None:
    assert calls(read("apertus", '<|tools_prefix|>[{"ping": {"host": "db"}}]<|tools_suffix|>')) == [PING]


def test_list_under_tool_calls_is_the_calls() -> None:
    assert calls(read("xlam", '{"tool_calls": [{"name": "ping", "arguments": {"host": "db"}}]}')) == [PING]


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "ping", "arguments": {"host": "db"}}',
        '{"type": "function", "name": "ping", "parameters": {"host": "db"}}',
        'Sure:\n{"name": "ping", "parameters": {"host": "db"}}',
        '{"parameters": {"host": "db"}, "name": "ping"}',
        '```json\n{"name": "ping", "parameters": {"host": "db"}}\n```',
    ],
)
def test_unmarked_call_of_a_declared_tool_is_a_call(text: str) -> None:
    assert calls(read("llama3_json", text)) == [PING]


def test_unmarked_call_without_arguments_counts_if_the_tool_needs_none() -> None:
    assert calls(read("llama3_json", '{"name": "bare"}')) == [BARE]


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "nobody", "parameters": {}}',
        '{"name": "ping", "age": 3}',
        '{"status": "ok"}',
        'So {"name": "ping", "parameters": {"host": "db"}}',
        '```\n{"name": "ping", "parameters": {"host": "db"}}\n```',
        'Example:\n```json\n{"name": "ping", "parameters": {"host": "db"}}\n```',
        '{"parameters": {"host": "db"}}',
        '{"name": "ping"',
        "[1, 2]",
    ],
)
def test_unmarked_json_that_is_no_call_is_text(text: str) -> None:
    expected = calls(read("llama3_json", text)) if text.startswith("```") else []
    assert calls(read("llama3_json", text)) == expected
    if not expected:
        assert read("llama3_json", text).content == text


@pytest.mark.parametrize("end", range(1, 44))
def test_cut_object_gives_the_arguments_so_far_and_never_text(end: int) -> None:
    text = '<tool_call>{"name": "ping", "arguments": {"host": "db"}}'[: 11 + end]
    message = read("hermes", text, "length")
    assert message.content == ""
    for call in message.tool_calls:
        assert call.outcome in ("truncated", "ok")
        assert '{"host": "db"}'.startswith(call.arguments)


def test_marker_behind_a_key_without_value_ends_the_call() -> None:
    text = '<tool_call>{"name": "bare", "x" <tool_call>{"name": "ping", "arguments": {"host": "db"}}</tool_call>'
    assert calls(read("hermes", text)) == [BARE, PING]


def test_blanks_without_end_cost_no_second_look() -> None:
    pieces = ["<tool_call>{", *[" "] * 3000, '"name"', *[" "] * 30, ":", *[" "] * 3000, '"bare"}</tool_call>']
    assert calls(parse_message("hermes", pieces, TOOLS)) == [BARE]
