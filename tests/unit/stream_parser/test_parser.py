"""The public contract of StreamParser: ids, prompts, reasons, tools, and what never raises."""

from __future__ import annotations

import pytest

from stream_parser import DIALECTS, StreamParser, collect
from stream_parser.events import (
    ContentDelta,
    Event,
    Finish,
    FinishReason,
    ReasoningDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from tests.testkit.parser_streams import check_promises
from tests.testkit.parser_tools import TOOLS, calls, endings, read

CALL = '<tool_call>\n{"name": "ping", "arguments": {"host": "db"}}\n</tool_call>'


def test_events_come_as_early_as_they_are_certain() -> None:
    parser = StreamParser("hermes", TOOLS, id_source=lambda: "call_1")
    seen = [
        parser.feed(piece) for piece in ('<tool_call>{"na', 'me": "ping"', ', "arguments": {"host": "d', "b", '"}}')
    ]
    assert seen == [
        [],
        [ToolCallStart(0, "call_1", "ping")],
        [ToolCallDelta(0, '{"host": "d')],
        [ToolCallDelta(0, "b")],
        [ToolCallDelta(0, '"}'), ToolCallEnd(0, '{"host": "db"}', "ok", "")],
    ]
    assert parser.finish("stop") == [Finish("tool_calls")]


def test_string_arguments_of_tagged_dialects_stream() -> None:
    parser = StreamParser("qwen3_coder", TOOLS)
    events = parser.feed("<tool_call>\n<function=ping>\n<parameter=host>\nab")
    events += parser.feed('c"d')
    assert [event for event in events if isinstance(event, ToolCallDelta)] == [
        ToolCallDelta(0, '{"host": "'),
        ToolCallDelta(0, "ab"),
        ToolCallDelta(0, 'c\\"d'),
    ]


def test_plain_text_goes_straight_through() -> None:
    parser = StreamParser("hermes", TOOLS)
    assert parser.feed("It is") == [ContentDelta("It is")]
    assert parser.feed(" fine") == [ContentDelta(" fine")]
    assert parser.feed("") == []
    assert parser.feed(" <") == []
    assert parser.feed("b") == [ContentDelta(" <b")]
    assert parser.finish("stop") == [Finish("stop")]


@pytest.mark.parametrize(
    ("text", "reason", "finish"),
    [
        (CALL, "stop", "tool_calls"),
        (CALL, "tool_calls", "tool_calls"),
        (CALL, "length", "length"),
        (CALL, "cancelled", "cancelled"),
        (CALL, "error", "error"),
        ("Hi", "tool_calls", "stop"),
        ("Hi", "stop", "stop"),
    ],
)
def test_finish_reason_follows_what_was_said_unless_the_turn_was_cut(
    text: str, reason: FinishReason, finish: FinishReason
) -> None:
    assert read("hermes", text, reason).finish_reason == finish


def test_no_call_after_a_cut_is_ever_whole() -> None:
    message = read("hermes", CALL[:-16], "length")
    assert endings(message) == [("truncated", "cut")]
    assert message.tool_calls[0].arguments == '{"host": "db'


def test_call_markup_is_content_where_the_request_had_no_tools() -> None:
    parser = StreamParser("hermes", [])
    events = parser.feed(CALL) + parser.finish("stop")
    assert collect(events).content == CALL
    assert collect(events).finish_reason == "stop"


def test_every_name_counts_where_nobody_told_the_tools() -> None:
    parser = StreamParser("hermes")
    events = parser.feed('<tool_call>{"name": "anything", "arguments": {"a": 1}}</tool_call>') + parser.finish("stop")
    assert calls(collect(events)) == [("anything", {"a": 1})]


def test_prompt_that_opened_the_reasoning_starts_in_it() -> None:
    assert read("qwen3", "I see.</think>Fine.", prompt_tail="<|im_start|>assistant\n<think>\n").reasoning == "I see."
    assert read("qwen3", "Fine.", prompt_tail="<|im_start|>assistant\n<think>\n\n</think>\n\n").content == "Fine."
    assert read(
        "qwen3", "Fine.", prompt_tail="<|im_start|>user\nSay <think>.<|im_end|>\n<|im_start|>assistant\n"
    ).content
    assert read("qwen3", "Fine.", prompt_tail="<|im_start|>assistant\n").content == "Fine."


def test_prompt_that_began_the_answer_is_continued_without_repeating_it() -> None:
    message = read("qwen3", " blue.", prompt_tail="<|im_start|>assistant\nThe sky is")
    assert message.content == " blue."


def test_prompt_that_ends_inside_a_marker_does_not_say_its_part_again() -> None:
    message = read("qwen3", "box>", prompt_tail="<|im_start|>assistant\nSee <tool_")
    assert message.content == "box>"
    message = read("qwen3", 'call>{"name": "bare", "arguments": {}}</tool_call>', prompt_tail="<tool_")
    assert calls(message) == [("bare", {})]


def test_prompt_that_began_a_call_gives_the_whole_call() -> None:
    tail = '<|im_start|>assistant\n<tool_call>\n{"name": "ping", "arguments": {"ho'
    message = read("qwen3", 'st": "db"}}\n</tool_call>', prompt_tail=tail)
    assert calls(message) == [("ping", {"host": "db"})]


def test_prompt_whose_call_has_no_name_yet_gives_the_call_or_only_the_new_text() -> None:
    tail = '<|im_start|>assistant\n<tool_call>\n{"na'
    assert calls(read("qwen3", 'me": "bare", "arguments": {}}</tool_call>', prompt_tail=tail)) == [("bare", {})]
    assert read("qwen3", "ture}", prompt_tail=tail).content == "ture}"


def test_calls_in_the_prompts_history_are_not_repeated() -> None:
    message = read("qwen3", CALL, prompt_tail=CALL + "\n")
    assert [call.index for call in message.tool_calls] == [0]


def test_special_marker_by_id_ends_a_string_that_was_left_open() -> None:
    vocab = {"<|tool_call_end|>": 7, "<|tool_call_begin|>": 6, "unrelated": 1}
    parser = StreamParser("kimi_k2", TOOLS, vocab=vocab)
    head = "<|tool_call_begin|>functions.ping:0<|tool_call_argument_begin|>"
    events = parser.feed(head + '{"host": "d', [6, 1, 1])
    events += parser.feed("b<|tool_call_end|> Done", [1, 7, 2])
    events += parser.finish("stop")
    check_promises(events)
    message = collect(events)
    assert calls(message) == [("ping", {"host": "db"})]
    assert message.tool_calls[0].outcome == "repaired"
    assert message.content == "Done"


def test_special_marker_spelled_inside_a_string_stays_data() -> None:
    parser = StreamParser("kimi_k2", TOOLS, vocab={"<|tool_call_end|>": 7})
    head = "<|tool_call_begin|>functions.ping:0<|tool_call_argument_begin|>"
    text = head + '{"host": "a<|tool_call_end|>b"}<|tool_call_end|>'
    events = parser.feed(text, [1, 2, 3]) + parser.finish("stop")
    assert calls(collect(events)) == [("ping", {"host": "a<|tool_call_end|>b"})]


def test_special_marker_that_the_detokeniser_hid_is_put_back() -> None:
    parser = StreamParser("mistral_v13", TOOLS, vocab={"[TOOL_CALLS]": 9, "[ARGS]": 32})
    events: list[Event] = []
    for text, ids in (("", [9]), ("bare", [100]), ("", [32]), ("{}", [101])):
        events += parser.feed(text, ids)
    events += parser.finish("stop")
    assert calls(collect(events)) == [("bare", {})]


def test_end_of_turn_marker_by_id_is_no_text_whatever_follows() -> None:
    parser = StreamParser("gigachat3", TOOLS, vocab={"<|message_sep|>": 3})
    events = parser.feed("Hi<|message_sep|>", [5, 3]) + parser.feed(" there", [6]) + parser.finish("stop")
    assert collect(events).content == "Hi there"


def test_ids_without_a_vocabulary_are_ignored() -> None:
    parser = StreamParser("hermes", TOOLS)
    assert parser.feed("Hi", [1, 2]) == [ContentDelta("Hi")]


def test_halves_of_a_surrogate_pair_are_joined_over_pieces() -> None:
    parser = StreamParser("hermes", TOOLS)
    events = parser.feed("a\ud83d") + parser.feed("\ude80b") + parser.feed("\ud83d") + parser.finish("stop")
    assert collect(events).content == "a🚀b\ufffd"


def test_ids_are_unique_even_from_a_source_that_repeats_itself() -> None:
    parser = StreamParser("hermes", TOOLS, id_source=lambda: "same")
    events = parser.feed(CALL + CALL + CALL) + parser.finish("stop")
    check_promises(events)
    assert len(collect(events).tool_calls) == 3


def test_wire_ids_are_kept_and_made_unique_when_repeated() -> None:
    action = '{"tool_call_id": "0", "tool_name": "bare", "parameters": {}}'
    message = read("command_a", f"<|START_ACTION|>[{action}, {action}]<|END_ACTION|>")
    assert [call.id for call in message.tool_calls] == ["0", "0-2"]


def test_dialects_with_an_id_form_mint_it() -> None:
    assert read("kimi_k3", '<|open|>call tool="bare" index="1"<|sep|><|close|>call<|sep|>').tool_calls[0].id == "bare:1"
    parser = StreamParser("mistral_v13", TOOLS)
    events = parser.feed("[TOOL_CALLS]bare[ARGS]{}") + parser.finish("stop")
    call_id = collect(events).tool_calls[0].id
    assert len(call_id) == 9
    assert call_id.isalnum()


def test_a_dialect_of_ones_own_is_accepted() -> None:
    message = read(DIALECTS["hermes"], CALL)
    assert calls(message) == [("ping", {"host": "db"})]


def test_reasoning_and_content_are_told_apart_within_one_piece() -> None:
    parser = StreamParser("qwen3", TOOLS)
    events = parser.feed("<think>\nHm.\n</think>\n\nYes.") + parser.finish("stop")
    assert events == [ReasoningDelta("Hm."), ContentDelta("Yes."), Finish("stop")]


def test_feeding_after_the_end_is_a_bug_of_the_caller() -> None:
    parser = StreamParser("hermes", TOOLS)
    parser.finish("stop")
    with pytest.raises(AssertionError, match="feed after finish"):
        parser.feed("x")
    with pytest.raises(AssertionError, match="finish twice"):
        parser.finish("stop")
