"""Markers in their places: what is read as markup, what waits, what is given back as text."""

from __future__ import annotations

import pytest

from stream_parser import StreamParser, collect
from stream_parser.dialect import Call, Dialect, JsonArguments, JsonCall, Messages, NoArguments, Route, Span
from stream_parser.events import ContentDelta, ReasoningDelta
from tests.testkit.parser_streams import check_promises
from tests.testkit.parser_tools import TOOLS, calls, endings, read

BARE = '<tool_call>{"name": "bare", "arguments": {}}</tool_call>'


def test_text_that_may_become_a_marker_waits_and_no_longer() -> None:
    parser = StreamParser("hermes", TOOLS)
    assert parser.feed("a <tool") == [ContentDelta("a")]
    assert parser.feed("box") == [ContentDelta(" <toolbox")]


def test_held_text_is_content_when_the_stream_ends() -> None:
    for reason in ("stop", "length"):
        assert read("hermes", "Open it with <tool", reason).content == "Open it with <tool"  # type: ignore[arg-type]


def test_longer_of_two_markers_with_one_beginning_wins() -> None:
    assert read("gemma4", "<|channel>thought\na<channel|>b").reasoning == "a"
    assert read("gemma4", "<|channel>\na<channel|>b").reasoning == "a"
    assert read("gemma4", "<|channel>thou", "length").reasoning == ""


@pytest.mark.parametrize(
    "text", [f"x <tool_call> y {BARE}", f"x <tool_call>{{ y {BARE}", f"x <tool_call>[{{}}] y {BARE}"]
)
def test_text_after_a_marker_that_was_none_is_read_again(text: str) -> None:
    message = read("hermes", text)
    assert calls(message) == [("bare", {})]
    assert message.content == text.removesuffix(BARE).rstrip()


def test_call_ends_the_reasoning_and_its_closer_may_follow() -> None:
    message = read("hermes", f"<think>a {BARE} b</think> c")
    assert (message.reasoning, message.content) == ("a", "b c")
    assert calls(message) == [("bare", {})]


def test_marker_quoted_in_reasoning_is_reasoning() -> None:
    message = read("hermes", "<think>a <tool_call> b <think> c </tool_call> d</think>e")
    assert (message.reasoning, message.content) == ("a <tool_call> b <think> c </tool_call> d", "e")


def test_special_tokens_are_never_prose() -> None:
    message = read("mistral_v13", "a[/THINK]b[THINK]c[/THINK]d")
    assert (message.content, message.reasoning) == ("abd", "c")


def test_thoughts_alternate_with_calls() -> None:
    message = read("hermes", f"<think>a</think>{BARE}<think>b</think>{BARE}<think>c</think>d")
    assert (message.reasoning, message.content) == ("abc", "d")
    assert len(message.tool_calls) == 2


def test_cut_header_is_no_text_but_a_stopped_one_is() -> None:
    text = "Look: <tool_call>\n<function=ping"
    assert read("qwen3_coder", text, "length").content == "Look:"
    assert read("qwen3_coder", text, "stop").content == text


def test_cut_marker_behind_a_call_is_no_text() -> None:
    assert read("hermes", f"{BARE}\n<tool_c", "length").content == ""
    assert read("hermes", f"{BARE}\n<tool_c", "stop").content == "<tool_c"


def test_cut_header_without_its_wrapper_is_text_until_it_names_a_tool() -> None:
    assert read("qwen3_coder", "See <function=pi", "length").content == "See <function=pi"
    assert read("qwen3_coder", "See <function=ping>\n<para", "length").content == "See"


def test_cut_special_header_is_no_text_whatever_the_reason() -> None:
    assert read("harmony", "<|start|>assistant<|channel|>ana", "stop").content == ""
    assert read("kimi_k2", "Hi <|tool_calls_section_begin|>", "stop").content == "Hi"


def test_name_with_head_and_id_takes_both_from_the_wire() -> None:
    message = read("mistral_v11", "[TOOL_CALLS]bare[CALL_ID]abc123def[ARGS]{}")
    assert [call.id for call in message.tool_calls] == ["abc123def"]


def test_id_that_is_no_counted_name_is_replaced_by_one() -> None:
    head = "<|tool_call_begin|>{}<|tool_call_argument_begin|>{{}}<|tool_call_end|>"
    assert read("kimi_k2", head.format("functions.bare:7")).tool_calls[0].id == "functions.bare:7"
    assert read("kimi_k2", head.format("bare")).tool_calls[0].id == "functions.bare:0"


