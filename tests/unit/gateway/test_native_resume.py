"""A socket that is lost, and the client that comes back for its turns."""

import asyncio

import pytest
from websockets.exceptions import ConnectionClosed

from gateway import streams
from gateway.native_connection import SUPERSEDED
from gateway.scripted import Match, ScriptLine
from tests.testkit.gateway_kit import FakeEngine, RunningGateway, model_backend, running_gateway, scripted, token_chunks
from tests.testkit.native_client import NativeClient, native_client, resumed

WORDS = " ".join(f"word{i}" for i in range(40))
LINES = (
    ScriptLine(WORDS, match=Match(contains="slow"), delay_s=0.01, repeat=True),
    ScriptLine("Hello there.", repeat=True),
)


async def lost(gateway: RunningGateway, client: NativeClient) -> None:
    client.lose()
    while gateway.app.metrics.num_open_streams["websocket"]:
        await asyncio.sleep(0.002)


async def test_every_frame_comes_once_and_in_order_over_two_sockets():
    async with running_gateway(scripted(*LINES)) as gateway:
        async with native_client(gateway) as first:
            await first.create("a", "slow")
            await first.create("b", "slow")
            while len(first.of("a")) < 10:
                await first.recv()
            await lost(gateway, first)
        await asyncio.sleep(0.05)
        async with resumed(gateway, first) as client:
            answer = await client.until("resumed")
            assert (answer["stream"], set(answer["turns"])) == (first.hello["stream"], {"a", "b"})
            await client.ended("a", "b")
            for turn in ("a", "b"):
                assert client.text(turn) == WORDS
                assert client.kinds(turn)[-1] == "turn.done"
            await client.create("c")
            await client.ended("c")
        await gateway.settled()


async def test_a_turn_that_ended_while_nobody_read_is_told_to_the_end():
    async with running_gateway(scripted(*LINES)) as gateway:
        async with native_client(gateway) as first:
            await first.create("t", "slow")
            await first.until("content.delta")
            await lost(gateway, first)
        while gateway.app.admission.num_live:
            await asyncio.sleep(0.01)
        async with resumed(gateway, first) as client:
            await client.ended("t")
            assert client.text("t") == WORDS


async def test_frames_that_were_sent_but_never_read_come_again():
    async with running_gateway(scripted(*LINES)) as gateway:
        async with native_client(gateway) as first:
            await first.create("t")
            # The turn is over and its frames are on their way, but the client reads none of them.
            while gateway.app.metrics.num_choices_by_reason["stop"] == 0:
                await asyncio.sleep(0.002)
            await lost(gateway, first)
        assert first.of("t") == []
        async with resumed(gateway, first) as client:
            await client.ended("t")
            assert client.text("t") == "Hello there."


async def test_lanes_and_credit_go_on_after_a_resume():
    async with running_gateway(scripted(*LINES)) as gateway:
        async with native_client(gateway) as first:
            await first.create("a", "slow", lane="x", credit=8)
            await first.create("b", lane="x")
            while len(first.text("a")) < 8:
                await first.recv()
            await lost(gateway, first)
        async with resumed(gateway, first) as client:
            await client.until("resumed")
            await client.nothing_comes()
            await client.send({"type": "turn.credit", "turn": "a", "credit": 100_000})
            await client.ended("a", "b")
            assert (client.text("a"), client.text("b")) == (WORDS, "Hello there.")


async def test_turns_that_the_client_does_not_name_are_cancelled():
    engine = FakeEngine()
    async with running_gateway(model_backend(engine)) as gateway:
        async with native_client(gateway) as first:
            await first.create("kept")
            await first.create("dropped")
            await first.until("turn.created")
            await first.until("turn.created")
            await lost(gateway, first)
        assert len(engine.live) == 2
        del first._next_seq["dropped"]
        async with resumed(gateway, first) as client:
            await client.until("resumed")
            while len(engine.live) > 1:
                await asyncio.sleep(0.002)
            (tokens,) = engine.live.values()
            for chunk in token_chunks(tokens.request, "ok"):
                tokens.push(chunk)
            await client.ended("kept")
            assert client.text("kept") == "ok"


