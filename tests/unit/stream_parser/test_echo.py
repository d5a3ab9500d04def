"""A block of calls that comes twice is read once."""

from __future__ import annotations

import pytest

from stream_parser.echo import EchoFilter
from tests.testkit.parser_tools import calls, read

CLOSERS = ("</calls>", ";")


def filter_after(block: str, unread: str = "", head: str = "") -> EchoFilter:
    echo = EchoFilter()
    echo.begin(head)
    for char in block:
        echo.add(char)
    echo.end(CLOSERS, unread)
    return echo


@pytest.mark.parametrize(
    ("block", "unread", "head"),
    [
        ("[f()]", "", ""),
        ("[f()]</calls>", "", ""),
        (" [f()] </calls> ", "", ""),
        ("[f()]</calls>x", "x", ""),
        ("f()]</calls>", "", "["),
        ("[f()];", "", ""),
    ],
)
def test_the_body_without_closers_blanks_and_unread_text_is_the_echo(block: str, unread: str, head: str) -> None:
    echo = filter_after(block, unread, head)
    assert echo.is_due
    assert echo.skip("a \n[f()] b", 1, final=False) == 8
    assert not echo.is_due


def test_nothing_is_due_before_a_block_and_after_an_empty_one() -> None:
    assert not EchoFilter().is_due
    assert not filter_after("</calls>").is_due


def test_a_new_block_ends_the_wait_for_the_echo_of_the_last() -> None:
    echo = filter_after("[f()]")
    echo.begin("")
    assert not echo.is_due


def test_the_beginning_of_an_echo_waits_and_other_text_does_not() -> None:
    for waiting in ("", " ", "[", "\n[f("):
        echo = filter_after("[f()]")
        assert echo.skip(waiting, 0, final=False) is None
        assert echo.is_due
        assert echo.skip(waiting, 0, final=True) == 0
        assert not echo.is_due
    for other in ("Done.", " [g()]", "[f(x)]"):
        echo = filter_after("[f()]")
        assert echo.skip(other, 0, final=False) == 0
        assert not echo.is_due


def test_a_model_that_says_its_calls_again_calls_once() -> None:
    block = "<|tool_call_start|>[ping(host='a')]<|tool_call_end|>"
    message = read("lfm2", f"{block}[ping(host='a')]Done.")
    assert calls(message) == [("ping", {"host": "a"})]
    assert message.content == "Done."
    message = read("lfm2", f"{block}[ping(host='b')]")
    assert calls(message) == [("ping", {"host": "a"})]
    assert message.content == "[ping(host='b')]"
