"""Clients that read slowly, pause, or never read again, over a real server and small buffers."""

import asyncio
import json
import socket
from contextlib import asynccontextmanager

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode

from gateway.peer import BarePeer, WriteWatch
from gateway.scripted import Match, ScriptLine
from tests.testkit.gateway_kit import running_gateway, scripted

MESSAGES = [{"role": "user", "content": "big"}]
STREAMS = {
    "/v1/chat/completions": {"messages": MESSAGES},
    "/v1/completions": {"prompt": "big", "max_tokens": 10**6},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 10**6},
    "/v1/responses": {"input": "big"},
    "/v1/responses#background": {"input": "big", "background": True},
}
ENDS = {
    "/v1/chat/completions": b"data: [DONE]\n\n",
    "/v1/completions": b"data: [DONE]\n\n",
    "/v1/messages": b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    "/v1/responses": b"event: response.completed\n",
    "/v1/responses#background": b"event: response.completed\n",
}
FAILURES = {
    "/v1/chat/completions": b'data: {"error":',
    "/v1/completions": b'data: {"error":',
    "/v1/messages": b"event: error\n",
    "/v1/responses": b"event: response.failed\n",
    "/v1/responses#background": b"event: error\n",
}
PATHS = sorted(STREAMS)
SMALL = 16_384
# Emptying the buffers takes the slow readers here longer than this.
IMPATIENT = {"slow_reader_timeout_s": 0.05, "max_pending_chars": 50_000}
HANDSHAKE = (
    b"HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
LAST_CHUNK = b"\r\n0\r\n\r\n"


def saying(num_chars):
    return scripted(ScriptLine("x" * num_chars, chunk=4000, match=Match(contains="big"), repeat=True), "Small.")


class Reader:
    """Reads when it is told to; what it does not, stays with the server."""

    def __init__(self, gateway):
        self._loop = asyncio.get_running_loop()
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
        self._socket.setblocking(False)
        self._gateway = gateway
        self.received = bytearray()

    async def connect(self):
        await self._loop.sock_connect(self._socket, ("127.0.0.1", self._gateway.port))

    async def send(self, data):
        await self._loop.sock_sendall(self._socket, data)

    async def ask(self, path):
        body = json.dumps({**STREAMS[path], "stream": True}).encode()
        head = f"POST {path.partition('#')[0]} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
        await self.connect()
        await self.send(head.encode() + body)

    @property
    def is_at_end(self):
        return self.received.endswith(LAST_CHUNK)

    async def read(self, num_bytes):
        data = await asyncio.wait_for(self._loop.sock_recv(self._socket, num_bytes), 10)
        assert data, f"the stream ended without its last chunk: {bytes(self.received[-300:])!r}"
        self.received += data

    async def read_to_end(self):
        while not self.is_at_end:
            await self.read(1 << 20)

    @property
    def last_event(self):
        event = bytes(self.received).removesuffix(LAST_CHUNK)
        start = max(event.rfind(b"event: "), event.rfind(b"\ndata: {") + 1, event.rfind(b"\ndata: [") + 1)
        return event[start if b"event: " not in event else event.rfind(b"event: ") :]

    def close(self):
        self._socket.close()


@asynccontextmanager
async def readers(gateway, paths):
    opened = {path: Reader(gateway) for path in paths}
    try:
        for path, reader in opened.items():
            await reader.ask(path)
        yield opened
    finally:
        for reader in opened.values():
            reader.close()


async def stuck_readers(caplog, number):
    while caplog.text.count("has stopped reading") < number:
        await asyncio.sleep(0.01)


async def test_clients_that_read_slowly_but_steadily_get_everything():
    async def read_slowly(reader, is_at_end):
        while not is_at_end(reader):
            await reader.read(4000)
            await asyncio.sleep(0.005)

    async with running_gateway(saying(160_000), SMALL, **IMPATIENT) as gateway, readers(gateway, PATHS) as opened:
        responses = await asking_on_a_socket(gateway, "/v1/responses", {"type": "response.create", "input": "big"})
        create = {"type": "turn.create", "turn": "a", "messages": MESSAGES}
        native = await asking_on_a_socket(gateway, "/v1/stream", create)
        over_http = [read_slowly(reader, lambda reader: reader.is_at_end) for reader in opened.values()]
        await asyncio.gather(*over_http, read_slowly(responses, has_completed), read_slowly(native, is_done))
        responses.close()
        native.close()
        assert not [path for path, reader in opened.items() if not reader.last_event.startswith(ENDS[path])]
        assert not gateway.app.metrics.num_failures_by_code


async def asking_on_a_socket(gateway, path, create):
    reader = Reader(gateway)
    await reader.connect()
    await reader.send(b"GET %b %b" % (path.encode(), HANDSHAKE))
    await reader.read(4000)
    await reader.send(Frame(Opcode.TEXT, json.dumps(create).encode()).serialize(mask=True))
    return reader


def has_completed(reader):
    return b'"type":"response.completed"' in reader.received and reader.received.endswith(b"}}")


def is_done(reader):
    return b'"type":"turn.done"' in reader.received or b'"type":"turn.error"' in reader.received


async def test_a_stream_whose_client_stopped_reading_ends_with_an_error_for_when_it_reads_on(caplog):
    changes = {"slow_reader_timeout_s": 0.1, "max_pending_chars": 50_000}
    async with running_gateway(saying(600_000), SMALL, **changes) as gateway, readers(gateway, PATHS) as opened:
        await stuck_readers(caplog, len(PATHS))
        await asyncio.gather(*(reader.read_to_end() for reader in opened.values()))
        for path, reader in opened.items():
            assert reader.last_event.startswith(FAILURES[path]), reader.last_event
            assert b"has read nothing" in reader.last_event
        await gateway.settled()


async def test_a_stream_that_ended_before_its_client_read_it_has_its_own_end(caplog):
    changes = {"slow_reader_timeout_s": 0.1}
    async with running_gateway(saying(300_000), SMALL, **changes) as gateway, readers(gateway, PATHS) as opened:
        await stuck_readers(caplog, len(PATHS))
        await asyncio.gather(*(reader.read_to_end() for reader in opened.values()))
        # A follower finds the rest where it left off; everybody else has got it all.
        for path, reader in opened.items():
            is_followed = path.endswith("#background")
            end = FAILURES[path] if is_followed else ENDS[path]
            assert reader.last_event.startswith(end), reader.last_event
            assert is_followed or reader.received.count(b"x") >= 300_000


async def test_a_client_that_never_reads_again_loses_its_connection(caplog):
    async with running_gateway(saying(600_000), SMALL, **IMPATIENT) as gateway:
        async with readers(gateway, PATHS) as opened:
            await stuck_readers(caplog, len(PATHS))
            while gateway.server.server_state.connections:
                await asyncio.sleep(0.01)
            for reader in opened.values():
                with pytest.raises((ConnectionResetError, AssertionError)):
                    await reader.read_to_end()
        await gateway.settled()
    assert "ERROR" not in {record.levelname for record in caplog.records}


async def test_a_socket_whose_client_stopped_reading_ends_its_responses_and_is_closed_to_come_back_later(caplog):
    async with running_gateway(saying(600_000), SMALL, slow_reader_timeout_s=0.1) as gateway:
        url = f"ws://127.0.0.1:{gateway.port}/v1/responses"
        async with connect(url, proxy=None, max_queue=1) as client:
            for lane in ("a", "b"):
                await client.send(json.dumps({"type": "response.create", "stream_id": lane, "input": "big"}))
            await stuck_readers(caplog, 1)
            events = []
            with pytest.raises(ConnectionClosed) as closed:
                await asyncio.wait_for(read_all(client, events), 10)
            assert closed.value.rcvd.code == 1013
            ends = {event["stream_id"]: event for event in events if event["type"] == "response.failed"}
            assert set(ends) == {"a", "b"}
            assert events[-1]["type"] == "response.failed"
        await gateway.settled()


async def read_all(client, events):
    while True:
        events.append(json.loads(await client.recv()))


# Over servers that cannot tell


async def test_over_bare_asgi_a_write_that_takes_too_long_is_cancelled():
    calls = []
    watch = WriteWatch(BarePeer(), 0.02, lambda: calls.append("progress"), lambda: calls.append("stuck"))
    with pytest.raises(asyncio.CancelledError), watch:
        await asyncio.Event().wait()
    assert (watch.is_stuck, watch.is_cut, calls) == (True, True, ["stuck"])
    asyncio.current_task().uncancel()


class _Peer(BarePeer):
    """Takes one byte between two looks, until it has taken all."""

    def __init__(self, num_bytes):
        self.num_bytes = num_bytes
        self.is_let_out = asyncio.Event()

    def num_unread_bytes(self):
        self.num_bytes = max(0, self.num_bytes - 1)
        return self.num_bytes

    def let_out(self):
        self.is_let_out.set()
        return True


async def test_whoever_takes_one_byte_at_a_time_is_not_stuck_until_it_stops():
    calls = []
    peer = _Peer(10)
    watch = WriteWatch(peer, 0.02, lambda: calls.append("progress"), lambda: calls.append("stuck"))
    with watch:
        await peer.is_let_out.wait()
    assert calls == ["progress"] * 9 + ["stuck"]
    assert (watch.is_stuck, watch.is_cut) == (True, False)