async def test_after_the_grace_turns_are_cancelled_and_a_resume_names_what_is_lost():
    engine = FakeEngine()
    async with running_gateway(model_backend(engine), resume_grace_s=0.1) as gateway:
        async with native_client(gateway) as first:
            await first.create("t")
            await first.until("turn.created")
            (tokens,) = engine.live.values()
            await lost(gateway, first)
        await gateway.settled()
        assert tokens.is_cancelled
        async with resumed(gateway, first) as client:
            error = await client.until("error")
            assert (error["error"]["code"], error["error"]["param"]) == ("stream_not_found", "stream")
            end = await client.until("turn.error", "t")
            assert (end["seq"], end["error"]["code"]) == (1, "stream_not_found")
            await client.create("new")
            await client.until("turn.created", "new")


async def test_a_turn_with_a_full_buffer_waits_for_its_client_longer_than_for_a_slow_reader():
    engine = FakeEngine()
    changes = {"resume_grace_s": 30, "slow_reader_timeout_s": 0.1, "max_pending_chars": 1000}
    async with running_gateway(model_backend(engine), **changes) as gateway:
        async with native_client(gateway) as first:
            for turn in ("read", "paused"):
                await first.create(turn)
                await first.until("turn.created", turn)
            turns = tuple(engine.live.values())
            await lost(gateway, first)
        for tokens in turns:
            for chunk in token_chunks(tokens.request, "x" * 300):
                tokens.push(chunk)
        await asyncio.sleep(0.2)
        assert (len(engine.live), gateway.app.metrics.num_failures_by_code["slow_reader"]) == (2, 0)
        async with resumed(gateway, first, checks_schema=False) as client:
            await client.ended("read", "paused")
            assert [client.kinds(turn)[-1] for turn in ("read", "paused")] == ["turn.done"] * 2
            assert [len(client.text(turn)) for turn in ("read", "paused")] == [300] * 2


async def test_a_turn_with_a_full_buffer_waits_for_its_client_no_longer_than_the_grace():
    engine = FakeEngine()
    async with running_gateway(model_backend(engine), resume_grace_s=0.1, max_pending_chars=1000) as gateway:
        async with native_client(gateway) as second:
            await second.create("late")
            await second.until("turn.created", "late")
            [tokens] = engine.live.values()
            await lost(gateway, second)
        for chunk in token_chunks(tokens.request, "x" * 300):
            tokens.push(chunk)
        await gateway.settled()
        assert (tokens.is_cancelled, engine.live) == (True, {}), "and its KV is free"
        async with resumed(gateway, second) as client:
            end = await client.until("turn.error", "late")
            assert end["error"]["code"] == "stream_not_found"
            assert "for more than 0.1s (--resume-grace): its turns were cancelled" in end["error"]["message"]


async def test_only_the_last_streams_that_were_lost_for_good_are_remembered(monkeypatch):
    monkeypatch.setattr(streams, "_MAX_EXPIRED", 1)
    async with running_gateway(model_backend(FakeEngine()), resume_grace_s=0.02) as gateway:
        clients = []
        for _ in range(2):
            async with native_client(gateway) as client:
                await client.create("t")
                await client.until("turn.created")
                await lost(gateway, client)
            await gateway.settled()
            clients.append(client)
        for client, says in zip(clients, ("There is no stream", "--resume-grace"), strict=True):
            async with resumed(gateway, client) as again:
                error = (await again.until("error"))["error"]
                assert (error["code"], says in error["message"]) == ("stream_not_found", True)


async def test_without_a_grace_a_lost_socket_cancels_at_once_and_hello_offers_nothing():
    engine = FakeEngine()
    async with running_gateway(model_backend(engine), resume_grace_s=0) as gateway:
        async with native_client(gateway) as client:
            assert "stream" not in client.hello
            await client.create("t")
            await client.until("turn.created")
            client.lose()
        await gateway.settled()
        assert engine.live == {}


