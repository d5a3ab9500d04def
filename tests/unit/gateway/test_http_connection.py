"""Clients that send a request in drops, or without end, on uvicorn's two HTTP parsers; none of them needs a key."""

import asyncio
import logging
import time
from contextlib import suppress

import pytest
import pytest_asyncio
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode

from gateway import http_connection
from gateway.http_connection import MAX_HEAD_BYTES
from gateway.scripted import Match, ScriptLine
from tests.testkit.gateway_kit import running_gateway, scripted

pytestmark = pytest.mark.asyncio(loop_scope="module")

TIMEOUT_S = 0.08
GET = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
CHAT_HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n"
KEY = b"Authorization: Bearer k\r\n"
BEARER = {"authorization": "Bearer k"}
HALF_A_CHAT = CHAT_HEAD % 100 + KEY + b"\r\n{"
LINES = (
    ScriptLine("one two", match=Match(contains="slow"), delay_s=TIMEOUT_S, repeat=True),
    ScriptLine("ok", repeat=True),
)


@pytest.fixture(scope="module", params=["httptools", "h11"])
def parser(request):
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "h11":
            patch.setattr(http_connection, "HttpToolsProtocol", None)
        else:
            pytest.importorskip("httptools")
        yield request.param


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(parser):
    async with running_gateway(scripted(*LINES), api_keys=("k",), read_timeout_s=TIMEOUT_S) as running:
        yield running


async def answer_to(gateway, *parts, pause_s=0.0):
    """Everything that comes until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    received = b""
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause_s)
        received = await asyncio.wait_for(reader.read(), 10)
    except ConnectionError:
        # The server closed while we wrote; what it said before is lost with the connection.
        pass
    finally:
        writer.close()
    return received


async def test_a_head_that_does_not_end_is_answered_by_408(gateway):
    assert (await answer_to(gateway, b"GET /hea")).startswith(b"HTTP/1.1 408 ")
    assert (await answer_to(gateway, b"GET /health HTTP/1.1\r\nHost: x\r\nX: ")).startswith(b"HTTP/1.1 408 ")


async def test_a_head_that_comes_in_drops_has_no_more_time_for_that(gateway):
    begin_s = time.monotonic()
    drops = [b"GET /health HTTP/1.1\r\n", *[b"X: y\r\n"] * 200]
    received = await answer_to(gateway, *drops, pause_s=TIMEOUT_S / 10)
    assert time.monotonic() - begin_s < 20 * TIMEOUT_S
    assert received == b"" or received.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("first", [b"", b"\r\n"], ids=["nothing", "a line break"])
async def test_a_connection_that_never_asks_for_anything_is_closed(gateway, first):
    received = await answer_to(gateway, first)
    # To h11 an empty line is a bad request already.
    assert received == b"" or (first and received.startswith(b"HTTP/1.1 400 "))


async def test_the_second_request_of_a_connection_is_watched_as_well(gateway):
    received = await answer_to(gateway, GET, b"GET /health HT", pause_s=TIMEOUT_S / 3)
    assert received.startswith(b"HTTP/1.1 200 ")
    assert b"HTTP/1.1 408 " in received


async def test_a_body_that_does_not_come_is_answered_by_408(gateway):
    received = await answer_to(gateway, HALF_A_CHAT)
    assert received.startswith(b"HTTP/1.1 408 ")
    assert b"request_timeout" in received
    assert b"connection: close" in received.lower()
    assert b"x-should-retry: true" in received


async def test_the_rest_of_a_body_that_was_answered_early_is_not_waited_for_long(gateway):
    head = CHAT_HEAD.replace(b"Connection: close\r\n", b"") % 100
    received = await answer_to(gateway, head + b"\r\n{", b" ", pause_s=TIMEOUT_S / 3)
    assert received.startswith(b"HTTP/1.1 401 ")


async def test_who_is_quick_is_not_cut_and_may_pause_between_requests(gateway):
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    for _ in range(2):
        writer.write(GET[:10])
        await asyncio.sleep(TIMEOUT_S / 3)
        writer.write(GET[10:])
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
        assert head.startswith(b"HTTP/1.1 200 ")
        await reader.readexactly(len(b'{"status":"ok"}'))
        await asyncio.sleep(2 * TIMEOUT_S)
    writer.close()


async def test_a_turn_that_takes_longer_than_requests_may_is_not_cut(gateway):
    body = b'{"messages":[{"role":"user","content":"slow"}]}'
    assert b"one two" in await answer_to(gateway, CHAT_HEAD % len(body) + KEY + b"\r\n" + body)


ENDLESS = [
    b"GET /health HTTP/1.1\r\nX: " + b"a" * 1_000_000,
    b"GET /" + b"a" * 1_000_000,
    b"GET / HTTP/1.1\r\n" + b"X-Y: z\r\n" * 100_000,
]


async def test_a_head_without_end_is_cut_off_by_its_size(parser):
    """Long before its time is over; without the limit the server would go on reading."""
    async with running_gateway(scripted(*LINES), api_keys=("k",), read_timeout_s=30.0) as gateway:
        for head in ENDLESS:
            pieces = [head[i : i + 16_384] for i in range(0, len(head), 16_384)]
            received = await answer_to(gateway, *pieces)
            assert received == b"" or received.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 "))
        assert not gateway.server.server_state.connections


async def test_a_long_head_within_the_limit_passes(gateway):
    head = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX: " + b"a" * (MAX_HEAD_BYTES // 2) + b"\r\n\r\n"
    assert (await answer_to(gateway, head)).startswith(b"HTTP/1.1 200 ")


async def test_a_server_that_ends_amid_requests_says_so_and_logs_no_fault(parser, caplog):
    caplog.set_level(logging.INFO)
    async with running_gateway(scripted(*LINES), api_keys=("k",), read_timeout_s=30.0) as gateway:
        asked = [asyncio.create_task(answer_to(gateway, part)) for part in (HALF_A_CHAT, b"GET /hea", b"")]
        while len(gateway.server.server_state.connections) < 3 or not gateway.server.server_state.tasks:
            await asyncio.sleep(0.005)
    answers = await asyncio.gather(*asked)
    assert answers[0].startswith(b"HTTP/1.1 503 ")
    assert b"server_shutting_down" in answers[0]
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR or record.exc_info]


@pytest.mark.parametrize("path", ["/v1/stream", "/v1/responses"])
@pytest.mark.parametrize(
    "frames", [[Frame(Opcode.TEXT, b"{\xff")], [Frame(Opcode.TEXT, b"\xc3", fin=False), Frame(Opcode.CONT, b"a")]]
)
async def test_text_that_is_not_utf8_closes_its_socket_and_is_no_fault_of_the_server(gateway, path, frames, caplog):
    async with connect(f"ws://127.0.0.1:{gateway.port}{path}", additional_headers=BEARER, proxy=None) as client:
        client.transport.write(b"".join(frame.serialize(mask=True) for frame in frames))
        with suppress(ConnectionClosed):
            async for _ in client:
                pass  # a greeting, on one of them
        assert client.close_code == 1007
    await gateway.settled()
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR or record.exc_info]


async def test_a_character_cut_between_frames_of_one_message_is_whole(gateway):
    url = f"ws://127.0.0.1:{gateway.port}/v1/stream"
    async with connect(url, additional_headers=BEARER, proxy=None) as client:
        await client.recv()
        await client.send([b'{"type":"ping","nonce":"\xc3', b'\xa9"}'], text=True)
        assert "é" in await asyncio.wait_for(client.recv(), 5)
