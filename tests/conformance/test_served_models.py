"""The whole server on real engines: OpenAI's client on the embedded model, and many turns that must not mix."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
import time

import httpx
import pytest
from openai import AsyncOpenAI, OpenAI
from websockets.asyncio.client import connect

from tests.testkit.served_model import ROOT, served
from tests.testkit.tiny_models import write_config

pytestmark = [pytest.mark.model, pytest.mark.timeout(280)]


def _ask(number: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"Count on from {number}."}]


def test_openais_client_talks_to_the_embedded_model_and_ctrl_c_ends_it():
    question = [{"role": "user", "content": "What is the capital of France?"}]
    with served() as server, OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        assert "SmolLM2-135M-Instruct" in server.banner
        assert "KV blocks" in server.banner
        stream = client.chat.completions.create(
            model=server.model, messages=question, stream=True, temperature=0, stream_options={"include_usage": True}
        )
        chunks = list(stream)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert "Paris" in text
        assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
        usage = chunks[-1].usage
        assert usage.prompt_tokens > 30
        again = client.chat.completions.create(model=server.model, messages=question, temperature=0)
        assert again.choices[0].message.content == text
        assert again.usage.prompt_tokens_details.cached_tokens >= 32
        assert again.usage.completion_tokens == usage.completion_tokens
        server.wait_until_idle()

        with client.chat.completions.create(
            model=server.model, messages=_ask(1), stream=True, max_tokens=2000
        ) as endless:
            next(iter(endless))
            started = time.monotonic()
            server.process.send_signal(signal.SIGINT)
            assert server.process.wait(10) == 0
            assert time.monotonic() - started < 4, "two seconds, and as much again for a busy machine"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    config = write_config("qwen3", tmp_path_factory.mktemp("random") / "tiny-qwen3.json")
    with served("--model", f"random:{config}", "--dtype", "int8", "--kv-memory", "32MiB") as server:
        yield server


def _options(number: int) -> dict[str, object]:
    return {"messages": _ask(number), "temperature": 1.0, "max_tokens": 12, "seed": number}


async def _over_sse(client: AsyncOpenAI, model: str, number: int) -> str:
    stream = await client.chat.completions.create(
        model=model, stream=True, extra_body={"ignore_eos": True}, **_options(number)
    )
    return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])


async def _over_one_socket(url: str, numbers: range) -> dict[int, str]:
    texts: dict[int, str] = dict.fromkeys(numbers, "")
    open_turns = set(numbers)
    async with connect(f"{url.replace('http', 'ws')}/v1/stream") as socket:
        for number in numbers:
            frame = {"type": "turn.create", "turn": str(number), "ignore_eos": True, **_options(number)}
            await socket.send(json.dumps(frame))
        while open_turns:
            frame = json.loads(await socket.recv())
            if frame["type"] == "content.delta":
                texts[int(frame["turn"])] += frame["text"]
            assert frame["type"] not in ("turn.error", "error"), frame
            if frame["type"] == "turn.done":
                open_turns.discard(int(frame["turn"]))
    return texts


async def test_64_streams_and_64_turns_on_one_socket_are_not_mixed_up(server):
    numbers = range(64)
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        alone = {number: await _over_sse(client, server.model, number) for number in range(0, 64, 8)}
        streams = await asyncio.gather(*(_over_sse(client, server.model, number) for number in numbers))
    turns = await _over_one_socket(server.url, numbers)
    assert dict(zip(numbers, streams, strict=True)) == turns
    assert len(set(streams)) > 60, "each prompt has its own answer"
    assert all(turns[number] == text for number, text in alone.items())
    server.wait_until_idle()


async def test_200_requests_cancelled_at_random_moments_leave_nothing(server):
    rng = random.Random(3)

    async def cancelled(number: int) -> None:
        body = {"model": server.model, "messages": _ask(number), "max_tokens": 300, "ignore_eos": True}
        streams = number % 3 != 0
        async with httpx.AsyncClient() as http:
            request = http.stream("POST", f"{server.url}/v1/chat/completions", json={**body, "stream": streams})
            try:
                async with asyncio.timeout(rng.random()), request as response:
                    async for _ in response.aiter_raw():
                        pass
            except TimeoutError:
                pass

    await asyncio.gather(*(cancelled(number) for number in range(200)))
    server.wait_until_idle()
    assert server.metric("headrace_num_requests_waiting") == 0
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
        assert await _over_sse(client, server.model, 5)


def test_a_wrong_model_ends_in_one_clear_line():
    command = [sys.executable, "-m", "gateway.cli", "serve", "--model", "no-such-model", "--port", "0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "no-such-model: neither a folder" in done.stderr
    assert "Traceback" not in done.stderr
