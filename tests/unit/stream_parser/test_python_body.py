"""Call expressions (P): lists and lines of calls, keywords, positions, dictionaries, damage and cuts."""

from __future__ import annotations

import pytest

from stream_parser import StreamParser
from stream_parser.events import ToolCallDelta
from tests.testkit.parser_streams import tool
from tests.testkit.parser_tools import TOOLS, calls, endings, read

PING = ("ping", {"host": "db"})


def lfm(body: str) -> str:
    return f"<|tool_call_start|>{body}<|tool_call_end|>"


def test_string_literals_stream() -> None:
    parser = StreamParser("lfm2", TOOLS)
    parser.feed('<|tool_call_start|>[ping(host="a')
    assert parser.feed("bc") == [ToolCallDelta(0, "bc")]


@pytest.mark.parametrize(
    "body",
    [
        '[ping(host="db")]',
        "[ping(host='db')]",
        '[[ping(host="db")]]',
        '[ ping ( host = "db" , ) ]',
        'ping(host="db")',
        '[ping("db")]',
        '[ping({"host": "db"})]',
        '[ping({"host": "db"}, extra=1)]',
        '[ping("host"="db")]',
    ],
)
def test_every_spelling_of_one_call_is_that_call(body: str) -> None:
    assert calls(read("lfm2", lfm(body))) == [PING]


def test_lists_and_lines_hold_several_calls() -> None:
    both = [PING, ("bare", {})]
    assert calls(read("lfm2", lfm('[ping(host="db"), bare()]'))) == both
    assert calls(read("olmo3", '<function_calls>ping(host="db")\nbare()</function_calls>')) == both
    assert calls(read("pythonic", '[ping(host="db"), bare()]')) == both


def test_literals_of_all_kinds_become_json() -> None:
    body = "[put_note(text='a', level=-3, urgent=True, tags=['x', \"y\"], meta={'depth': 1}, owner=None)]"
    expected = {"text": "a", "level": -3, "urgent": True, "tags": ["x", "y"], "meta": {"depth": 1}, "owner": None}
    assert calls(read("lfm2", lfm(body))) == [("put_note", expected)]


def test_positions_follow_the_declared_order_and_then_count() -> None:
    assert calls(read("lfm2", lfm("[put_note('a', 3, urgent=True, text2='b')]"))) == [
        ("put_note", {"text": "a", "level": 3, "urgent": True, "text2": "b"})
    ]
    assert calls(read("lfm2", lfm("[nobody(1, 2)]"))) == [("nobody", {"arg0": 1, "arg1": 2})]


def test_dictionary_is_a_value_where_the_first_parameter_is_an_object() -> None:
    parser = StreamParser("lfm2", [tool("save", data={"type": "object"})])
    events = parser.feed(lfm('[save({"a": 1})]')) + parser.finish("stop")
    assert any(isinstance(event, ToolCallDelta) and "data" in event.arguments for event in events)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('[ping(host="db"]', "unclosed_call"),
        ('[ping(host="db"', "unclosed_call"),
        ('[ping({"host": "db"', "missing_closer,unclosed_call"),
        ('[ping(=}host="db")]', "stray_text"),
        ("[ping(host=db)]", "unquoted_string"),
    ],
)
def test_damaged_calls_are_closed_and_the_damage_is_named(body: str, reason: str) -> None:
    for text in (lfm(body), "<|tool_call_start|>" + body):
        message = read("lfm2", text)
        assert calls(message) == [PING]
        assert message.tool_calls[0].outcome == "repaired"
        assert set(reason.split(",")) <= set(message.tool_calls[0].reason.split(",")) | {"missing_closer"}
        assert message.content == ""


@pytest.mark.parametrize("end", range(21, 36))
def test_cut_call_is_never_completed(end: int) -> None:
    message = read("lfm2", '<|tool_call_start|>[ping(host="db")]'[:end], "length")
    assert message.content == ""
    for call in message.tool_calls:
        assert call.outcome in ("truncated", "ok")
        assert '{"host": "db"}'.startswith(call.arguments)


def test_cut_dictionary_is_never_completed() -> None:
    message = read("lfm2", '<|tool_call_start|>[ping({"host": "d', "length")
    assert endings(message) == [("truncated", "cut")]


def test_string_left_open_ends_with_the_turn() -> None:
    message = read("lfm2", '<|tool_call_start|>[ping(host="db')
    assert calls(message) == [PING]
    assert endings(message) == [("repaired", "unclosed_string,unclosed_call")]


def test_text_behind_an_unmarked_call_stays_text() -> None:
    message = read("pythonic", '[ping(host="db")] thanks')
    assert calls(message) == [PING]
    assert message.content == "thanks"
    assert read("pythonic", 'ping(host="db")\nthanks').content == "thanks"


def test_unmarked_name_behind_a_call_is_a_call_only_if_declared() -> None:
    assert read("pythonic", 'ping(host="db")\nf(x) is').content == "f(x) is"
    assert calls(read("pythonic", 'ping(host="db")\nbare()')) == [PING, ("bare", {})]


def test_end_marker_inside_a_literal_outside_of_strings_ends_the_call() -> None:
    message = read("lfm2", "<|tool_call_start|>[put_note(level=3<|tool_call_end|> then")
    assert calls(message) == [("put_note", {"level": 3})]
    assert message.content == "then"


def test_end_marker_between_arguments_or_in_a_dictionary_ends_the_call() -> None:
    assert calls(read("lfm2", "<|tool_call_start|>[put_note(level=3, <|tool_call_end|>")) == [
        ("put_note", {"level": 3})
    ]
    assert calls(read("lfm2", '<|tool_call_start|>[ping({"host": "db" <|tool_call_end|>')) == [PING]
    assert calls(read("lfm2", lfm('[ping({"host": <db})]')))[0][0] == "ping"


def test_lone_less_than_sign_in_a_literal_is_no_marker() -> None:
    assert calls(read("lfm2", lfm("[put_note(text=a<b, level=1)]")))[0][0] == "put_note"
