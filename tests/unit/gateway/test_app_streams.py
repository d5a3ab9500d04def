"""Many streams, clients that leave, engines that die and readers that do not read, over a real server."""

import asyncio
import json
import random

import httpx
import pytest
from websockets.asyncio.client import connect

from gateway.app import GatewayApp
from gateway.scripted import Match, ScriptLine
from inference.types import TokenChunk
from tests.testkit.gateway_kit import (
    FakeEngine,
    RunningGateway,
    chat_body,
    content_of,
    gateway_config,
    model_backend,
    running_gateway,
    scripted,
    sse_events,
    token_chunks,
)


def own_text(number: int) -> str:
    return " ".join(f"{number}:{i}" for i in range(20))


def own_lines(count: int) -> list[ScriptLine]:
    return [
        ScriptLine(own_text(i), match=Match(contains=f"[{i}]"), delay_s=0.001 * (i % 4), repeat=True)
        for i in range(count)
    ]


async def test_64_streams_at_once_are_not_mixed_up():
    async with running_gateway(scripted(*own_lines(64))) as gateway:
        async with httpx.AsyncClient(base_url=gateway.url, timeout=30, limits=httpx.Limits()) as http:

            async def one(number: int) -> None:
                response = await http.post("/v1/chat/completions", json=chat_body(f"[{number}]", stream=True))
                chunks = list(sse_events(response.text))
                assert content_of(chunks) == own_text(number)
                assert len({chunk["id"] for chunk in chunks[:-1]}) == 1

            await asyncio.gather(*(one(number) for number in range(64)))
        await gateway.settled()


async def test_64_turns_on_one_socket_are_not_mixed_up():
    async with running_gateway(scripted(*own_lines(64))) as gateway:
        async with connect(gateway.ws_url) as socket:
            for number in range(64):
                messages = [{"role": "user", "content": f"[{number}]"}]
                await socket.send(json.dumps({"type": "turn.create", "turn": str(number), "messages": messages}))
            texts = {str(number): "" for number in range(64)}
            seqs = dict.fromkeys(texts, 0)
            num_done = 0
            while num_done < 64:
                frame = json.loads(await socket.recv())
                if frame["type"] == "hello":
                    continue
                assert frame["seq"] == seqs[frame["turn"]]
                seqs[frame["turn"]] += 1
                texts[frame["turn"]] += frame.get("text", "")
                num_done += frame["type"] == "turn.done"
            assert texts == {str(number): own_text(number) for number in range(64)}
        await gateway.settled()