def test_messages_route_by_their_header() -> None:
    text = (
        "<|channel|>analysis<|message|>r<|end|><|start|>assistant<|channel|>commentary to=functions.bare "
        "<|constrain|>json<|message|>{}<|call|><|start|>assistant<|channel|>final<|message|>c<|return|>"
    )
    message = read("harmony", text)
    assert (message.reasoning, message.content, calls(message)) == ("r", "c", [("bare", {})])


def test_header_in_the_middle_of_a_line_needs_its_start() -> None:
    assert read("functionary_v32", "all is well\nall\nx").content == "all is well\nall\nx"


def test_header_that_names_no_tool_is_text_where_names_must_be_known() -> None:
    message = read("functionary_v32", "all\nA >>>b\n>>>bare\n{}", prompt_tail=">>>")
    assert message.content == "A >>>b\n"
    assert calls(message) == [("bare", {})]


def test_call_messages_are_content_where_the_request_had_no_tools() -> None:
    parser = StreamParser("harmony", [])
    events = parser.feed("<|channel|>commentary to=functions.bare<|message|>{}<|call|>") + parser.finish("stop")
    assert events[0] == ContentDelta("{}")


def test_message_whose_header_nobody_routes_is_content() -> None:
    frame = Messages(
        ("<s>",), "<m>", ("<e>",), (), (Route(r"^x$", "call"), Route(r"^t$", "reasoning")), openings=("x", "q")
    )
    dialect = Dialect(name="d", families=(), syntax="", messages=frame, keep_edges=True)
    assert read(dialect, "q<m>a<e><s>x<m>b<e><s>t<m>c").content == "ab"


def test_answer_wrappers_are_markup_where_they_open_and_close() -> None:
    assert read("hunyuan_a13b", "<think>\nr\n</think>\n<answer>\na </answer> b").content == "a  b"
    assert read("hunyuan_a13b", "a <answer> b </answer> c").content == "a <answer> b </answer> c"
    assert read("hunyuan_a13b", "<answer>a</answer></answer>").content == "a"
    assert read("cohere_command3", "<|START_THINKING|>r<|START_RESPONSE|>a<|END_RESPONSE|>").reasoning == "r"


def test_opener_that_only_starts_a_turn_is_text_later() -> None:
    assert read("gemma4", "thought\na<channel|>b").reasoning == "a"
    assert read("gemma4", "A thought\nb").content == "A thought\nb"


def test_orphan_closers_count_beside_other_markup_only() -> None:
    assert read("hermes", f"{BARE}</tool_call>x").content == "x"
    assert read("hermes", "x </tool_call> y").content == "x </tool_call> y"
    assert read("hermes", "</tool_call>x").content == "</tool_call>x"


def test_echo_of_a_call_block_is_dropped_and_other_text_is_not() -> None:
    block = '<|tool_call_start|>[ping(host="db")]<|tool_call_end|>'
    body = block.removeprefix("<|tool_call_start|>")
    assert read("lfm2", f"{block}\n{body} ok").content == "ok"
    assert read("lfm2", f"{block}[ping(").content == "[ping("
    assert read("lfm2", f"{block}[ping(", "length").content == "[ping("
    assert len(read("lfm2", block + block).tool_calls) == 2


def test_special_end_by_id_closes_a_call_in_trial_or_in_a_string() -> None:
    parser = StreamParser("command_a", TOOLS, vocab={"<|END_ACTION|>": 5, "<|START_ACTION|>": 4})
    parser.feed("<|START_ACTION|>", [4])
    parser.feed('[{"tool_name": "ping", "parameters": {"host": "d', [1])
    events = parser.feed("<|END_ACTION|>", [5]) + parser.finish("stop")
    assert [type(event).__name__ for event in events] == ["ToolCallDelta", "ToolCallEnd", "Finish"]

    parser = StreamParser("command_a", TOOLS, vocab={"<|END_ACTION|>": 5, "<|START_ACTION|>": 4})
    parser.feed('<|START_ACTION|>[{"parameters": {"host": "d', [4, 1])
    events = parser.feed("<|END_ACTION|> x", [5, 1]) + parser.finish("stop")
    assert all(isinstance(event, ContentDelta) for event in events[:-1])


