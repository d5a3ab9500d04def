import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_parser import UpstreamNormalizer, collect
from stream_parser.events import ContentDelta, Finish, ReasoningDelta, ToolCallDelta, ToolCallEnd, ToolCallStart
from stream_parser.upstream_chunk import read_chunk
from tests.testkit.parser_streams import check_promises, tool

TOOLS = [
    tool("start_pump"),
    tool("read_gauge", ["station"], station={"type": "string"}),
    tool("read_gauge_history", station={"type": "string"}, days={"type": "integer"}),
    tool("open_gate", gate={"type": "string"}, percent={"type": "integer"}),
]


def fragment(index=None, call_id=None, name=None, arguments=None):
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    head = {key: value for key, value in (("index", index), ("id", call_id)) if value is not None}
    return {**head, "function": function}


def chunk(*fragments, finish=None, **delta):
    if fragments:
        delta["tool_calls"] = list(fragments)
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def normalize(*chunks, done=True, tools=TOOLS, **options):
    normalizer = UpstreamNormalizer(tools, **options)
    steps = [normalizer.feed(each) for each in chunks]
    steps.append(normalizer.finish(done=done))
    check_promises([event for step in steps for event in step])
    return steps


def message(*chunks, **options):
    return collect(event for step in normalize(*chunks, **options) for event in step)


def test_events_come_as_soon_as_they_are_certain():
    steps = normalize(
        chunk(fragment(0, "c1", "open_gate", "")),
        chunk(fragment(0, arguments='{"gate": "ea')),
        chunk(fragment(0, arguments='st"}')),
        chunk(fragment(1, "c2", "start_pump", "")),
        chunk(finish="tool_calls"),
    )
    assert steps == [
        [ToolCallStart(0, "c1", "open_gate")],
        [ToolCallDelta(0, '{"gate": "ea')],
        [ToolCallDelta(0, 'st"}'), ToolCallEnd(0, '{"gate": "east"}', "ok", "")],
        [ToolCallStart(1, "c2", "start_pump")],
        [],
        [ToolCallDelta(1, "{}"), ToolCallEnd(1, "{}", "ok", ""), Finish("tool_calls")],
    ]


def test_a_name_that_may_go_on_waits_for_the_first_argument():
    steps = normalize(chunk(fragment(0, "c1", "read_gauge", "")), chunk(fragment(0, arguments='{"station')))
    assert steps[0] == []
    assert steps[1] == [ToolCallStart(0, "c1", "read_gauge"), ToolCallDelta(0, "{")]


def test_a_call_that_may_be_a_copy_waits_until_it_is_whole_and_others_wait_behind_it():
    steps = normalize(
        chunk(fragment(0, "c1", "open_gate", '{"gate": "east"}')),
        chunk(fragment(1, "c1", "open_gate", '{"gate": "we')),
        chunk(fragment(2, "c3", "start_pump", "")),
        chunk(fragment(1, arguments='st"}')),
    )
    assert [len(step) for step in steps] == [3, 0, 0, 4, 3]
    assert [event.id for step in steps for event in step if isinstance(event, ToolCallStart)] == ["c1", "c1-2", "c3"]


def test_a_copy_of_a_call_that_never_became_json_is_a_call_of_its_own():
    result = message(
        chunk(fragment(0, "c1", "open_gate", '{"gate": "ea')),
        chunk(fragment(1, "c1", "open_gate", '{"gate": "east"}')),
    )
    assert [call.outcome for call in result.tool_calls] == ["truncated", "ok"]


def test_two_copies_that_are_both_cut_are_one():
    result = message(
        chunk(fragment(0, "c1", "open_gate", '{"gate": "ea')),
        chunk(fragment(1, "c1", "open_gate", '{"gate": "ea')),
        chunk(finish="length"),
    )
    assert [call.arguments for call in result.tool_calls] == ['{"gate": "ea']


def test_a_second_name_that_fits_no_tool_is_ignored():
    result = message(chunk(fragment(0, "c1", "read_gauge", "")), chunk(fragment(0, "c1", "bogus", '{"station": "N4"}')))
    assert [call.name for call in result.tool_calls] == ["read_gauge"]


def test_an_object_that_is_no_json_behind_whole_arguments_is_another_call():
    result = message(
        chunk(fragment(0, "c1", "open_gate", '{"gate": "east"}')),
        chunk(fragment(0, "c1", "open_gate", "{'gate': 'west'}")),
    )
    assert [json.loads(call.arguments)["gate"] for call in result.tool_calls] == ["east", "west"]


def test_a_repeated_name_without_ids_opens_a_call_behind_whole_arguments():
    result = message(
        chunk(fragment(0, None, "open_gate", '{"gate": "east"}')),
        chunk(fragment(0, None, "open_gate", '{"gate": "east"}')),
    )
    assert len(result.tool_calls) == 2


def test_minted_ids_come_from_the_given_source_and_stay_unique():
    ids = iter(["a", "a", "b"])
    result = message(
        chunk(
            fragment(0, None, "start_pump", "{}"), fragment(1, None, "start_pump", "{}"), fragment(2, "b", "start_pump")
        ),
        id_source=lambda: next(ids),
    )
    assert [call.id for call in result.tool_calls] == ["a", "a-2", "b"]


def test_default_ids_are_random():
    first, second = (message(chunk(fragment(0, None, "start_pump"))).tool_calls[0].id for _ in range(2))
    assert first.startswith("call_")
    assert first != second