async def test_a_client_that_gave_up_a_dead_socket_can_come_back():
    async with running_gateway(scripted(*LINES)) as gateway:
        async with native_client(gateway) as first:
            await first.create("t", "slow")
            await first.until("content.delta")
            await first.socket.close(1011, "keepalive ping timeout")
        async with resumed(gateway, first) as client:
            await client.ended("t")
            assert client.text("t") == WORDS


async def test_a_socket_that_was_closed_leaves_nothing_to_resume():
    async with running_gateway(scripted(*LINES)) as gateway:
        async with native_client(gateway) as first:
            await first.create("t", "slow")
            await first.until("content.delta")
        await gateway.settled()
        async with resumed(gateway, first) as client:
            assert (await client.until("error"))["error"]["code"] == "stream_not_found"


async def test_more_than_the_buffer_holds_is_a_gap_and_cancels_that_turn_alone():
    engine = FakeEngine()
    async with running_gateway(model_backend(engine), max_replay_bytes=2000) as gateway:
        async with native_client(gateway) as first:
            await first.create("big", lane="x")
            await first.until("turn.created", "big")
            await first.create("small")
            await first.until("turn.created", "small")
            await first.create("after", lane="x")
            big, small = engine.live.values()
            for chunk in token_chunks(big.request, "x" * 200)[:-1]:
                big.push(chunk)
            while len(first.text("big")) < 200:
                await first.recv()
            await lost(gateway, first)
        # As if the network had lost all but the first ten.
        first.frames = [frame for frame in first.frames if frame.get("seq", 0) < 10]
        first._next_seq["big"] = 10
        async with resumed(gateway, first) as client:
            error = await client.until("turn.error", "big")
            assert (error["error"]["code"], error["seq"]) == ("replay_gap", 10)
            assert big.is_cancelled
            for chunk in token_chunks(small.request, "ok"):
                small.push(chunk)
            await client.ended("small")
            assert client.kinds("after") == ["turn.created"]


async def test_a_turn_that_never_came_is_named():
    async with running_gateway(scripted(*LINES)) as gateway:
        async with native_client(gateway) as first:
            await first.create("t", "slow")
            await first.until("content.delta")
            await lost(gateway, first)
        first._next_seq["ghost"] = 0
        async with resumed(gateway, first) as client:
            error = await client.until("turn.error", "ghost")
            assert (error["seq"], error["error"]["code"]) == (0, "turn_not_found")
            await client.ended("t")


async def test_a_half_open_socket_is_superseded_by_the_one_that_resumes():
    async with running_gateway(scripted(*LINES)) as gateway, native_client(gateway) as first:
        await first.create("t", "slow")
        await first.until("content.delta")
        async with resumed(gateway, first) as second:
            await second.ended("t")
            assert second.text("t") == WORDS
            async for _ in first.frames_until_closed():
                pass
            assert first.socket.close_code == SUPERSEDED


async def test_a_stream_can_be_resumed_again_and_again():
    async with running_gateway(scripted(*LINES)) as gateway:
        async with native_client(gateway) as client:
            token = client.hello["stream"]
            await client.create("t", "slow")
            await client.until("content.delta")
            await lost(gateway, client)
        for _ in range(3):
            async with resumed(gateway, client) as again:
                again.hello["stream"] = token
                await again.until("content.delta")
                client = again
                await lost(gateway, client)
        async with resumed(gateway, client) as last:
            await last.ended("t")
            assert last.text("t") == WORDS


async def test_a_stream_belongs_to_its_key_and_its_encoding():
    keys = ("key-a", "key-b")
    async with running_gateway(scripted(*LINES), api_keys=keys) as gateway:
        auth = {key: {"Authorization": f"Bearer {key}"} for key in keys}
        async with native_client(gateway, headers=auth["key-a"]) as first:
            await first.create("t", "slow")
            await first.until("content.delta")
            await lost(gateway, first)
        for options in (
            {"headers": auth["key-b"]},
            {"headers": auth["key-a"], "subprotocols": ("headrace.v1.msgpack",)},
        ):
            async with resumed(gateway, first, **options) as other:
                assert (await other.until("error"))["error"]["code"] == "stream_not_found"
        async with resumed(gateway, first, headers=auth["key-a"]) as client:
            await client.ended("t")
            assert client.text("t") == WORDS


