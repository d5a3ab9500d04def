from dataclasses import replace

import pytest

from gateway.generation import Generation, StopStrings
from gateway.pieces import TextPiece
from gateway.types import SamplingParams, TokenLogprob, TurnEvent, TurnText, Usage
from stream_parser import collect
from stream_parser.events import ContentDelta, Finish, ToolCallDelta, ToolCallEnd, ToolCallStart
from tests.testkit.gateway_kit import SPECIAL_TOKENS, prepared, weather_tool

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'


def run(generation: Generation, texts: list[str], reason: str = "stop", choice: int = 0) -> list:
    items = []
    for i, text in enumerate(texts, 1):
        last = i == len(texts)
        items += generation.feed(TextPiece(choice, text, finish_reason=reason if last else None))
        if generation.is_done:
            break
    return items


def message(items: list, choice: int = 0):
    return collect(item.event for item in items if item.choice == choice)


def all_splits(text: str) -> list[list[str]]:
    return [[text], list(text), *([text[:i], text[i:]] for i in range(1, len(text)))]


def test_text_becomes_content_and_one_finish():
    items = run(Generation(prepared(), StopStrings()), ["Hel", "lo"])
    assert items == [
        TurnEvent(0, ContentDelta("Hel")),
        TurnEvent(0, ContentDelta("lo")),
        TurnEvent(0, Finish("stop")),
    ]


def test_a_call_becomes_its_events_and_the_reason_tool_calls():
    items = run(Generation(prepared(tools=[weather_tool()]), StopStrings()), list(CALL))
    kinds = [type(item.event) for item in items]
    assert kinds[0] is ToolCallStart
    assert set(kinds[1:-2]) == {ToolCallDelta}
    assert kinds[-2:] == [ToolCallEnd, Finish]
    found = message(items)
    assert (found.tool_calls[0].name, found.tool_calls[0].arguments) == ("weather", '{"city": "Oslo"}')
    assert found.finish_reason == "tool_calls"


@pytest.mark.parametrize("cut", range(1, len(CALL)))
@pytest.mark.parametrize("reason", ["length", "cancelled"])
def test_a_marker_that_is_cut_is_no_text_where_only_calls_may_come(cut, reason):
    held = replace(prepared(tools=[weather_tool()]), calls_only=True)
    generation = Generation(held, StopStrings())
    if reason == "cancelled":
        items = [*generation.feed(TextPiece(0, CALL[:cut])), *generation.cancel()]
    else:
        items = run(generation, [CALL[:cut]], "length")
    assert message(items).content == ""
    assert items[-1] == TurnEvent(0, Finish(reason))


def test_a_stop_string_within_a_marker_leaves_no_text_where_only_calls_may_come():
    held = replace(prepared(tools=[weather_tool()]), calls_only=True)
    found = message(run(Generation(held, StopStrings(("_call",))), list(CALL)))
    assert (found.content, found.finish_reason) == ("", "stop")


def test_without_tools_call_markup_is_content():
    assert message(run(Generation(prepared(), StopStrings()), [CALL])).content == CALL


@pytest.mark.parametrize("pieces", all_splits("one END two"), ids=repr)
def test_a_stop_string_ends_the_choice_however_it_is_cut(pieces):
    generation = Generation(prepared(), StopStrings(("END",)))
    found = message(run(generation, pieces, reason="length"))
    assert (found.content, found.finish_reason) == ("one ", "stop")
    assert generation.is_done


TWO_CALLS = CALL + "\n" + CALL.replace("Oslo", "Rome") + " done"


