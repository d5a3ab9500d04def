"""What bad clients and dead engines do to the native socket, sized by its arguments: short in unit tests, long in soak.

Each returns when everything that it began has ended by the rules, and raises where it has not.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests.testkit.gateway_kit import FakeEngine, RunningGateway, time_factor
from tests.testkit.native_client import native_client


@contextlib.asynccontextmanager
async def undisturbed(gateway: RunningGateway, text: str, limit_s: float) -> AsyncIterator[list[float]]:
    """Meanwhile another client runs turn after turn: each has to come whole, and within `limit_s`."""
    took_s: list[float] = []

    async def others() -> None:
        async with native_client(gateway, checks_schema=False) as client:
            while True:
                started_s = time.monotonic()
                await client.create("t", "other")
                await client.ended("t")
                took_s.append(time.monotonic() - started_s)
                assert client.text("t") == text
                assert client.frames[-1]["type"] == "turn.done"
                client.frames.clear()

    task = asyncio.create_task(others())
    try:
        yield took_s
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    assert took_s
    assert max(took_s) < limit_s * time_factor(), f"another client's turn took {max(took_s):.2f} s"


async def slow_reader(gateway: RunningGateway, *, num_turns: int, bytes_a_second: int, seconds: float) -> int:
    """Reads slowly and goes. Returns how many bytes it took."""
    reader, writer = await _raw_socket(gateway)
    _ask_for_much(writer, num_turns)
    num_bytes = 0
    ends_s = time.monotonic() + seconds
    while time.monotonic() < ends_s:
        num_bytes += len(await reader.read(max(1, bytes_a_second // 20)))
        await asyncio.sleep(0.05)
    writer.transport.abort()
    return num_bytes


async def stalled_reader(gateway: RunningGateway, *, num_turns: int) -> None:
    """Asks for much, reads nothing, and stays until the server has had enough of its turns or of itself."""
    _, writer = await _raw_socket(gateway)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    _ask_for_much(writer, num_turns)
    while gateway.app.admission.num_live < num_turns:
        await asyncio.sleep(0.01)
    while gateway.app.admission.num_live > 1:
        await asyncio.sleep(0.02)
    writer.transport.abort()


async def many_cancels(gateway: RunningGateway, *, num_turns: int) -> None:
    """Each is answered by its own end, whenever it came: waiting in a lane, just begun, in full flow."""
    async with native_client(gateway, checks_schema=False) as client:
        num_cancelled = 0
        for start in range(0, num_turns, 50):
            turns = [f"t{number}" for number in range(start, min(start + 50, num_turns))]
            for number, turn in enumerate(turns):
                await client.create(turn, "flood", lane=f"l{number % 5}" if number % 2 else None)
            for turn in turns:
                await client.send({"type": "turn.cancel", "turn": turn})
                await client.send({"type": "turn.cancel", "turn": f"no-{turn}"})
            await client.ended(*turns)
            ends = [frame for frame in client.frames if frame["type"] in ("turn.done", "turn.error")]
            assert {frame["turn"] for frame in ends} == set(turns)
            assert {frame["finish_reason"] for frame in ends} == {"cancelled"}
            num_cancelled += len(ends)
            client.frames.clear()
        assert num_cancelled == num_turns
        await client.nothing_comes()


async def many_lanes(gateway: RunningGateway, *, num_lanes: int) -> None:
    """Two turns a lane: in order within it, and none mixed with another's."""
    async with native_client(gateway, checks_schema=False) as client:
        for number in range(num_lanes):
            await client.create(f"a{number}", "other", lane=f"lane {number}")
            await client.create(f"b{number}", "other", lane=f"lane {number}")
        turns = [f"{half}{number}" for half in "ab" for number in range(num_lanes)]
        await client.ended(*turns)
        order = {frame["turn"]: i for i, frame in enumerate(client.frames) if frame["type"] == "turn.created"}
        ends = {frame["turn"]: i for i, frame in enumerate(client.frames) if frame["type"] == "turn.done"}
        assert len(ends) == 2 * num_lanes
        assert all(ends[f"a{number}"] < order[f"b{number}"] for number in range(num_lanes))


async def oversized_frames(gateway: RunningGateway) -> None:
    """Above the limit a frame is an error and the connection stays; above twice of it the connection is closed."""
    limit = gateway.app.config.max_body_bytes
    async with native_client(gateway, checks_schema=False) as client:
        await client.create("t", "other")
        await client.send(json.dumps({"type": "ping", "padding": "x" * limit}))
        assert (await client.until("error"))["error"]["code"] == "frame_too_large"
        await client.ended("t")
        with contextlib.suppress(ConnectionClosed):
            await client.socket.send(json.dumps({"type": "ping", "padding": "x" * 2 * limit}))
        async for _ in client.frames_until_closed():
            pass
        assert client.socket.close_code == 1009


async def killed_engine(gateway: RunningGateway, engine: FakeEngine, *, num_turns: int) -> None:
    """Every turn ends with the error that says when to come back, those that wait for credit too."""
    async with native_client(gateway, checks_schema=False) as client:
        turns = [f"t{number}" for number in range(num_turns)]
        for number, turn in enumerate(turns):
            await client.create(turn, credit=0 if number % 3 == 0 else None)
        for _ in turns:
            await client.until("turn.created")
        engine.die()
        await client.ended(*turns)
        errors = [frame["error"] for frame in client.frames if frame["type"] == "turn.error"]
        assert len(errors) == num_turns
        assert {(error["status"], error["code"]) for error in errors} == {(503, "engine_unavailable")}


async def vanishing_clients(gateway: RunningGateway, *, num_clients: int) -> None:
    """They begin turns and are gone, some with a Close frame, some without."""
    for number in range(num_clients):
        async with connect(gateway.ws_url) as socket:
            for turn in range(5):
                messages = [{"role": "user", "content": "flood"}]
                await socket.send(json.dumps({"type": "turn.create", "turn": f"t{turn}", "messages": messages}))
            await socket.recv()
            if number % 2:
                socket.transport.abort()


async def _raw_socket(gateway: RunningGateway) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """After the handshake. Small buffers here, so that what is not read stays with the server."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port, limit=1024)
    lines = ["GET /v1/stream HTTP/1.1", "Host: x", "Upgrade: websocket", "Connection: Upgrade"]
    lines += ["Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version: 13", "", ""]
    writer.write("\r\n".join(lines).encode())
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


def _ask_for_much(writer: asyncio.StreamWriter, num_turns: int) -> None:
    messages = [{"role": "user", "content": "deluge"}]
    for number in range(num_turns):
        _send(writer, {"type": "turn.create", "turn": f"t{number}", "messages": messages})


def _send(writer: asyncio.StreamWriter, fields: dict[str, object]) -> None:
    payload = json.dumps(fields).encode()
    assert len(payload) < 126
    writer.write(bytes((0x81, 0x80 | len(payload))) + bytes(4) + payload)