def test_call_without_head_or_body_needs_its_fixed_name() -> None:
    dialect = Dialect(
        name="d",
        families=(),
        syntax="",
        reasoning=(Span(("<r>",), ("</r>",)),),
        calls=(Call(NoArguments(), opens=("<now>",), name="bare"), Call(JsonCall(), opens=("<j>",), known_name=True)),
    )
    message = read(dialect, '<r>a<now> b</r>c<j>{"name": "bare", "arguments": {}}')
    assert calls(message) == [("bare", {}), ("bare", {})]
    assert read(dialect, '<j>{"name": "nobody", "arguments": {}}').content == '<j>{"name": "nobody", "arguments": {}}'


def test_reasoning_streams_like_content() -> None:
    parser = StreamParser("hermes", TOOLS, prompt_tail="<think>\n")
    assert parser.feed("I see") == [ReasoningDelta("I see")]
    assert parser.feed(" it") == [ReasoningDelta(" it")]


def test_section_that_must_be_there_is_demanded() -> None:
    strict = Dialect(
        name="d",
        families=(),
        syntax="",
        sections=(Span(("<s>",), ("</s>",)),),
        calls=(Call(JsonArguments(), heads=("<c {name}>",), closes=("</c>",)),),
        recovery=frozenset(),
    )
    assert calls(read(strict, "<s><c bare>{}</c></s>")) == [("bare", {})]
    assert read(strict, "<c bare>{}</c>").content == "<c bare>{}</c>"
    assert endings(read(strict, "<s><c bare>{", "length")) == [("truncated", "cut")]


@pytest.mark.parametrize(
    ("dialect", "text", "marker"),
    [
        ("command_a", '<|START_ACTION|>[{"tool_name": "ping", "parameters": {"host": "a', "<|END_ACTION|>"),
        ("mistral_v3", '[TOOL_CALLS][{"extra": "a', "[/TOOL_CALLS]"),
        ("lfm2", '<|tool_call_start|>[ping(host="a', "<|tool_call_end|>"),
        (
            "step3",
            '<｜tool_call_begin｜><steptml:invoke name="ping"><steptml:parameter name="host">a',
            "<｜tool_call_end｜>",
        ),
        ("gemma4", '<|tool_call>call:ping{host:<|"|>a', "<tool_call|>"),
        ("harmony", "<|channel|>commentary to=python code<|message|>a", "<|call|>"),
        ("harmony", '<|channel|>commentary to=ping<|message|>{"host": "a', "<|call|>"),
        ("harmony", "<|channel|>commentary to=ping<|message|>", "<|call|>"),
        ("kimi_k2", '<|tool_call_begin|>3<|tool_call_argument_begin|>{"host": "a', "<|tool_call_end|>"),
    ],
)
def test_marker_by_id_inside_any_body_is_never_data(dialect: str, text: str, marker: str) -> None:
    parser = StreamParser(dialect, TOOLS, vocab={marker: 5})
    events = parser.feed(text, [1]) + parser.feed(marker, [5]) + parser.feed(" x", [1]) + parser.finish("stop")
    check_promises(events)
    assert all(marker not in getattr(event, "arguments", "") for event in events)


def test_special_piece_that_ends_nothing_by_itself_is_read_with_what_follows() -> None:
    piece = "]<]minimax[>["
    parser = StreamParser("minimax_m3", TOOLS, vocab={piece: 5})
    events = parser.feed(f'{piece}<invoke name="ping">{piece}<host>a', [5, 1, 5, 1])
    events += parser.feed(piece, [5]) + parser.feed("</host>", [1]) + parser.finish("stop")
    assert calls(collect(events)) == [("ping", {"host": "a"})]


def test_opener_repeated_right_behind_itself_is_dropped() -> None:
    assert read("hermes", "<think>\n<think>a</think>b").reasoning == "a"
    assert read("hermes", "<think>a", prompt_tail="<think>\n").reasoning == "a"


def test_call_in_prose_of_any_other_shape_is_found_by_its_first_character() -> None:
    assert calls(read("cwm", "<tool: x>\nping {}</tool>")) == [("ping", {})]
    assert calls(read("react", "Action: ping\nAction Input: {}")) == [("ping", {})]
