"""Lanes of the native protocol whose turns build on each other: what fails with a turn, and what goes on."""

import asyncio
from typing import Any

import pytest

from inference.errors import EngineUnavailable
from tests.testkit.gateway_kit import (
    ByteTokenizer,
    FakeEngine,
    FakeTokens,
    model_backend,
    running_gateway,
    token_chunks,
)
from tests.testkit.native_client import NativeClient, native_client, resumed

CONTINUE = {"continue": True}


class Bench:
    """Turns of one lane, `l`, on an engine that answers when the test says so."""

    def __init__(self, client: NativeClient, engine: FakeEngine) -> None:
        self.client = client
        self.engine = engine

    async def create(self, turn: str, session: str | None = "s", *, begins: bool = False, **fields: Any) -> None:
        scope = {} if session is None else {"session": session} | ({} if begins else CONTINUE)
        await self.client.create(turn, turn, lane="l", **{**scope, **fields})

    async def running(self, turn: str) -> FakeTokens:
        """The only turn that runs, which has to be this one."""
        while not self.engine.live:
            await asyncio.sleep(0.002)
        [tokens] = self.engine.live.values()
        assert f"user\n{turn}<" in ByteTokenizer().decode(tokens.request.prompt_token_ids)
        return tokens

    async def answer(self, turn: str) -> None:
        tokens = await self.running(turn)
        for chunk in token_chunks(tokens.request, f"re {turn}"):
            tokens.push(chunk)
        await self.client.ended(turn)

    async def fail(self, turn: str) -> None:
        (await self.running(turn)).push(EngineUnavailable("gone"))
        await self.client.ended(turn)

    def code(self, turn: str) -> str:
        return str(self.client.of(turn)[-1]["error"]["code"])


def lane_errors(client: NativeClient) -> list[dict[str, Any]]:
    return [frame for frame in client.frames if frame["type"] == "error"]


async def test_what_continues_a_session_behind_a_turn_that_failed_fails_with_it_and_never_runs():
    engine = FakeEngine()
    async with running_gateway(model_backend(engine)) as gateway, native_client(gateway) as client:
        bench = Bench(client, engine)
        await bench.create("a", begins=True)
        for turn in ("b", "c"):
            await bench.create(turn)
        await bench.fail("a")
        await client.ended("b", "c")

        [error] = lane_errors(client)
        assert (error["lane"], error["turns"]) == ("l", ["b", "c"])
        assert (error["error"]["status"], error["error"]["code"]) == (424, "previous_turn_failed")
        assert "'a' of the session 's' failed (engine_unavailable)" in error["error"]["message"]
        for turn in ("b", "c"):
            [end] = client.of(turn)
            assert (end["type"], end["seq"], end["error"]) == ("turn.error", 0, error["error"])
        kinds = [(frame["type"], frame.get("turn")) for frame in client.frames[-4:]]
        assert kinds == [("turn.error", "a"), ("error", None), ("turn.error", "b"), ("turn.error", "c")]
        assert len(engine.requests) == 1

        # The lane goes on, and so do the ids.
        await bench.create("a", begins=True)
        await bench.create("b")
        await bench.answer("a")
        await bench.answer("b")
        assert client.text("b") == "re b"


@pytest.mark.parametrize(
    ("cause", "code"), [("gone", "session_not_found"), ("busy", "session_busy"), ("other tools", "invalid_value")]
)
async def test_a_session_that_cannot_be_continued_ends_all_that_waits_to_do_so(cause, code):
    engine = FakeEngine()
    async with running_gateway(model_backend(engine)) as gateway, native_client(gateway) as client:
        bench = Bench(client, engine)
        await bench.create("first", None)
        await bench.running("first")
        session = "unknown" if cause == "gone" else "s"
        tools = {"tools": [{"type": "function", "function": {"name": "f"}}]} if cause == "other tools" else {}
        if cause != "gone":
            await client.create("elsewhere", session="s")
            await client.until("turn.created", "elsewhere")
        for turn in ("a", "b"):
            await bench.create(turn, session, **(tools if turn == "a" else {}))
        tokens = {bytes(t.request.prompt_token_ids).decode().split("\n")[1]: t for t in engine.live.values()}
        if cause == "other tools":
            for chunk in token_chunks(tokens["Hi<|im_end|>"].request, "ok"):
                tokens["Hi<|im_end|>"].push(chunk)
            await client.ended("elsewhere")
        for chunk in token_chunks(tokens["first<|im_end|>"].request, "ok"):
            tokens["first<|im_end|>"].push(chunk)
        await client.ended("first", "a", "b")
        assert (bench.code("a"), bench.code("b")) == (code, "previous_turn_failed")
        assert [error["turns"] for error in lane_errors(client)] == [["b"]]


async def test_only_turns_that_build_on_the_failed_one_fail_with_it():
    engine = FakeEngine()
    async with running_gateway(model_backend(engine)) as gateway, native_client(gateway) as client:
        bench = Bench(client, engine)
        await client.create("other lane", session="t", lane="m")
        await bench.create("a", begins=True)
        await client.until("turn.created", "a")
        await bench.create("alone", None)
        await bench.create("other session", "u", begins=True)
        await bench.create("cancelled")
        await bench.create("b")
        await bench.create("anew", begins=True)
        await bench.create("c")
        await client.send({"type": "turn.cancel", "turn": "cancelled"})
        await client.ended("cancelled")
        other, failing = engine.live.values()
        for chunk in token_chunks(other.request, "ok"):
            other.push(chunk)
        await client.ended("other lane")
        failing.push(EngineUnavailable("gone"))
        await client.ended("a", "b")
        assert [error["turns"] for error in lane_errors(client)] == [["b"]]
        for turn in ("alone", "other session", "anew", "c"):
            await bench.answer(turn)
        assert [client.text(turn) for turn in ("alone", "anew", "c")] == ["re alone", "re anew", "re c"]
        assert client.of("cancelled")[-1]["finish_reason"] == "cancelled"


async def test_a_cancelled_turn_counts_and_what_continues_its_session_goes_on():
    engine = FakeEngine()
    async with running_gateway(model_backend(engine)) as gateway, native_client(gateway) as client:
        bench = Bench(client, engine)
        await bench.create("a", begins=True)
        await bench.create("b")
        await bench.running("a")
        await client.send({"type": "turn.cancel", "turn": "a"})
        await client.ended("a")
        await bench.answer("b")
        assert (lane_errors(client), client.text("b")) == ([], "re b")


@pytest.mark.parametrize("subprotocols", [(), ("headrace.v1.msgpack",)])
async def test_turns_that_a_lane_error_ended_say_so_after_a_resume(subprotocols: tuple[str, ...]):
    engine = FakeEngine()
    async with running_gateway(model_backend(engine)) as gateway:
        async with native_client(gateway, subprotocols=subprotocols) as first:
            bench = Bench(first, engine)
            await bench.create("a", begins=True)
            await bench.create("b")
            tokens = await bench.running("a")
            await first.until("turn.created", "a")
            await first.nothing_comes()
            first.lose()
        while gateway.app.metrics.num_open_streams["websocket"]:
            await asyncio.sleep(0.002)
        tokens.push(EngineUnavailable("gone"))
        async with resumed(gateway, first, subprotocols=subprotocols) as client:
            await client.ended("a", "b")
            codes = [client.of(turn)[-1]["error"]["code"] for turn in ("a", "b")]
            assert codes == ["engine_unavailable", "previous_turn_failed"]
