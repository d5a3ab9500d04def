"""Blanks at the edges of regions, ends of turns, and lines: what is said, what markup swallows."""

from __future__ import annotations

import pytest

from stream_parser import DIALECTS
from stream_parser.events import ContentDelta, Event, ReasoningDelta
from stream_parser.grammar import compile_dialect
from stream_parser.regions import Regions
from tests.testkit.parser_tools import calls, read

BARE = '<tool_call>{"name": "bare", "arguments": {}}</tool_call>'


def regions(dialect: str, calls_allowed: bool = True) -> tuple[Regions, list[Event]]:
    out: list[Event] = []
    return Regions(compile_dialect(DIALECTS[dialect]), out, calls_allowed), out


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (" \n Hi \n", " \n Hi \n"),
        (f" \n {BARE} \n", ""),
        (f"A \n{BARE}", "A"),
        (f"{BARE}\n B ", "B "),
        (f"A \n{BARE} \nB", "A \n \nB"),
        (f"A\n{BARE}\n{BARE}\nB", "A\n\n\nB"),
        ("<think>r</think>\n\nB", "B"),
        (" \n", " \n"),
        ("A <|im_end|> ", "A"),
        ("A <|im_end|>\nB", "A <|im_end|>\nB"),
        ("<|im_end|>", ""),
        ("<|im_end|>A", "A"),
    ],
)
def test_blanks_beside_markup_belong_to_it_unless_content_goes_on(text: str, content: str) -> None:
    assert read("hermes", text).content == content


def test_reasoning_keeps_no_blanks_at_its_edges_but_those_it_was_cut_with() -> None:
    assert read("hermes", "<think>\n a b \n</think>").reasoning == "a b"
    assert read("hermes", "<think>\n a b \n", "length").reasoning == "a b \n"
    assert read("hermes", "<think>\n ", "length").reasoning == ""


def test_dialect_that_keeps_edges_keeps_every_blank_of_its_messages() -> None:
    text = "<|channel|>final<|message|>\n  a\n<|end|>\n<|start|>assistant<|channel|>final<|message|> b"
    assert read("harmony", text).content == "\n  a\n b"
    assert read("harmony", "<|channel|>final<|message|> \n<|end|>").content == ""
    assert read("harmony", "  ").content == "  "


def test_blanks_between_markup_of_a_calls_message_are_the_frames() -> None:
    head = "<|start|>assistant to=tools<|message|>"
    text = head + ' \n<atem:invoke name="bare">\n</atem:invoke> \n<|eom|>'
    message = read("muse", text, prompt_tail="<|start|>assistant")
    assert calls(message) == [("bare", {})]
    assert message.content == ""


def test_discarded_messages_say_nothing() -> None:
    text = " to=developer<|message|>secret<|eom|><|start|>assistant to=user<|message|>Hi<|eot|>"
    assert read("muse", text, prompt_tail="<|start|>assistant").content == "Hi"


def test_events_are_of_the_region_that_is_open() -> None:
    found, out = regions("hermes")
    found.say("a")
    found.enter("reasoning")
    found.say("b")
    found.enter("reasoning")
    found.enter("content")
    found.say("c")
    assert out == [ContentDelta("a"), ReasoningDelta("b"), ContentDelta("c")]


def test_content_blanks_survive_a_visit_to_the_reasoning() -> None:
    found, out = regions("hermes")
    found.say("a ")
    found.enter("reasoning")
    found.say("b ")
    found.enter("discard")
    found.say("c")
    found.enter("reasoning")
    found.enter("content")
    found.say("d")
    assert out == [ContentDelta("a"), ReasoningDelta("b"), ContentDelta(" d")]


def test_text_of_the_prompt_is_muted() -> None:
    found, out = regions("hermes")
    found.mute = 4
    found.say("ab")
    found.say("cdef")
    assert out == [ContentDelta("ef")]


def test_silence_says_nothing_and_resuming_forgets_what_was_held() -> None:
    found, out = regions("hermes")
    found.silent = True
    found.say("prompt ")
    found.resume(in_text=True)
    assert not found.at_edge
    found.resume(in_text=False)
    assert found.at_edge
    found.say("x")
    found.say("")
    assert out == [ContentDelta("x")]


def test_line_begins_behind_a_line_break_that_opens_no_fence() -> None:
    found, _ = regions("llama3_json")
    assert not found.starts_line("a")
    found.say("Look:\n")
    assert found.starts_line("")
    assert found.starts_line("  ")
    assert not found.starts_line("x")
    assert not found.starts_line("```json\n")


def test_tables_follow_what_may_begin_where() -> None:
    found, _ = regions("llama3_json")
    grammar = compile_dialect(DIALECTS["llama3_json"])
    assert found.table is grammar.content_edge
    found.say("x")
    assert found.table is grammar.content
    found.enter("reasoning")
    assert found.table is grammar.reasoning
    closed, _ = regions("llama3_json", calls_allowed=False)
    assert closed.table is grammar.plain_edge
    closed.say("x")
    assert closed.table is grammar.plain


def test_flush_says_blanks_that_no_marker_took() -> None:
    found, out = regions("hermes")
    found.say("a\n")
    found.flush()
    found.flush()
    found.say(" \n")
    found.mark()
    found.flush()
    assert out == [ContentDelta("a"), ContentDelta("\n")]
