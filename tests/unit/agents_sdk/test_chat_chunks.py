"""The reading of event streams and of chat completion chunks."""

import contextlib
import itertools
import json

import pytest
from headrace import ContentDelta, HeadraceError, ProtocolError, ReasoningDelta, ServerError, ToolCallEnd, TurnDone
from headrace.chat_chunks import ChatChunkDecoder, SSEData
from headrace.message import MessageBuilder
from hypothesis import given
from hypothesis import strategies as st

STREAM = (
    ": a comment\r\n"
    "data: one\r\n\r\n"
    "event: named\nid: 7\nretry: 5\ndata:two\n\n"
    "data: a\rdata: b\r\r"
    "data\n\n"
    "event: no data\n\n"
    "data:  é\u2028\U0001f600\n\n"
    "data: cut"
).encode()
EVENTS = ["one", "two", "a\nb", "", " é\u2028\U0001f600"]


@given(st.lists(st.integers(0, len(STREAM))))
def test_the_events_are_the_same_however_the_bytes_are_cut(cuts):
    parser = SSEData()
    places = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[start:end] for start, end in itertools.pairwise(places)]
    assert [data for piece in pieces for data in parser.feed(piece)] == EVENTS


def test_the_events_are_the_same_byte_by_byte():
    parser = SSEData()
    assert [data for byte in STREAM for data in parser.feed(bytes([byte]))] == EVENTS


def decode(*chunks):
    decoder = ChatChunkDecoder()
    return [event for chunk in chunks for event in decoder.feed(json.dumps(chunk))] + list(decoder.finish())


def chunk(finish_reason=None, **delta):
    return {
        "id": "c",
        "model": "m",
        "created": 1,
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
    }


def start(index, name):
    return {"index": index, "id": f"call_{index}", "type": "function", "function": {"name": name, "arguments": ""}}


def piece(index, arguments):
    return {"index": index, "function": {"arguments": arguments}}


def message_of(events):
    builder = MessageBuilder()
    for event in events:
        builder.add(event)
    return builder.message()


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_read_under_both_of_its_names(field):
    assert ReasoningDelta("hm") in decode(chunk(**{field: "hm"}), chunk("stop"))


def test_a_call_ends_where_the_next_one_begins():
    events = decode(
        chunk(tool_calls=[start(0, "f")]),
        chunk(tool_calls=[piece(0, '{"x"')]),
        chunk(tool_calls=[piece(0, ": 1}")]),
        chunk(tool_calls=[start(1, "g")]),
        chunk(tool_calls=[piece(1, "{}")]),
        chunk("tool_calls"),
    )
    kinds = [type(event).__name__ for event in events]
    assert kinds == [
        "TurnStarted",
        *["ToolCallStart", "ToolCallDelta", "ToolCallDelta", "ToolCallEnd"],
        *["ToolCallStart", "ToolCallDelta", "ToolCallEnd"],
        "TurnDone",
    ]
    assert [call.arguments for call in message_of(events).tool_calls] == ['{"x": 1}', "{}"]


def test_calls_in_one_chunk_are_told_apart():
    first = {"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x": 1}'}}
    second = {"index": 1, "id": "b", "function": {"name": "g", "arguments": "{}"}}
    message = message_of(decode(chunk(tool_calls=[first, second]), chunk("tool_calls")))
    assert [(call.id, call.name, call.arguments) for call in message.tool_calls] == [
        ("a", "f", '{"x": 1}'),
        ("b", "g", "{}"),
    ]


def test_a_call_ends_where_text_begins():
    events = decode(
        chunk(tool_calls=[start(0, "f")]), chunk(tool_calls=[piece(0, "{}")]), chunk(content="x"), chunk("stop")
    )
    assert events.index(ToolCallEnd(0, "{}", "ok", None)) < events.index(ContentDelta("x"))


@pytest.mark.parametrize(
    ("arguments", "finish_reason", "outcome"),
    [
        ("{}", "tool_calls", "ok"),
        ('{"x": [1, {"y": null}]}', "stop", "ok"),
        ("{}", "length", "ok"),
        ("[1]", "tool_calls", "invalid"),
        ("{x: 1}", "tool_calls", "invalid"),
        ("", "tool_calls", "invalid"),
        ('{"x": ', "length", "truncated"),
        ('{"x": ', "cancelled", "truncated"),
    ],
)
def test_the_outcome_of_a_call_is_judged_by_its_text(arguments, finish_reason, outcome):
    events = decode(chunk(tool_calls=[start(0, "f")]), chunk(tool_calls=[piece(0, arguments)]), chunk(finish_reason))
    [call] = message_of(events).tool_calls
    assert (call.arguments, call.outcome) == (arguments, outcome)


def test_only_the_first_choice_is_read():
    other = {"choices": [{"index": 1, "delta": {"content": "other"}, "finish_reason": None}]}
    assert message_of(decode(chunk(content="first"), other, chunk("stop"))).content == "first"


def test_usage_comes_with_the_end():
    usage = {"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 3}}
    done = decode(chunk(content="a"), chunk("stop"), usage)[-1]
    assert isinstance(done, TurnDone)
    assert done.usage is not None
    assert (done.usage.total_tokens, done.usage.cached_tokens) == (5, 0)


def test_an_error_chunk_raises():
    with pytest.raises(ServerError, match="died"):
        decode(chunk(content="a"), {"error": {"message": "died", "type": "server_error"}})


@pytest.mark.parametrize(
    "bad",
    [
        [],
        5,
        chunk("no_such_reason"),
        chunk(tool_calls=[piece(0, "{}")]),
        chunk(tool_calls=[{"index": 0, "function": {"name": "f"}}]),
    ],
)
def test_what_is_no_chunk_raises(bad):
    with pytest.raises(ProtocolError):
        decode(bad)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "delta",
                    "index",
                    "tool_calls",
                    "function",
                    "name",
                    "arguments",
                    "id",
                    "content",
                    "usage",
                    "error",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.lists(JSON, max_size=4))
def test_no_chunk_whatever_raises_anything_but_errors_of_ours(chunks):
    with contextlib.suppress(HeadraceError):
        decode(*chunks, chunk("stop"))
