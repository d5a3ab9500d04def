import asyncio

import httpx

from gateway.upstream_pool import PooledTransport
from tests.testkit.fake_upstream import FakeUpstream, Reply, frame


async def test_connections_come_in_small_pools_that_go_when_they_are_empty():
    gate = asyncio.Event()
    transport = PooledTransport(100, False, None, 30.0)
    async with (
        FakeUpstream(Reply([frame("a"), gate, frame("b")])) as upstream,
        httpx.AsyncClient(transport=transport, base_url=upstream.url, trust_env=False) as http,
    ):
        asking = [asyncio.create_task(http.post("/completions", json={})) for _ in range(40)]
        while len(upstream.turns) < 40:
            await asyncio.sleep(0.002)
        assert [pool.num_busy for pool in transport._pools] == [16, 16, 8]
        for task in asking[:20]:
            task.cancel()
        await asyncio.wait(asking[:20])
        # Those that are left find room where others left it.
        assert sum(pool.num_busy for pool in transport._pools) == 20
        gate.set()
        answers = await asyncio.gather(*asking[20:])
        assert [pool.num_busy for pool in transport._pools] == [0]
        one_more = await http.post("/completions", json={})
        assert len(upstream.turns) == 41
    assert {answer.text for answer in [*answers, one_more]} == {"data: a\n\ndata: b\n\n"}


async def test_more_requests_than_connections_wait_for_their_turn():
    transport = PooledTransport(1, False, None, 30.0)
    async with (
        FakeUpstream(Reply([frame("a")])) as upstream,
        httpx.AsyncClient(transport=transport, base_url=upstream.url, trust_env=False) as http,
    ):
        answers = await asyncio.gather(*[http.post("/completions", json={}) for _ in range(40)])
    assert len(answers) == 40
    assert upstream.num_connections <= 16