@pytest.mark.parametrize("pieces", [[TWO_CALLS], list(TWO_CALLS)], ids=["whole", "char by char"])
@pytest.mark.parametrize(
    ("stop", "calls", "reason"),
    [
        ('": {"city', [("", "truncated")], "stop"),
        ("lo", [('{"city": "Os', "truncated")], "stop"),
        ('"}}\n</tool', [('{"city": "Oslo', "truncated")], "stop"),
        ("Rome", [('{"city": "Oslo"}', "ok"), ('{"city": "', "truncated")], "stop"),
        ("</tool_call>", [('{"city": "Oslo"}', "ok")], "tool_calls"),
        ("<tool_call>\n{", [], "stop"),
        (" done", [('{"city": "Oslo"}', "ok"), ('{"city": "Rome"}', "ok")], "tool_calls"),
    ],
)
def test_a_stop_string_in_a_call_cuts_it_and_nothing_is_made_up(pieces, stop, calls, reason):
    """Audit of 2026-11-30: a call cut by "lo" went out as {"city": "Os"}, finished, with the reason tool_calls."""
    items = run(Generation(prepared(tools=[weather_tool()]), StopStrings((stop,))), pieces)
    found = message(items)
    assert [(call.arguments, call.outcome) for call in found.tool_calls] == calls
    assert (found.content.strip(), found.finish_reason, items[-1].stop) == ("", reason, stop)


def test_a_name_that_a_stop_string_cut_is_no_call():
    found = message(run(Generation(prepared(tools=[weather_tool()]), StopStrings(("eather",))), list("Hm. " + CALL)))
    assert (found.content.strip(), found.tool_calls, found.finish_reason) == ("Hm.", (), "stop")


def test_a_call_cut_by_a_stop_string_is_the_only_one_where_calls_are_not_parallel():
    stop = StopStrings(("Oslo",), after_call=True)
    found = message(run(Generation(prepared(tools=[weather_tool()]), stop), list(CALL)))
    assert [call.outcome for call in found.tool_calls] == ["truncated"]
    assert found.finish_reason == "stop"


def test_text_held_back_comes_out_when_the_choice_ends():
    assert message(run(Generation(prepared(), StopStrings(("END",))), ["one E"])).content == "one E"


def test_stop_strings_count_from_min_tokens_on():
    generation = Generation(prepared(params=SamplingParams(min_tokens=3)), StopStrings(("x",)))
    found = message(run(generation, ["x", "x", "ax", "b"]))
    assert found.content == "xxa"


def test_a_choice_that_met_its_stop_string_has_ended_while_its_siblings_go_on():
    generation = Generation(prepared(n=2), StopStrings(("END",)))
    assert not generation.has_ended(0)
    items = generation.feed(TextPiece(0, "a END"))
    assert (generation.has_ended(0), generation.has_ended(1), generation.is_done) == (True, False, False)
    items += generation.feed(TextPiece(1, "b", finish_reason="length"))
    assert generation.is_done
    assert (message(items, 0).content, message(items, 0).finish_reason) == ("a ", "stop")
    assert (message(items, 1).content, message(items, 1).finish_reason) == ("b", "length")
    assert generation.usage.completion_tokens == 2


def test_cancelling_finishes_every_open_choice_once():
    generation = Generation(prepared(n=2, tools=[weather_tool()]), StopStrings(("END",)))
    items = generation.feed(TextPiece(0, "done", finish_reason="stop"))
    items += generation.feed(TextPiece(1, CALL[:50]))
    items += generation.cancel()
    assert generation.is_done
    assert message(items, 0).finish_reason == "stop"
    assert message(items, 1).finish_reason == "cancelled"
    assert message(items, 1).tool_calls[0].outcome == "truncated"
    assert [item.event for item in items].count(Finish("stop")) == 1
    assert generation.cancel() == []


def test_unparsed_text_gives_one_item_a_step_even_without_text():
    generation = Generation(prepared(dialect=None), StopStrings(), first_choice=4)
    assert run(generation, ["a", "", CALL, ""]) == [
        TurnText(4, "a"),
        TurnText(4, ""),
        TurnText(4, CALL),
        TurnText(4, "", "stop"),
    ]


def test_cancelling_unparsed_text_says_so():
    generation = Generation(prepared(dialect=None), StopStrings(("END",)))
    generation.feed(TextPiece(0, "a E"))
    assert generation.cancel() == [TurnText(0, "E", "cancelled")]