async def test_resume_comes_first_and_once_and_not_for_itself():
    async with running_gateway(scripted(*LINES)) as gateway:
        async with native_client(gateway) as client:
            frame = {"type": "resume", "stream": client.hello["stream"], "last_seq": {}}
            await client.send(frame)
            assert (await client.until("error"))["error"]["param"] == "stream"
            await client.send(frame)
            assert (await client.until("error"))["error"]["code"] == "resume_too_late"
            await client.create("t")
            await client.ended("t")
        async with native_client(gateway) as client:
            for bad in ({}, {"stream": "x"}, {"stream": "x", "last_seq": {"t": -2}}, {"stream": "x", "last_seq": []}):
                await client.send({"type": "resume", **bad})
                assert (await client.until("error"))["error"]["code"] != "stream_not_found"


async def test_what_ended_long_ago_is_not_kept():
    async with running_gateway(
        scripted(*LINES), resume_grace_s=0.1, ping_interval_s=0.1, ping_timeout_s=0.1
    ) as gateway, native_client(gateway) as client:
        await client.create("t")
        await client.ended("t")
        (entry,) = gateway.app.streams._entries.values()
        assert entry.stream.is_worth_keeping
        await asyncio.sleep(0.35)
        gateway.app.streams._sweep()
        assert not entry.stream.is_worth_keeping


async def test_a_silent_peer_is_found_by_its_missing_pong():
    engine = FakeEngine()
    changes = {"resume_grace_s": 0.2, "ping_interval_s": 0.05, "ping_timeout_s": 0.1}
    async with running_gateway(model_backend(engine), **changes) as gateway, native_client(gateway) as client:
        await client.create("t")
        await client.until("turn.created")
        # Nothing that arrives is looked at any more, so no pong goes back.
        client.socket.transport.pause_reading()
        while gateway.app.metrics.num_open_streams["websocket"]:
            await asyncio.sleep(0.01)
        assert len(engine.live) == 1
        await gateway.settled()
        assert engine.live == {}
        client.socket.transport.abort()


async def test_a_drain_says_goaway_with_its_deadline_and_lets_turns_end():
    lines = (ScriptLine("one two three four", delay_s=0.1, repeat=True),)
    async with running_gateway(scripted(*lines), drain_s=5.0) as gateway, native_client(gateway) as client:
        await client.create("t")
        await client.until("content.delta")
        gateway.server.should_exit = True
        goaway = await client.until("goaway")
        assert goaway["deadline_s"] == 5.0
        await client.create("late")
        await client.ended("t", "late")
        assert client.text("t") == "one two three four"
        assert client.of("late")[-1]["error"]["code"] == "server_shutting_down"
        with pytest.raises(ConnectionClosed) as closed:
            await client.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1012


async def test_a_turn_that_is_given_up_ends_before_its_lane_goes_on():
    engine = FakeEngine()
    async with running_gateway(model_backend(engine)) as gateway:
        async with native_client(gateway) as first:
            await first.create("dropped", session="s", lane="x")
            await first.until("turn.created", "dropped")
            await first.create("kept", session="s", lane="x", **{"continue": True})
            await first.nothing_comes()
            await lost(gateway, first)
        del first._next_seq["dropped"]
        async with resumed(gateway, first) as client:
            # The id is free at once, the lane once the turn is over.
            await client.create("dropped", lane="x")
            await client.until("turn.created", "kept")
            [kept] = engine.live.values()
            for chunk in token_chunks(kept.request, "ok"):
                kept.push(chunk)
            await client.until("turn.created", "dropped")
            assert client.text("kept") == "ok"