async def leave(gateway: RunningGateway, path: str, body: dict, after_s: float) -> None:
    """Sends a request and closes the connection after a while, whatever has come by then."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    raw = json.dumps(body).encode()
    writer.write(b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (path.encode(), len(raw), raw))
    try:
        async with asyncio.timeout(after_s):
            while await reader.read(65536):
                pass
    except TimeoutError:
        pass
    writer.close()
    await asyncio.gather(writer.wait_closed(), return_exceptions=True)


async def test_200_clients_that_leave_at_random_moments_leave_nothing_behind():
    rng = random.Random(7)
    engine = FakeEngine(lambda request: token_chunks(request, "x" * rng.randrange(50)) if rng.random() < 0.5 else ())
    async with running_gateway(model_backend(engine)) as gateway:
        kinds = [
            ("/v1/chat/completions", chat_body(stream=True)),
            ("/v1/chat/completions", chat_body()),
            ("/v1/chat/completions", chat_body("y" * 9000, stream=True)),
            ("/v1/completions", {"prompt": ["a", "b"], "stream": True}),
            ("/v1/completions", {"prompt": [1, 2]}),
        ]
        tasks_before = len(asyncio.all_tasks())
        for _ in range(4):
            await asyncio.gather(*(leave(gateway, *rng.choice(kinds), rng.random() * 0.05) for _ in range(50)))
        await gateway.settled()
        assert engine.live == {}
        assert gateway.app.metrics.num_live_turns == 0
        assert len(engine.requests) >= 100
        await asyncio.sleep(0.05)
        assert len(asyncio.all_tasks()) <= tasks_before + 1


async def test_a_client_that_leaves_while_its_turn_is_queued_cancels_it_streamed_or_not():
    for stream in (True, False):
        engine = FakeEngine()
        async with running_gateway(model_backend(engine)) as gateway:
            await leave(gateway, "/v1/chat/completions", chat_body(stream=stream), 0.05)
            await gateway.settled()
            assert len(engine.requests) == 1
            assert engine.live == {}


async def test_a_stop_string_cancels_the_turn_in_the_engine():
    engine = FakeEngine(lambda request: [TokenChunk(request.turn_id, 0, (byte,)) for byte in b"one END two"])
    async with running_gateway(model_backend(engine)) as gateway, httpx.AsyncClient(base_url=gateway.url) as http:
        body = (await http.post("/v1/chat/completions", json=chat_body(stop="END"))).json()
        assert (body["choices"][0]["message"]["content"], body["choices"][0]["finish_reason"]) == ("one ", "stop")
        await gateway.settled()
        assert engine.live == {}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_an_engine_that_dies_in_mid_stream_ends_it_with_an_error_and_no_done(path):
    engine = FakeEngine(lambda request: token_chunks(request, "Hello")[:3])
    body = {**chat_body(stream=True), "prompt": "Hi"}
    async with running_gateway(model_backend(engine)) as gateway, httpx.AsyncClient(base_url=gateway.url) as http:
        async with http.stream("POST", path, json=body) as response:
            events = []
            async for line in response.aiter_lines():
                if line.startswith("data: "):
                    events.append(line.removeprefix("data: "))
                    if len(events) == 3:
                        engine.die()
        assert "[DONE]" not in events
        error = json.loads(events[-1])["error"]
        assert (error["type"], error["code"]) == ("server_error", "engine_unavailable")


async def test_an_engine_that_dies_before_the_end_of_a_whole_answer_is_a_503():
    engine = FakeEngine(lambda request: token_chunks(request, "Hello")[:3])
    async with running_gateway(model_backend(engine)) as gateway, httpx.AsyncClient(base_url=gateway.url) as http:
        asking = asyncio.create_task(http.post("/v1/chat/completions", json=chat_body()))
        while not engine.live:
            await asyncio.sleep(0.005)
        engine.die()
        response = await asking
        assert (response.status_code, response.headers["retry-after"]) == (503, "1")


@pytest.mark.parametrize(
    ("field", "names"),
    [
        ("reasoning_content", {"reasoning_content"}),
        ("reasoning", {"reasoning"}),
        ("both", {"reasoning_content", "reasoning"}),
    ],
)
async def test_reasoning_goes_out_under_the_names_that_the_server_is_told(field, names):
    backend = scripted(ScriptLine("<think>Hm, so.</think>Yes.", repeat=True))
    app = GatewayApp(backend, gateway_config(reasoning_field=field))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://gateway") as http:
        whole = (await http.post("/v1/chat/completions", json=chat_body())).json()["choices"][0]["message"]
        streamed = await http.post("/v1/chat/completions", json=chat_body(stream=True))
    assert {name: whole.get(name) for name in names} == dict.fromkeys(names, "Hm, so.")
    assert whole.keys() == {"role", "content", "refusal"} | names
    deltas = [chunk["choices"][0]["delta"] for chunk in sse_events(streamed.text) if chunk != "[DONE]"]
    thoughts = [delta for delta in deltas if "reasoning" in " ".join(delta)]
    assert all(delta.keys() == names for delta in thoughts)
    for name in names:
        assert "".join(delta[name] for delta in thoughts) == "Hm, so."


async def test_a_stream_that_says_nothing_gets_keepalive_comments_by_the_clock():
    engine = FakeEngine()
    async with (
        running_gateway(model_backend(engine), keepalive_s=0.05) as gateway,
        httpx.AsyncClient(base_url=gateway.url) as http,
        http.stream("POST", "/v1/chat/completions", json=chat_body(stream=True)) as response,
    ):
        lines = []
        async for line in response.aiter_lines():
            lines.append(line)
            if lines.count(": keepalive") == 3 and engine.live:
                (tokens,) = engine.live.values()
                for chunk in token_chunks(tokens.request, "Hi"):
                    tokens.push(chunk)
        assert content_of(sse_events("\n".join(lines))) == "Hi"
        assert lines[-2] == "data: [DONE]"


async def test_a_connection_that_is_not_read_slows_no_other_and_its_turn_ends_with_a_bounded_buffer():
    big = ScriptLine("x" * 20_000_000, match=Match(contains="big"), chunk=20_000, repeat=True)
    lines = (big, ScriptLine("Hello there.", repeat=True))
    async with running_gateway(scripted(*lines), slow_reader_timeout_s=0.3, max_pending_chars=100_000) as gateway:
        raw = json.dumps(chat_body("big", stream=True)).encode()
        _, writer = await asyncio.open_connection("127.0.0.1", gateway.port, limit=1024)
        writer.transport.pause_reading()
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (len(raw), raw))
        async with httpx.AsyncClient(base_url=gateway.url) as http:
            for _ in range(10):
                async with asyncio.timeout(10):
                    response = await http.post("/v1/chat/completions", json=chat_body(stream=True))
                assert content_of(sse_events(response.text)) == "Hello there."
        await gateway.settled()
        assert gateway.app.metrics.num_failures_by_code["slow_reader"] == 1
        writer.transport.abort()


async def test_a_socket_that_is_not_read_slows_no_other():
    big = ScriptLine("x" * 20_000_000, match=Match(contains="big"), chunk=20_000, repeat=True)
    lines = (big, ScriptLine("Hello there.", repeat=True))
    async with running_gateway(scripted(*lines), slow_reader_timeout_s=0.3, max_pending_chars=100_000) as gateway:
        async with connect(gateway.ws_url, max_queue=1) as stuck, connect(gateway.ws_url) as other:
            messages = [{"role": "user", "content": "big"}]
            await stuck.send(json.dumps({"type": "turn.create", "turn": "big", "messages": messages}))
            await asyncio.sleep(0.1)
            for i in range(10):
                messages = [{"role": "user", "content": "Hi"}]
                await other.send(json.dumps({"type": "turn.create", "turn": str(i), "messages": messages}))
                async with asyncio.timeout(10):
                    while json.loads(await other.recv())["type"] != "turn.done":
                        pass
            while gateway.app.admission.num_live:
                await asyncio.sleep(0.01)
            assert gateway.app.metrics.num_failures_by_code["slow_reader"] == 1
            stuck.transport.abort()
        await gateway.settled()


async def test_a_benchmark_client_gets_one_chunk_a_token_even_of_tokens_without_text():
    ids = [240, 159, 153, 130, 257, 257, 65]
    engine = FakeEngine(
        lambda request: [
            *(TokenChunk(request.turn_id, 0, (token_id,)) for token_id in ids[:-1]),
            TokenChunk(request.turn_id, 0, (ids[-1],), (), "length"),
        ]
    )
    async with running_gateway(model_backend(engine)) as gateway, httpx.AsyncClient(base_url=gateway.url) as http:
        body = {"prompt": [1, 2], "max_tokens": 7, "ignore_eos": True, "min_tokens": 7, "stream": True}
        chunks = list(sse_events((await http.post("/v1/completions", json=body)).text))[:-1]
        assert [chunk["choices"][0]["text"] for chunk in chunks] == ["", "", "", "🙂", "", "", "A"]
        assert chunks[-1]["choices"][0]["finish_reason"] == "length"
        assert engine.requests[0].prompt_token_ids == (1, 2)
