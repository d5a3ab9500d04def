"""Minutes of what tests/unit/gateway/test_native_robust.py does in short; and load, with every token accounted for."""

import asyncio
import gc
import json
import subprocess
import sys

import psutil
import pytest

from gateway.scripted import Match, ScriptLine
from tests.testkit import abuse
from tests.testkit.gateway_kit import FakeEngine, model_backend, running_gateway, scripted
from tests.testkit.native_client import native_client

pytestmark = pytest.mark.soak

# More than a turn may have waiting, and all turns of a test more than the machine buffers.
DELUGE = ScriptLine("words and more words " * 15_000, match=Match(contains="deluge"), chunk=5000, repeat=True)
FLOOD = ScriptLine("words and more words " * 200, match=Match(contains="flood"), delay_s=0.005, repeat=True)
OTHER = ScriptLine("Hello there.", repeat=True)
LINES = (DELUGE, FLOOD, OTHER)
MIB = 2**20


def rss() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)


async def test_ten_thousand_cancels_leave_memory_as_it_was():
    async with running_gateway(scripted(*LINES)) as gateway:
        await abuse.many_cancels(gateway, num_turns=2000)
        before = rss()
        await abuse.many_cancels(gateway, num_turns=10_000)
        assert rss() - before < 16 * MIB
        await gateway.settled()


async def test_a_thousand_lanes_keep_their_order():
    async with running_gateway(scripted(*LINES), max_connection_turns=2000, max_live_turns=2000) as gateway:
        for _ in range(5):
            await abuse.many_lanes(gateway, num_lanes=1000)
        await gateway.settled()


async def test_readers_of_a_kilobyte_a_second_cost_bounded_memory_and_disturb_nobody():
    async with running_gateway(scripted(*LINES), resume_grace_s=0.5) as gateway:
        before = rss()
        async with abuse.undisturbed(gateway, OTHER.text, limit_s=1.0):
            readers = [abuse.slow_reader(gateway, num_turns=20, bytes_a_second=1000, seconds=60) for _ in range(4)]
            await asyncio.gather(*readers)
            # A turn: what may wait (256 Ki characters, twice while it merges), and the script's own copy of its text.
            assert rss() - before < 4 * 20 * (512 * 1024 + len(DELUGE.text)) + 32 * MIB
        await gateway.settled()


async def test_stalled_readers_are_ended_by_the_default_limits():
    async with running_gateway(scripted(*LINES), resume_grace_s=0.5) as gateway:
        async with abuse.undisturbed(gateway, OTHER.text, limit_s=1.0), asyncio.timeout(120):
            await abuse.stalled_reader(gateway, num_turns=20)
        await gateway.settled()


async def test_clients_that_vanish_for_minutes_leave_memory_as_it_was():
    async with running_gateway(scripted(*LINES), resume_grace_s=1.0) as gateway:
        await abuse.vanishing_clients(gateway, num_clients=200)
        before = rss()
        async with abuse.undisturbed(gateway, OTHER.text, limit_s=1.0):
            for _ in range(5):
                await abuse.vanishing_clients(gateway, num_clients=200)
                await asyncio.sleep(1.5)
        await gateway.settled()
        async with asyncio.timeout(10):
            # The undisturbed client is cut off in mid-turn at the end, and may come back while its grace lasts.
            while gateway.app.streams.num_detached:
                await asyncio.sleep(0.05)
        assert rss() - before < 32 * MIB


async def test_an_engine_that_dies_again_and_again_ends_its_turns_each_time():
    for _ in range(20):
        engine = FakeEngine()
        async with running_gateway(model_backend(engine)) as gateway:
            await abuse.killed_engine(gateway, engine, num_turns=200)
            await gateway.settled()


async def test_a_stream_resumed_hundreds_of_times_loses_nothing():
    async with running_gateway(scripted(*LINES)) as gateway:
        async with native_client(gateway) as client:
            token = client.hello["stream"]
            await client.create("t", "flood")
            await client.until("content.delta")
            client.lose()
        num_resumes = 0
        while "turn.done" not in client.kinds("t"):
            next_seq = {turn: seq + 1 for turn, seq in client.last_seq.items()}
            async with native_client(gateway, next_seq=next_seq) as again:
                again.frames = client.frames
                await again.send({"type": "resume", "stream": token, "last_seq": client.last_seq})
                await again.until("resumed")
                for _ in range(3):
                    if (await again.recv())["type"] == "turn.done":
                        break
                else:
                    again.lose()
                client = again
                num_resumes += 1
        assert client.text("t") == FLOOD.text
        assert num_resumes > 100


def test_under_load_no_token_is_lost_or_astray_and_memory_stays():
    # A process of its own: it leaves its hundreds of connections to the end of the process.
    done = subprocess.run([sys.executable, "tests/bench/gateway.py"], capture_output=True, text=True, check=True)
    (result,) = json.loads(done.stdout.splitlines()[-1])["results"]
    assert (result["num_lost"], result["faults"]) == (0, [])
    # The replay buffers of 500 turns fill up to 64 KiB each.
    assert result["rss_end_mib"] - result["rss_start_mib"] < 48