def test_tokens_count_where_their_text_went():
    generation = Generation(prepared(), StopStrings())
    for text in ("<think>", "hm", " ok", "</think>", "Yes", "."):
        generation.feed(TextPiece(0, text, num_cached_tokens=3 if text == "<think>" else None))
    generation.feed(TextPiece(0, "", finish_reason="stop"))
    assert generation.usage == Usage(prompt_tokens=7, completion_tokens=7, cached_tokens=3, reasoning_tokens=3)


def test_special_tokens_reach_the_parser_by_id_also_while_stop_strings_hold_text_back():
    generation = Generation(prepared(vocab=SPECIAL_TOKENS), StopStrings(("hmm!",)))
    items = []
    for text, ids in (("<think>", (258,)), ("hm", (1,)), ("m", (2,)), ("</think>", (259,)), ("Yes", (3,))):
        items += generation.feed(TextPiece(0, text, ids))
    items += generation.feed(TextPiece(0, "", finish_reason="stop"))
    found = message(items)
    assert (found.reasoning, found.content) == ("hmm", "Yes")


# Log-probabilities


def entry(text: str, logprob: float = -1.0) -> TokenLogprob:
    return TokenLogprob(text, logprob, (), len(text))


def with_logprobs(generation: Generation, tokens: list[str], reason: str = "stop") -> list:
    items = []
    for i, token in enumerate(tokens, 1):
        piece = TextPiece(0, token, logprobs=(entry(token),), finish_reason=reason if i == len(tokens) else None)
        items += generation.feed(piece)
        if generation.is_done:
            break
    return items


def tokens_of(items: list) -> list[str]:
    return [logprob.token for item in items for logprob in item.logprobs]


@pytest.mark.parametrize("dialect", ["hermes", None])
def test_each_token_has_its_logprob_with_the_text_it_belongs_to(dialect):
    items = with_logprobs(Generation(prepared(dialect=dialect), StopStrings()), ["a", "b", "c"])
    assert tokens_of(items) == ["a", "b", "c"]
    assert items[0].logprobs == (entry("a"),)


def test_logprobs_of_markup_wait_for_the_next_event_and_none_is_lost():
    tokens = ["<think>", "hm", "</think>", "Yes", "<tool", "_call>", "x"]
    items = with_logprobs(Generation(prepared(tools=[weather_tool()]), StopStrings()), tokens)
    assert tokens_of(items) == tokens


@pytest.mark.parametrize("dialect", ["hermes", None])
@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (["one ", "E", "N", "D", "two"], ["one "]),
        (["one ", "E", "x", "END"], ["one ", "E", "x"]),
        (["one EN", "D"], ["one "]),
        (["END"], []),
        (["a", "bEND"], ["a", "b"]),
    ],
)
def test_logprobs_leak_nothing_of_a_stop_string(dialect, tokens, expected):
    items = with_logprobs(Generation(prepared(dialect=dialect), StopStrings(("END",))), tokens)
    assert tokens_of(items) == expected


def test_tokens_inside_one_utf8_character_wait_for_it():
    generation = Generation(prepared(dialect=None), StopStrings(("é",)))
    generation.feed(TextPiece(0, "a", logprobs=(entry("a"),)))
    first = generation.feed(TextPiece(0, "", logprobs=(TokenLogprob("\ufffd", -2.0, (), 0),)))
    last = generation.feed(TextPiece(0, "é", logprobs=(TokenLogprob("\ufffd", -2.0, (), 1),)))
    assert tokens_of(first) == []
    assert tokens_of(last) == []


def test_at_the_end_tokens_without_text_come_out():
    generation = Generation(prepared(dialect=None), StopStrings())
    items = generation.feed(TextPiece(0, "", logprobs=(TokenLogprob("\ufffd", -2.0, (), 0),), finish_reason="length"))
    assert tokens_of(items) == ["\ufffd"]
