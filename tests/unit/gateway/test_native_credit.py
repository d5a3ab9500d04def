"""Credit: a turn sends no more than its client has granted, and no other turn waits for it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.scripted import Match, ScriptLine
from tests.testkit.gateway_kit import running_gateway, scripted, weather_tool
from tests.testkit.native_client import NativeClient, native_client

TEXT = "one two three four five six seven eight nine ten " * 4
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo, where the fjord is"}}\n</tool_call>'
LINES = (
    ScriptLine(CALL, match=Match(contains="weather"), repeat=True, chunk=5),
    ScriptLine(TEXT, repeat=True, match=Match(contains="long")),
    ScriptLine("Hello there.", repeat=True),
)


@asynccontextmanager
async def client_of(*lines: ScriptLine, **config: Any) -> AsyncIterator[NativeClient]:
    async with running_gateway(scripted(*(lines or LINES)), **config) as gateway:
        async with native_client(gateway) as client:
            yield client
        await gateway.settled()


async def grant(client: NativeClient, turn: str, credit: int) -> None:
    await client.send({"type": "turn.credit", "turn": turn, "credit": credit})


async def read_chars(client: NativeClient, turn: str, num_chars: int) -> None:
    while len(client.text(turn)) + len(client.arguments(turn)) < num_chars:
        await client.recv()
    assert len(client.text(turn)) + len(client.arguments(turn)) == num_chars


async def test_a_turn_sends_exactly_its_credit_and_goes_on_with_more():
    async with client_of() as client:
        await client.create("t", "long", credit=10)
        await read_chars(client, "t", 10)
        await client.nothing_comes()
        for credit in (1, 5, 30):
            num_chars = len(client.text("t"))
            await grant(client, "t", credit)
            await read_chars(client, "t", num_chars + credit)
            await client.nothing_comes()
        await grant(client, "t", 10_000)
        await client.ended("t")
        assert client.text("t") == TEXT
        assert client.frames[-1]["finish_reason"] == "stop"


async def test_deltas_that_wait_for_credit_come_as_one():
    async with running_gateway(scripted(*LINES)) as gateway, native_client(gateway) as client:
        await client.create("t", "long", credit=0)
        await client.until("turn.created")
        while gateway.app.admission.num_live:
            await asyncio.sleep(0.002)
        await client.nothing_comes()
        await grant(client, "t", 10_000)
        await client.ended("t")
        assert client.kinds("t") == ["turn.created", "content.delta", "turn.done"]
        assert client.text("t") == TEXT


async def test_a_turn_out_of_credit_does_not_slow_another():
    async with client_of() as client:
        await client.create("starved", "long", credit=3)
        for i in range(5):
            await client.create(f"t{i}", "long")
        await client.ended(*(f"t{i}" for i in range(5)))
        assert client.text("t4") == TEXT
        assert client.text("starved") == "one"
        await client.send({"type": "turn.cancel", "turn": "starved"})
        await client.ended("starved")


@pytest.mark.parametrize("credit", [1, 3, 7])
async def test_arguments_of_calls_are_counted_and_joined_are_whole(credit):
    async with client_of() as client:
        await client.create("t", "weather", tools=[weather_tool()], credit=credit)
        while "turn.done" not in client.kinds("t"):
            frame = await client.recv()
            if frame["type"] == "tool_call.delta":
                assert len(frame["arguments"]) <= credit
                await grant(client, "t", len(frame["arguments"]))
        end = client.of("t")[-2]
        assert (end["type"], end["outcome"]) == ("tool_call.end", "ok")
        assert client.arguments("t") == end["arguments"] == '{"city": "Oslo, where the fjord is"}'


async def test_credit_counts_characters_and_not_bytes():
    async with client_of(ScriptLine("日本🙂é" * 5)) as client:
        await client.create("t", credit=6)
        await read_chars(client, "t", 6)
        assert client.text("t") == "日本🙂é日本"
        await grant(client, "t", 100)
        await client.ended("t")
        assert client.text("t") == "日本🙂é" * 5


async def test_a_cancel_out_of_credit_is_answered_at_once_and_without_more_text():
    async with client_of() as client:
        await client.create("t", "long", credit=4)
        await read_chars(client, "t", 4)
        await client.send({"type": "turn.cancel", "turn": "t"})
        done = await client.until("turn.done", "t")
        assert done["finish_reason"] == "cancelled"
        assert client.text("t") == "one "


async def test_a_call_cut_by_a_cancel_ends_with_the_arguments_that_came():
    async with client_of() as client:
        await client.create("t", "weather", tools=[weather_tool()], credit=6)
        await read_chars(client, "t", 6)
        await client.nothing_comes()
        await client.send({"type": "turn.cancel", "turn": "t"})
        await client.ended("t")
        assert client.kinds("t")[-2:] == ["tool_call.end", "turn.done"]
        end = client.of("t")[-2]
        assert (end["arguments"], end["outcome"]) == (client.arguments("t"), "truncated")
        assert len(end["arguments"]) == 6
        assert client.frames[-1]["finish_reason"] == "cancelled"


@pytest.mark.parametrize("line", [ScriptLine(TEXT), ScriptLine(TEXT * 2000)], ids=["ended", "running"])
async def test_a_client_that_never_sends_credit_gets_an_error_and_its_lane_goes_on(line):
    async with client_of(line, ScriptLine("Hello there."), slow_reader_timeout_s=0.2) as client:
        await client.create("t", credit=2, lane="a")
        await client.create("next", lane="a")
        error = (await client.until("turn.error", "t"))["error"]
        assert (error["status"], error["code"]) == (503, "slow_reader")
        assert client.text("t") == "on"
        await client.ended("next")
        assert client.text("next") == "Hello there."


async def test_a_trickle_of_credit_keeps_a_turn_alive():
    async with client_of(ScriptLine("abcdefghij"), slow_reader_timeout_s=0.3) as client:
        await client.create("t", credit=1)
        for _ in range(9):
            await asyncio.sleep(0.05)
            await grant(client, "t", 1)
        await client.ended("t")
        assert client.text("t") == "abcdefghij"


async def test_credit_without_a_limit_or_without_a_turn_changes_nothing():
    async with client_of() as client:
        await grant(client, "gone", 5)
        await client.create("t", "long")
        await grant(client, "t", 5)
        await client.ended("t")
        assert client.text("t") == TEXT
        await client.nothing_comes()


@pytest.mark.parametrize(
    ("frame", "code", "param"),
    [
        ({"type": "turn.credit", "turn": "t"}, "missing_required_parameter", "credit"),
        ({"type": "turn.credit", "turn": "t", "credit": 0}, "invalid_value", "credit"),
        ({"type": "turn.credit", "turn": "t", "credit": "5"}, "invalid_type", "credit"),
        ({"type": "turn.credit", "credit": 5}, "missing_required_parameter", "turn"),
    ],
)
async def test_bad_credit_is_an_error_of_the_connection(frame, code, param):
    async with client_of() as client:
        await client.send(frame)
        error = (await client.until("error"))["error"]
        assert (error["code"], error["param"]) == (code, param)


async def test_bad_credit_of_a_new_turn_is_an_error_of_that_turn():
    async with client_of() as client:
        await client.send({"type": "turn.create", "turn": "t", "messages": [], "credit": -1})
        error = (await client.until("turn.error", "t"))["error"]
        assert (error["code"], error["param"]) == ("invalid_value", "credit")
