"""Bad clients and dead engines, in short: nobody else is disturbed, memory is bounded, everything ends by the rules.

The long versions are in tests/soak.
"""

import asyncio

from gateway.protocols.native import NativeEncoder
from gateway.scripted import Match, ScriptLine
from tests.testkit import abuse
from tests.testkit.gateway_kit import FakeEngine, model_backend, running_gateway, scripted
from tests.testkit.native_client import native_client

DELUGE = ScriptLine("words and more words " * 50_000, match=Match(contains="deluge"), chunk=5000, repeat=True)
FLOOD = ScriptLine("words and more words " * 200, match=Match(contains="flood"), delay_s=0.005, repeat=True)
OTHER = ScriptLine("Hello there.", repeat=True)
LINES = (DELUGE, FLOOD, OTHER)


async def test_a_slow_reader_disturbs_nobody_and_its_turns_wait():
    async with running_gateway(scripted(*LINES), max_pending_chars=20_000, resume_grace_s=0.1) as gateway:
        async with abuse.undisturbed(gateway, OTHER.text, limit_s=1.0):
            num_bytes = await abuse.slow_reader(gateway, num_turns=5, bytes_a_second=1000, seconds=1.0)
        assert 0 < num_bytes <= 3000
        await gateway.settled()


async def test_the_turns_of_a_stalled_reader_end_and_disturb_nobody():
    limits = {"max_pending_chars": 20_000, "slow_reader_timeout_s": 0.3, "resume_grace_s": 0.1}
    async with running_gateway(scripted(*LINES), **limits) as gateway:
        async with abuse.undisturbed(gateway, OTHER.text, limit_s=1.0), asyncio.timeout(15):
            await abuse.stalled_reader(gateway, num_turns=8)
        # What fits into the machine's own buffers may have ended well.
        assert gateway.app.metrics.num_failures_by_code["slow_reader"] >= 4
        await gateway.settled()


async def test_a_stalled_reader_that_answers_no_ping_is_dropped_with_what_waits_for_it():
    limits = {"max_pending_chars": 20_000, "ping_interval_s": 0.2, "ping_timeout_s": 0.3, "resume_grace_s": 0.1}
    async with running_gateway(scripted(*LINES), **limits) as gateway:
        async with asyncio.timeout(15):
            await abuse.stalled_reader(gateway, num_turns=8)
        await gateway.settled()


async def test_each_of_many_cancels_is_answered():
    async with running_gateway(scripted(*LINES)) as gateway:
        await abuse.many_cancels(gateway, num_turns=200)
        await gateway.settled()


async def test_many_lanes_keep_their_order_and_do_not_mix():
    async with running_gateway(scripted(*LINES), max_connection_turns=500) as gateway:
        await abuse.many_lanes(gateway, num_lanes=150)
        await gateway.settled()


async def test_oversized_frames_end_by_their_size():
    async with running_gateway(scripted(*LINES), max_body_bytes=10_000) as gateway:
        await abuse.oversized_frames(gateway)
        await gateway.settled()


async def test_a_killed_engine_ends_every_turn_with_an_error():
    engine = FakeEngine()
    async with running_gateway(model_backend(engine)) as gateway:
        await abuse.killed_engine(gateway, engine, num_turns=30)
        await gateway.settled()


async def test_clients_that_vanish_leave_nothing_behind():
    async with running_gateway(scripted(*LINES), resume_grace_s=0.2) as gateway:
        async with abuse.undisturbed(gateway, OTHER.text, limit_s=1.0):
            await abuse.vanishing_clients(gateway, num_clients=10)
        await gateway.settled()
        assert gateway.app.streams.num_detached == 0


async def test_a_stuck_socket_is_cut_off_when_its_stream_is_taken_over():
    async with running_gateway(scripted(*LINES), max_pending_chars=20_000) as gateway:
        async with native_client(gateway, checks_schema=False, max_size=None) as stuck:
            for number in range(8):
                await stuck.create(f"t{number}", "deluge")
            stuck.socket.transport.pause_reading()
            while gateway.app.admission.num_live < 8:
                await asyncio.sleep(0.01)
            # Long enough for the machine's buffers to be full, so that not even a Close frame gets through.
            await asyncio.sleep(0.3)
            async with native_client(gateway, checks_schema=False) as client:
                await client.send({"type": "resume", "stream": stuck.hello["stream"], "last_seq": {}})
                assert (await client.until("resumed"))["turns"] == []
                while gateway.app.metrics.num_open_streams["websocket"] > 1:
                    await asyncio.sleep(0.02)
                await client.create("t", "other")
                await client.ended("t")
            stuck.socket.transport.abort()
        await gateway.settled()


async def test_a_fault_of_ours_in_the_writer_closes_the_socket_and_cancels_its_turns(monkeypatch, caplog):
    def broken(encoder, item):
        raise RuntimeError("no such frame")

    async with running_gateway(scripted(*LINES)) as gateway:
        async with native_client(gateway) as client:
            monkeypatch.setattr(NativeEncoder, "data", broken)
            await client.create("t", "flood")
            async for _ in client.frames_until_closed():
                pass
            assert client.socket.close_code == 1011
        await gateway.settled()
        assert "no such frame" in caplog.text
