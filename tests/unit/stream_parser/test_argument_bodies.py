"""Bodies that are one object of arguments: JSON behind a head, lax objects, and a counter in place of a name."""

from __future__ import annotations

import pytest

from stream_parser.events import Message
from tests.testkit.parser_streams import parse_message
from tests.testkit.parser_tools import TOOLS, calls, endings, read

HEAD = "[TOOL_CALLS]ping[ARGS]"
KIMI = "<|tool_call_begin|>{}<|tool_call_argument_begin|>{}<|tool_call_end|>"


def read_whole(dialect: str, text: str) -> Message:
    return parse_message(dialect, text, TOOLS)


def test_arguments_pass_verbatim() -> None:
    assert read("mistral_v13", HEAD + '{ "host" :"db"}').tool_calls[0].arguments == '{ "host" :"db"}'


@pytest.mark.parametrize(
    ("body", "ending"),
    [
        ('{"host": "db"}', ("ok", "")),
        ('{"host": "db"', ("repaired", "missing_closer")),
        ("{'host': 'db'}", ("repaired", "quotes")),
        ('"{\\"host\\": \\"db\\"}"', ("repaired", "double_encoded")),
        ('{"host": "db",}', ("repaired", "extra_comma")),
    ],
)
def test_damaged_arguments_are_repaired_and_named(body: str, ending: tuple[str, str]) -> None:
    message = read("kimi_k2", KIMI.format("functions.ping:0", body))
    assert calls(message) == [("ping", {"host": "db"})]
    assert endings(message) == [ending]


def test_marker_outside_of_strings_ends_the_arguments() -> None:
    message = read("kimi_k2", KIMI.format("functions.ping:0", '{"host": "db"') + KIMI.format("functions.bare:1", "{}"))
    assert calls(message) == [("ping", {"host": "db"}), ("bare", {})]


def test_sign_that_begins_no_marker_is_left_to_the_scanner() -> None:
    assert calls(read("kimi_k2", KIMI.format("functions.ping:0", '{"host": <db}')))[0][0] == "ping"


def test_call_without_a_body_has_an_empty_object() -> None:
    assert calls(read("kimi_k2", KIMI.format("functions.bare:0", ""))) == [("bare", {})]


@pytest.mark.parametrize("held", ["", "<|tool_call_e"])
def test_end_of_the_turn_completes_arguments_and_a_cut_does_not(held: str) -> None:
    text = "<|tool_call_begin|>functions.ping:0<|tool_call_argument_begin|>"
    assert endings(read("kimi_k2", text + '{"host": "db"}' + held, "length")) == [("ok", "")]
    cut = read("kimi_k2", text + '{"host": 5', "length")
    assert endings(cut) == [("truncated", "cut")]
    stopped = read("kimi_k2", text + '{"host": "d')
    assert stopped.tool_calls[0].outcome == "repaired"
    assert calls(stopped) == [("ping", {"host": "d"})]


def test_lax_object_between_its_own_markers() -> None:
    text = '<|tool_call>call:put_note{text:<|"|>a "b"<|"|>,level:3}<tool_call|>'
    assert calls(read("gemma4", text)) == [("put_note", {"text": 'a "b"', "level": 3})]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"host": "db"}', [("ping", {"host": "db"})]),
        ('{"text": "a", "level": 1}', [("put_note", {"text": "a", "level": 1})]),
    ],
)
def test_bare_counter_names_the_one_tool_whose_keys_fit(arguments: str, expected: object) -> None:
    message = read("kimi_k2", KIMI.format("3", arguments))
    assert calls(message) == expected
    assert endings(message) == [("repaired", "name_from_arguments")]


def test_arguments_nested_too_deeply_to_be_looked_at_name_no_tool() -> None:
    assert calls(read_whole("kimi_k2", KIMI.format("3", '{"host": ' + "[" * 5000 + "]" * 5000 + "}"))) == []


@pytest.mark.parametrize("arguments", ["{}", '{"nobody": 1}', '"x"', "{broken", '{"a": <|x}'])
def test_bare_counter_that_fits_no_or_several_tools_is_text(arguments: str) -> None:
    text = KIMI.format("3", arguments)
    message = read("kimi_k2", text)
    assert calls(message) == []
    assert message.content.startswith("<|tool_call_begin|>3")


def test_bare_counter_whose_call_is_not_closed_still_names_its_tool() -> None:
    text = "<|tool_call_begin|>3<|tool_call_argument_begin|>" + '{"host": "db"'
    both = text + KIMI.format("functions.bare:1", "{}")
    assert calls(read("kimi_k2", both)) == [("ping", {"host": "db"}), ("bare", {})]
    assert calls(read("kimi_k2", text + "}")) == [("ping", {"host": "db"})]


def test_bare_counter_that_was_cut_is_no_call_and_no_text() -> None:
    message = read("kimi_k2", '<|tool_call_begin|>3<|tool_call_argument_begin|>{"host": "d', "length")
    assert calls(message) == []
    assert message.content == ""
