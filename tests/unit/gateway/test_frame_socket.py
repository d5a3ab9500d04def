"""Frames as bytes, and sockets that are not uvicorn's."""

import asyncio

import pytest
from websockets.frames import Frame, Opcode

from gateway.frame_socket import frame_socket, join_frames
from gateway.peer import num_queued_bytes
from tests.testkit.gateway_kit import gateway_config


@pytest.mark.parametrize("num_bytes", [0, 1, 125, 126, 127, 65535, 65536, 100_000])
@pytest.mark.parametrize("is_text", [True, False])
def test_frames_are_those_of_rfc_6455(num_bytes, is_text):
    payload = b"x" * num_bytes
    opcode = Opcode.TEXT if is_text else Opcode.BINARY
    expected = Frame(opcode, payload).serialize(mask=False)
    assert join_frames([payload, b"y"], is_text) == expected + Frame(opcode, b"y").serialize(mask=False)


async def test_over_bare_asgi_each_frame_is_a_message():
    sent = []

    async def send(message):
        sent.append(message)

    socket = frame_socket({"type": "websocket"}, send)
    await socket.send_frames([b"a", "é".encode()], True)
    await socket.send_frames([b"\xff"], False)
    await socket.close(1000)
    socket.abort()
    assert sent == [
        {"type": "websocket.send", "text": "a"},
        {"type": "websocket.send", "text": "é"},
        {"type": "websocket.send", "bytes": b"\xff"},
        {"type": "websocket.close", "code": 1000},
    ]


async def test_what_a_peer_has_not_taken_is_counted_and_a_closed_socket_has_nothing():
    async with asyncio.timeout(10):
        accepted: list[asyncio.StreamWriter] = []
        server = await asyncio.start_server(lambda _, writer: accepted.append(writer), "127.0.0.1", 0)
        transport, _ = await asyncio.get_running_loop().create_connection(
            asyncio.Protocol, *server.sockets[0].getsockname()
        )
        assert num_queued_bytes(transport) == 0
        transport.write(bytes(20_000_000))
        while not (queued := num_queued_bytes(transport)):
            await asyncio.sleep(0.01)
        assert 0 < queued < 20_000_000
        transport.abort()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert num_queued_bytes(transport) == 0
        for writer in accepted:
            writer.transport.abort()
        server.close()
        await server.wait_closed()


def test_pings_are_on_by_default():
    config = gateway_config()
    assert config.ping_interval_s > 0
    assert config.ping_timeout_s > 0
