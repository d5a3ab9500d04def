"""The SDK and the real gateway over a network that loses connections; and reading at one's own pace."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from headrace import AsyncClient, ConnectionLost, ContentDelta, TurnDone

from gateway.scripted import Match, ScriptLine
from tests.testkit.flaky_proxy import FlakyProxy, flaky_proxy
from tests.testkit.gateway_kit import RunningGateway, running_gateway, scripted

WORDS = " ".join(f"word{i}" for i in range(60))
LINES = (
    ScriptLine(WORDS, match=Match(contains="slow"), delay_s=0.01, repeat=True),
    ScriptLine("x" * 5000, match=Match(contains="big"), chunk=50, repeat=True),
    ScriptLine("Hello there.", repeat=True),
)


@asynccontextmanager
async def served(**config: Any) -> AsyncIterator[tuple[RunningGateway, FlakyProxy]]:
    async with running_gateway(scripted(*LINES), **config) as gateway:
        async with flaky_proxy(gateway.port) as proxy:
            yield gateway, proxy
        await gateway.settled()


async def test_turns_go_on_over_lost_sockets_without_a_word_lost_or_twice():
    async with served() as (_, proxy), AsyncClient(proxy.url) as client:

        async def read(number: int) -> str:
            async with client.stream(f"slow {number}") as turn:
                return (await turn.final()).content

        reading = [asyncio.create_task(read(number)) for number in range(4)]
        for _ in range(3):
            await asyncio.sleep(0.12)
            proxy.drop()
        assert await asyncio.gather(*reading) == [WORDS] * 4
        assert proxy.num_connections >= 4


async def test_a_network_that_is_down_for_a_while_costs_nothing_but_time():
    async with served() as (_, proxy), AsyncClient(proxy.url) as client, client.stream("slow") as turn:
        await anext(turn)
        proxy.is_down = True
        proxy.drop()
        await asyncio.sleep(0.4)
        proxy.is_down = False
        assert (await turn.final()).content == WORDS


async def test_a_turn_that_is_sent_while_there_is_no_socket_waits_for_the_next():
    async with served() as (_, proxy), AsyncClient(proxy.url) as client, client.stream("slow") as turn:
        await anext(turn)
        proxy.is_down = True
        proxy.drop()
        other = asyncio.create_task(client.complete("hello"))
        await asyncio.sleep(0.15)
        proxy.is_down = False
        assert (await other).content == "Hello there."
        assert (await turn.final()).content == WORDS


async def test_a_cancel_without_a_socket_is_done_when_there_is_one_again():
    async with served() as (_, proxy), AsyncClient(proxy.url) as client, client.stream("slow") as turn:
        await anext(turn)
        proxy.is_down = True
        proxy.drop()
        await asyncio.sleep(0.05)
        await turn.cancel()
        proxy.is_down = False
        message = await turn.final()
        assert message.finish_reason == "cancelled"


async def test_a_turn_left_while_there_is_no_socket_is_not_taken_up():
    async with served() as (gateway, proxy), AsyncClient(proxy.url) as client, client.stream("slow 1") as kept:
        await anext(kept)
        async with client.stream("slow 2") as left:
            await anext(left)
            proxy.is_down = True
            proxy.drop()
            await asyncio.sleep(0.05)
        proxy.is_down = False
        while gateway.app.admission.num_live > 1:
            await asyncio.sleep(0.01)
        assert (await kept.final()).content == WORDS


async def test_past_the_grace_the_turn_is_lost_and_the_client_works_on():
    async with served(resume_grace_s=0.05) as (_, proxy), AsyncClient(proxy.url) as client:
        async with client.stream("slow") as turn:
            await anext(turn)
            proxy.is_down = True
            proxy.drop()
            await asyncio.sleep(0.3)
            proxy.is_down = False
            with pytest.raises(ConnectionLost):
                await turn.final()
        assert (await client.complete("hello")).content == "Hello there."


@pytest.mark.parametrize("options", [{"resume_timeout_s": 0}, {"resume_timeout_s": 0.2}])
async def test_without_time_to_resume_a_lost_socket_ends_its_turns(options):
    async with served(resume_grace_s=0.1) as (_, proxy), AsyncClient(proxy.url, **options) as client:
        async with client.stream("slow") as turn:
            await anext(turn)
            proxy.is_down = True
            proxy.drop()
            with pytest.raises(ConnectionLost):
                await turn.final()
        proxy.is_down = False
        assert (await client.complete("hello")).content == "Hello there."


async def test_a_turn_with_credit_comes_whole_and_no_faster_than_it_is_read():
    async with served() as (_, proxy), AsyncClient(proxy.url) as client, client.stream("big", credit=200) as turn:
        num_chars = 0
        async for event in turn:
            if isinstance(event, ContentDelta):
                assert len(event.text) <= 200
                num_chars += len(event.text)
                if num_chars == 200:
                    # The server has more, and keeps it.
                    await asyncio.sleep(0.05)
                    assert turn._source._events._items.qsize() <= 8
            if isinstance(event, TurnDone):
                assert event.finish_reason == "stop"
        assert num_chars == 5000


async def test_after_goaway_new_turns_go_elsewhere_and_old_ones_end():
    async with (
        running_gateway(scripted(*LINES), drain_s=5.0) as gateway,
        AsyncClient(gateway.url) as client,
        client.stream("slow") as turn,
    ):
        await anext(turn)
        gateway.server.should_exit = True
        connection = client._transport._connection
        while connection.takes_turns:
            await asyncio.sleep(0.01)
        assert connection.is_open
        assert (await turn.final()).content == WORDS


async def test_credit_below_one_is_refused_here():
    client = AsyncClient("http://127.0.0.1:1")
    with pytest.raises(ValueError, match="credit"):
        client.stream("x", credit=0)
    await client.aclose()
