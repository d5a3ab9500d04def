"""The whole program: start, ready line, signals. Each test runs `headrace serve` as a process of its own."""

import asyncio
import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from gateway.cli import main
from gateway.listener import listen
from tests.testkit.gateway_kit import chat_body, sse_events, time_factor

LINES = [
    {
        "text": "one two three four five six seven eight nine ten " * 20,
        "delay_ms": 50,
        "match": {"contains": "slow"},
        "repeat": True,
    },
    {"text": "Hello there.", "repeat": True},
]


@asynccontextmanager
async def headrace(tmp_path: Path, *flags: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str, list[str]]]:
    """The process, its base URL, and the lines it has printed."""
    script = tmp_path / "demo.jsonl"
    script.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    argv = ["-m", "gateway.cli", "serve", "--model", f"scripted:{script}", "--port", "0", *flags]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *argv,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "HEADRACE_API_KEY": ""},
    )
    assert process.stdout is not None
    printed: list[str] = []
    try:
        async with asyncio.timeout(30):
            while not (match := re.search(r"Ready: (\S+)", printed[-1] if printed else "")):
                line = (await process.stdout.readline()).decode()
                assert line, printed
                printed.append(line)
        yield process, match[1], printed
    finally:
        if process.returncode is None:
            process.kill()
        rest = (await process.stdout.read()).decode()
        printed += rest.splitlines(keepends=True)
        await process.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_running_streams_with_an_error_and_the_process_within_two_seconds(tmp_path, number):
    async with headrace(tmp_path) as (process, url, _), httpx.AsyncClient(base_url=url) as http:
        async with connect(f"ws{url.removeprefix('http')}/v1/stream") as ws:
            messages = [{"role": "user", "content": "slow"}]
            async with http.stream(
                "POST", "/v1/chat/completions", json=chat_body("slow", stream=True, model=None)
            ) as r:
                lines = r.aiter_lines()
                await anext(lines)
                await ws.send(json.dumps({"type": "turn.create", "turn": "t", "messages": messages}))
                while "content.delta" not in await ws.recv():
                    pass
                started_s = time.monotonic()
                process.send_signal(number)
                events = list(sse_events("\n\n".join([line async for line in lines])))
            assert events[-1]["error"]["code"] == "server_shutting_down"
            frames, close_code = await _rest_of(ws)
            assert '"turn.error"' in frames[-1]
            assert close_code == 1012
        assert await process.wait() == 0
        assert time.monotonic() - started_s < 2.0 * time_factor()


async def test_a_turn_that_ends_in_time_is_not_disturbed_and_new_ones_are_sent_away(tmp_path):
    async with headrace(tmp_path, "--drain", "5") as (process, url, _), httpx.AsyncClient(base_url=url) as http:
        body = chat_body("slow", stream=True, max_tokens=12, model=None)
        async with http.stream("POST", "/v1/chat/completions", json=body) as response:
            lines = response.aiter_lines()
            await anext(lines)
            process.send_signal(signal.SIGTERM)
            refused = await _until_refused(http)
            assert refused.json()["error"]["code"] == "server_shutting_down"
            assert refused.headers["retry-after"] == "1"
            assert (await http.get("/ready")).status_code == 503
            assert (await http.get("/health")).status_code == 200
            events = list(sse_events("\n\n".join([line async for line in lines])))
        assert events[-1] == "[DONE]"
        assert events[-2]["choices"][0]["finish_reason"] == "length"
        assert await process.wait() == 0


async def _rest_of(ws: ClientConnection) -> tuple[list[str], int | None]:
    """The frames that still come, and the code with which the server closes."""
    frames: list[str] = []
    try:
        async for frame in ws:
            frames.append(str(frame))
    except ConnectionClosed:
        pass
    return frames, ws.close_code


async def _until_refused(http: httpx.AsyncClient) -> httpx.Response:
    """The signal takes up to a tenth of a second to be seen."""
    for _ in range(200):
        response = await http.post("/v1/chat/completions", json=chat_body(model=None))
        if response.status_code == 503:
            return response
        await asyncio.sleep(0.01)
    raise AssertionError("new turns are still taken")


async def test_an_idle_server_ends_at_once_and_quietly(tmp_path):
    async with headrace(tmp_path) as (process, url, printed), httpx.AsyncClient(base_url=url) as http:
        assert (await http.get("/v1/models")).json()["data"][0]["id"] == "demo"
        started_s = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0
        assert time.monotonic() - started_s < 1.0 * time_factor()
    assert "Traceback" not in "".join(printed)
    assert "KeyboardInterrupt" not in "".join(printed)


async def test_the_ready_line_is_followed_by_three_requests_that_work(tmp_path):
    async with headrace(tmp_path, "--served-model-name", "mine") as (process, url, printed):
        assert f"{url} serves mine (scripted answers)" in printed[-1]
        process.send_signal(signal.SIGINT)
        await process.wait()
    text = "".join(printed)
    assert f"curl -N {url}/v1/chat/completions" in text
    assert f'base_url="{url}/v1"' in text
    assert f"ws{url.removeprefix('http')}/v1/stream" in text


def test_a_port_in_use_is_said_in_one_line(tmp_path, capsys):
    script = tmp_path / "demo.jsonl"
    script.write_text('{"text": "a"}')
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "--model", f"scripted:{script}", "--port", str(port)]) == 1
    error = capsys.readouterr().err
    assert f"port {port}: Address already in use" in error
    assert "--port" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--model", "scripted:/nowhere.jsonl"], "Cannot read the script"),
        (["--model", "scripted:x", "--dialect", "martian"], "--dialect martian"),
        (["--model", "/nowhere/at/all"], "/nowhere/at/all"),
        (["--model", "scripted:x", "--api-key", ","], "--api-key"),
    ],
)
def test_a_command_line_that_cannot_be_followed_is_said_in_one_line(argv, words, capsys):
    assert main(["serve", *argv]) in (1, 2)
    error = capsys.readouterr().err
    assert words in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("argv", "events"),
    [
        (["--model", "/nowhere/at/all", "--device", "cuda"], ["cuda started", "ended"]),
        (["--model", "scripted:/nowhere.jsonl"], []),
        (["--model", "/nowhere/at/all", "--api-key", ","], []),
    ],
)
def test_an_engine_is_started_before_its_model_is_looked_for_and_ends_with_the_command(argv, events, monkeypatch):
    seen = []

    class Process:
        def __init__(self, device):
            seen.append(f"{device} started")

        def end(self, patience_s):
            seen.append("ended")

    monkeypatch.setattr("gateway.cli.EngineProcess", Process)
    assert main(["serve", *argv]) in (1, 2)
    assert seen == events


def test_connections_answer_without_waiting_for_more_data():
    with listen("127.0.0.1", 0) as listener:
        # What asyncio looks at before it sets TCP_NODELAY on an accepted connection.
        assert listener.proto == socket.IPPROTO_TCP


def test_help_names_every_option(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["serve", "--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    options = "model host port device dtype max-model-len kv-memory served-model-name dialect api-key drain max-turns"
    for option in options.split():
        assert f"--{option}" in text
