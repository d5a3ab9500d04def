"""The bookkeeping of calls: order of events, ids, outcomes, and names in ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_parser.calls import CallWriter, IdSource, random_id, resolve_counted_name
from stream_parser.dialect import IdShape
from stream_parser.events import Event, ReasoningDelta, ToolCallDelta, ToolCallEnd, ToolCallStart
from stream_parser.schema import ToolIndex
from tests.testkit.parser_streams import tool

STRICT = tool("ping", ["host"], host={"type": "string"})


def writer(
    shape: IdShape = "call", id_source: IdSource | None = lambda: "c", tools: object = None
) -> tuple[CallWriter, list[Event]]:
    out: list[Event] = []
    return CallWriter(ToolIndex([STRICT] if tools is None else None), out, shape, id_source), out


def one_call(arguments: str, *reasons: str) -> ToolCallEnd:
    calls, out = writer()
    calls.begin("ping")
    calls.write(arguments)
    calls.note(*reasons)
    calls.end()
    end = out[-1]
    assert isinstance(end, ToolCallEnd)
    return end


def test_a_call_starts_grows_and_ends_and_the_next_has_the_next_index() -> None:
    calls, out = writer(id_source=iter(["a", "b"]).__next__)
    assert (calls.index, calls.is_open, calls.tool) == (-1, False, None)
    calls.begin("ping")
    assert (calls.index, calls.is_open) == (0, True)
    assert calls.tool is not None
    assert calls.tool.name == "ping"
    calls.write("")
    calls.write('{"host": ')
    calls.write('"db"}')
    calls.end()
    assert (calls.is_open, calls.tool) == (False, None)
    calls.begin("other")
    assert calls.tool is None
    calls.end()
    assert out == [
        ToolCallStart(0, "a", "ping"),
        ToolCallDelta(0, '{"host": '),
        ToolCallDelta(0, '"db"}'),
        ToolCallEnd(0, '{"host": "db"}', "ok", ""),
        ToolCallStart(1, "b", "other"),
        ToolCallDelta(1, "{}"),
        ToolCallEnd(1, "{}", "ok", ""),
    ]


def test_a_note_makes_a_good_call_a_repaired_one_and_says_each_reason_once() -> None:
    assert one_call('{"host": "db"}', "quotes", "colon", "quotes") == ToolCallEnd(
        0, '{"host": "db"}', "repaired", "quotes,colon"
    )


def test_a_call_off_its_schema_is_invalid_and_keeps_the_notes() -> None:
    end = one_call("{}", "quotes")
    assert (end.arguments, end.outcome) == ("{}", "invalid")
    assert end.reason.startswith("quotes,")
    assert one_call("[1]").outcome == "invalid"


def test_notes_of_one_call_are_not_said_of_the_next() -> None:
    calls, out = writer(tools=[])
    calls.begin("a")
    calls.note("quotes")
    calls.end()
    calls.begin("b")
    calls.end()
    assert [(e.outcome, e.reason) for e in out if isinstance(e, ToolCallEnd)] == [("repaired", "quotes"), ("ok", "")]


def test_what_the_check_adds_is_streamed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_parser.calls.schema.check", lambda tool, text, said: (text + "}", "repaired", "x"))
    calls, out = writer()
    calls.begin("ping")
    calls.write('{"host": "db"')
    calls.end()
    assert out[-2:] == [ToolCallDelta(0, "}"), ToolCallEnd(0, '{"host": "db"}', "repaired", "x")]


def test_a_cut_call_ends_as_it_stands() -> None:
    calls, out = writer()
    calls.begin("ping")
    calls.cut("cut")
    calls.begin("ping")
    calls.write('{"ho')
    calls.cut("length")
    assert [event for event in out if isinstance(event, ToolCallEnd)] == [
        ToolCallEnd(0, "", "truncated", "cut"),
        ToolCallEnd(1, '{"ho', "truncated", "length"),
    ]


def test_calls_out_of_order_are_bugs() -> None:
    calls, _ = writer()
    for method in (calls.end, lambda: calls.write("x"), lambda: calls.cut("x")):
        with pytest.raises(AssertionError, match="no call is open"):
            method()
    calls.begin("a")
    with pytest.raises(AssertionError, match="still open"):
        calls.begin("b")


def test_forgetting_keeps_a_call_that_is_open_as_the_first() -> None:
    calls, out = writer(id_source=iter("abc").__next__)
    calls.begin("ping")
    calls.end()
    out.append(ReasoningDelta("old"))
    calls.begin("ping")
    out.append(ReasoningDelta("odd"))
    calls.write("{")
    calls.forget_closed()
    assert out == [ToolCallStart(0, "b", "ping"), ToolCallDelta(0, "{")]
    calls.write("}")
    calls.cut("cut")
    assert out[-1] == ToolCallEnd(0, "{}", "truncated", "cut")
    calls.forget_closed()
    assert out == []
    calls.begin("ping")
    assert out == [ToolCallStart(0, "c", "ping")]


@pytest.mark.parametrize(
    ("shape", "wire", "ids"),
    [
        ("call", ["", "", ""], ["n1", "n2", "n3"]),
        ("call", ["x", "x", "x", ""], ["x", "x-2", "x-3", "n1"]),
        ("call", ["n1", "", ""], ["n1", "n1-2", "n2"]),
        ("functions_counter", ["", ""], ["functions.ping:0", "functions.ping:1"]),
        ("functions_counter", ["functions.ping:1", ""], ["functions.ping:1", "functions.ping:1-2"]),
        ("name_counter", ["", ""], ["ping:1", "ping:2"]),
        ("alnum9", ["", "abc"], ["n1", "abc"]),
    ],
)
def test_ids_of_the_wire_are_kept_others_minted_and_none_comes_twice(
    shape: IdShape, wire: list[str], ids: list[str]
) -> None:
    numbers = iter(range(1, 9))
    calls, out = writer(shape, lambda: f"n{next(numbers)}")
    for wire_id in wire:
        calls.begin("ping", wire_id)
        calls.cut("")
    assert [event.id for event in out if isinstance(event, ToolCallStart)] == ids


def test_a_source_that_repeats_itself_does_not_hang() -> None:
    calls, out = writer(id_source=lambda: "same")
    for _ in range(3):
        calls.begin("ping")
        calls.cut("")
    assert [event.id for event in out if isinstance(event, ToolCallStart)] == ["same", "same-2", "same-3"]


def test_ids_without_a_source_are_random_and_have_their_dialects_form() -> None:
    assert random_id("call") != random_id("call")
    assert random_id("call").startswith("call_")
    assert len(random_id("call")) == 29
    assert len(random_id("alnum9")) == 9
    assert random_id("alnum9").isalnum()
    calls, out = writer("alnum9", id_source=None)
    calls.begin("ping")
    assert isinstance(out[0], ToolCallStart)
    assert len(out[0].id) == 9


@pytest.mark.parametrize(
    ("wire", "names", "name"),
    [
        ("functions.ping:0", [], "ping"),
        ("functions.ping:0", ["ping"], "ping"),
        ("functions_ping_3", ["ping"], "ping"),
        ("ping", ["ping"], "ping"),
        ("ping:12", [], "ping"),
        ("ping_2", ["ping_2"], "ping_2"),
        ("ping_2", ["ping"], "ping"),
        ("ping_2", [], "ping_2"),
        ("functions.ping_2", ["ping_2", "ping"], "ping_2"),
        ("functions.mcp.read-file:0", [], "mcp.read-file"),
        ("functions.v2:1", ["v"], "v2"),
        ("functions.v2:1", [], "v2"),
        ("functions.read_:0", ["read"], "read"),
        ("functions_ping", ["ping"], "ping"),
        ("a:b", [], "a:b"),
        ("a:b:0", [], "a:b"),
        ("3", [], ""),
        ("functions.3", [], ""),
        (":3", [], ""),
        ("functions.f:0", ["functions.f"], "functions.f"),
        ("functions.f:0", ["functions.f:0"], "functions.f:0"),
        ("", [], ""),
    ],
)
def test_names_are_read_from_ids_and_declared_names_decide(wire: str, names: list[str], name: str) -> None:
    assert resolve_counted_name(wire, names) == name


@given(st.from_regex(r"[a-z][a-z0-9_.-]{0,20}[a-z]", fullmatch=True), st.integers(0, 10**6))
def test_a_name_comes_back_from_the_id_made_of_it(name: str, number: int) -> None:
    for wire in (f"functions.{name}:{number}", f"{name}:{number}"):
        assert resolve_counted_name(wire, [name]) == name
    assert resolve_counted_name(f"functions.{name}:{number}", []) == name.removeprefix("functions.")