def test_another_choice_may_be_read():
    two = {"choices": [{"index": 0, "delta": {"content": "A"}}, {"index": 1, "delta": {"content": "B"}}]}
    assert message(two, chunk(finish="stop"), choice=1).content == "B"


def test_recovered_calls_are_cut_like_all_others():
    steps = normalize(
        chunk(content='<tool_call>\n{"name": "open_gate", "arguments": {"gate": "ea'),
        chunk(finish="length"),
        content_dialect="hermes",
    )
    assert steps[-1][-1] == Finish("length")
    result = collect(event for step in steps for event in step)
    assert [(call.arguments, call.outcome) for call in result.tool_calls] == [('{"gate": "ea', "truncated")]


def test_text_streams_piece_by_piece():
    assert normalize(chunk(reasoning="a", content="b"), chunk(content="c")) == [
        [ReasoningDelta("a"), ContentDelta("b")],
        [ContentDelta("c")],
        [Finish("stop")],
    ]


def test_after_the_end_nothing_is_fed():
    normalizer = UpstreamNormalizer()
    normalizer.finish(done=True)
    with pytest.raises(AssertionError):
        normalizer.feed({})
    with pytest.raises(AssertionError):
        normalizer.finish(done=True)


def test_fields_that_cannot_be_read_are_not_there():
    deep = "x"
    for _ in range(50):
        deep = [{"content": deep}]
    endless = {}
    endless["a"] = endless
    odd = {
        "tool_calls": [
            {"index": float("inf"), "function": {"name": "start_pump", "arguments": endless}},
            {"index": True, "id": False, "function": {"name": 5, "arguments": "{"}},
            {"index": "one", "function": {"name": "start_pump"}},
        ]
    }
    read = read_chunk(chunk(content=deep, **odd), 0)
    assert read.content == ""
    assert [each.index for each in read.fragments] == [None, None, None]
    assert read.fragments[0].arguments == ""
    assert read.fragments[1].id == read.fragments[1].name == ""


json_text = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
known_keys = st.sampled_from(
    [
        "choices", "delta", "message", "index", "id", "tool_calls", "function", "function_call", "name", "arguments",
        "content", "reasoning", "finish_reason", "error", "type", "text", "response", "done",
    ]
)  # fmt: skip
odd_texts = st.sampled_from(["", "{", "}", "{}", '{"a": 1}', "stop", "start_pump", "x"])
odd_chunks = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2) | odd_texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(known_keys, inner, max_size=5),
    max_leaves=20,
)
deltas = st.dictionaries(known_keys, odd_chunks, max_size=4)
wrapped = st.builds(lambda delta, reason: chunk(**{**delta, "finish": reason}), deltas, odd_chunks)


@given(chunks=st.lists(odd_chunks | wrapped | json_text, max_size=6), done=st.booleans())
def test_no_chunk_makes_it_raise_or_break_a_promise(chunks, done):
    normalize(*chunks, done=done)
    normalize(*chunks, done=done, content_dialect="hermes")


calls = st.lists(
    st.one_of(
        st.tuples(
            st.just("open_gate"),
            st.fixed_dictionaries({"gate": st.text(max_size=8)}, optional={"percent": st.integers()}),
        ),
        st.tuples(st.just("read_gauge"), st.fixed_dictionaries({"station": st.text(max_size=8)})),
        st.tuples(st.just("start_pump"), st.just({})),
    ),
    max_size=4,
)


def split(text, marks):
    places = sorted({int(mark * len(text)) for mark in marks})
    return [piece for piece in (text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)) if piece]


def streams(name, text, index, call_id, habit, marks):
    """The fragments with which a provider of this habit sends one call."""
    pieces = split(text, marks)
    if habit == "snapshots":
        pieces = ["".join(pieces[: end + 1]) for end in range(len(pieces))]
    first = fragment(index, call_id, name, "" if habit != "placeholder" else "{}")
    rest = [fragment(index, None, None, piece) for piece in pieces]
    if habit == "repeats id and name":
        rest = [fragment(index, call_id, name, piece) for piece in pieces]
    if habit == "resends":
        rest.append(fragment(index, None, None, text))
    if habit == "no index":
        first, rest = fragment(None, call_id, name, ""), [fragment(None, call_id, None, piece) for piece in pieces]
    if habit == "whole without id":
        return [fragment(index, None, name, text)]
    return [first, *rest]


@pytest.mark.parametrize(
    "habit",
    [
        "proper",
        "snapshots",
        "placeholder",
        "repeats id and name",
        "resends",
        "no index",
        "whole without id",
        "one index",
    ],
)
@given(wanted=calls, marks=st.lists(st.floats(0, 1), max_size=4))
def test_whatever_a_provider_s_habit_the_calls_are_the_same(habit, wanted, marks):
    chunks = []
    for number, (name, arguments) in enumerate(wanted):
        index = 0 if habit in ("one index", "whole without id") else number
        fragments = streams(name, json.dumps(arguments), index, f"c{number}", habit, marks)
        chunks += [chunk(each) for each in fragments]
    result = message(*chunks, chunk(finish="tool_calls"))
    assert [(call.name, json.loads(call.arguments)) for call in result.tool_calls] == wanted
    assert all(call.outcome in ("ok", "repaired") for call in result.tool_calls)
