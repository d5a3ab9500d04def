"""What all bodies share: closers, surplus brackets, cuts; raw text, bare heads, and bodies told by their first char."""

from __future__ import annotations

import pytest

from stream_parser.bodies import BodyReader
from stream_parser.calls import CallWriter
from stream_parser.dialect import Call, Dialect, JsonArguments, NoArguments, RawArgument
from stream_parser.grammar import compile_dialect
from stream_parser.schema import ToolIndex
from tests.testkit.parser_tools import TOOLS, calls, endings, read

RAW = Dialect(
    name="raw",
    families=(),
    syntax="",
    calls=(Call(RawArgument("code"), opens=("<run>",), closes=("</run>",), name="python"),),
)
UNCLOSED = Dialect(
    name="unclosed", families=(), syntax="", calls=(Call(JsonArguments(), opens=("@call",), heads=("{name}",)),)
)
TAILED = Dialect(
    name="tailed",
    families=(),
    syntax="",
    calls=(Call(JsonArguments(), opens=("<c>",), heads=("{name}",), tails=("</a>",), closes=("</c>",)),),
)


def test_raw_body_is_one_string_argument() -> None:
    message = read(RAW, 'Run <run>print("a <b>")\nx < y</ru></run> now')
    assert calls(message) == [("python", {"code": 'print("a <b>")\nx < y</ru>'})]
    assert message.content == "Run  now"


def test_raw_body_without_its_closer_is_whole_at_the_end_of_the_turn_only() -> None:
    stopped, cut = read(RAW, "<run>a\nb</"), read(RAW, "<run>a\nb</", "length")
    assert calls(stopped) == [("python", {"code": "a\nb</"})]
    assert cut.tool_calls[0].arguments == '{"code": "a\\nb'
    assert endings(cut) == [("truncated", "cut")]


def test_raw_call_that_was_cut_before_its_body_has_no_arguments() -> None:
    assert read(RAW, "<run> ", "length").content == ""
    assert read(RAW, "<run> ", "stop").content == "<run> "


def test_text_behind_a_complete_raw_body_waits_for_the_closer() -> None:
    message = read(RAW, "<run>a<run>b</run>")
    assert calls(message) == [("python", {"code": "a"}), ("python", {"code": "b"})]


@pytest.mark.parametrize("surplus", ["}", "}}", "\n}", "]", ")", "\n```", " ```\n"])
def test_surplus_brackets_and_fences_behind_a_body_are_dropped(surplus: str) -> None:
    assert read(UNCLOSED, '@call ping{"host": "db"}' + surplus + " Then.").content == "Then."
    assert read(TAILED, '<c>ping{"host": "db"}' + surplus + "</a></c> Then.").content == "Then."


def test_frame_that_goes_on_ends_a_raw_body() -> None:
    text = "<|channel|>analysis to=python code<|message|>x = 1<|start|>assistant<|channel|>final<|message|>Done"
    message = read("harmony", text)
    assert calls(message) == [("python", {"code": "x = 1"})]
    assert message.content == "Done"


def test_head_without_a_body_waits_for_its_closer() -> None:
    call = Call(NoArguments(), heads=("<c {name}>",), closes=("</c>",))
    message = read(Dialect(name="d", families=(), syntax="", calls=(call,)), "<c bare></c> Then.")
    assert calls(message) == [("bare", {})]
    assert message.content == "Then."


def test_call_without_closers_ends_with_its_body() -> None:
    message = read(UNCLOSED, '@call ping{"host": "db"} and `this`')
    assert calls(message) == [("ping", {"host": "db"})]
    assert message.content == "and `this`"
    assert read(UNCLOSED, '@call ping{"host": "db"}``').content == "``"


def test_tail_and_closer_may_each_be_missing() -> None:
    for text in ("</a></c>", "</a>\n</c>", "</c>", "</a>", ""):
        message = read(TAILED, '<c>ping{"host": "db"}' + text + " Then.")
        assert calls(message) == [("ping", {"host": "db"})]
        assert message.content == "Then."


def test_next_call_needs_no_closer_before_it() -> None:
    message = read(TAILED, '<c>ping{"host": "db"}<c>bare{}</a></c>')
    assert calls(message) == [("ping", {"host": "db"}), ("bare", {})]


def test_head_that_closes_itself_is_a_whole_call() -> None:
    message = read("deepseek_v4", '<｜DSML｜tool_calls><｜DSML｜invoke name="bare"/></｜DSML｜tool_calls> Then.')
    assert calls(message) == [("bare", {})]
    assert message.content == "Then."


def test_first_character_of_a_body_tells_how_to_read_it() -> None:
    head = "<|channel|>commentary to={}<|message|>"
    message = read("harmony", head.format("functions.ping") + '\n{"host": "db"}<|call|>')
    assert calls(message) == [("ping", {"host": "db"})]
    assert calls(read("harmony", head.format("python") + "print(1)<|call|>")) == [("python", {"code": "print(1)"})]
    assert endings(read("harmony", head.format("python"), "length")) == [("truncated", "cut")]
    assert calls(read("harmony", head.format("python") + " ")) == [("python", {})]
    assert endings(read("harmony", head.format("python") + "pri", "length")) == [("truncated", "cut")]
    assert endings(read("harmony", head.format("ping") + "<|call|>")) == [("ok", "")]


def test_reader_without_a_feed_is_no_reader() -> None:
    compiled = next(entry.call for entry in compile_dialect(RAW).content.entries if entry.call)
    reader = BodyReader(compiled, CallWriter(ToolIndex(TOOLS), []))
    assert not reader.in_string
    with pytest.raises(NotImplementedError):
        reader.feed("", 0)
