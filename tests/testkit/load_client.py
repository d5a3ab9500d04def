"""Many streams read at next to no cost, over WebSockets and event streams: raw sockets, one regular expression a read.

Reads the stamped tokens of tests.testkit.paced_engine: each has to come once, in order, on its own stream.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import time
from array import array
from dataclasses import dataclass, field

_WS_DELTA = re.compile(rb'"type":"content.delta","turn":"t(\d+)","seq":\d+,"text":"([^"]*)"')
_WS_END = re.compile(rb'"type":"turn\.(done|error)","turn":"t(\d+)"')
_SSE_DELTA = re.compile(rb'"content":"([^"]+)"')
_TOKEN = re.compile(rb" (\d+):(\d+):(\d+)")
_BUCKET_S = 20e-6
_NUM_BUCKETS = 200_000


@dataclass
class Tally:
    """What came. latencies: counts by buckets of 20 µs, the last holds all above. faults: the first few, in words."""

    num_tokens_each: int
    expected: dict[int, int] = field(default_factory=dict)
    latencies: array[int] = field(default_factory=lambda: array("Q", bytes(8 * _NUM_BUCKETS)))
    num_tokens: int = 0
    num_done: int = 0
    num_deltas: int = 0
    num_reads: int = 0
    is_measuring: bool = False
    faults: list[str] = field(default_factory=list)

    def tokens(self, stream: int, text: bytes, now_us: float) -> None:
        self.num_deltas += 1
        for found in _TOKEN.finditer(text):
            owner, index, due_us = found.groups()
            if int(owner) != stream or int(index) != self.expected.get(stream, 0):
                self.fault(
                    f"stream {stream}: token {owner.decode()}:{index.decode()} came, not {self.expected.get(stream)}"
                )
            self.expected[stream] = int(index) + 1
            self.num_tokens += 1
            if self.is_measuring:
                late = int((now_us - int(due_us)) * (1e-6 / _BUCKET_S))
                self.latencies[min(max(late, 0), _NUM_BUCKETS - 1)] += 1

    def end(self, stream: int, is_done: bool) -> None:
        self.num_done += 1
        if not is_done or self.expected.get(stream) != self.num_tokens_each:
            self.fault(f"stream {stream} ended after {self.expected.get(stream)} tokens, done: {is_done}")

    def fault(self, words: str) -> None:
        if len(self.faults) < 20:
            self.faults.append(words)

    def percentile_ms(self, share: float) -> float:
        rank = share * sum(self.latencies)
        num_below = 0
        for i, count in enumerate(self.latencies):
            num_below += count
            if num_below >= rank and count:
                return (i + 1) * _BUCKET_S * 1000
        return 0.0


class _Reader(asyncio.Protocol):
    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.answered = asyncio.get_running_loop().create_future()
        self.closed = asyncio.get_running_loop().create_future()
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)

    def data_received(self, data: bytes) -> None:
        now_us = time.monotonic() * 1e6
        self.tally.num_reads += 1
        if not self.answered.done():
            self.answered.set_result(None)
        data = self._rest + data
        # A frame ends with a brace; what is behind the last one is not whole yet.
        cut = data.rfind(b"}") + 1
        self._rest = data[cut:]
        self.frames(data[:cut], now_us)

    def frames(self, data: bytes, now_us: float) -> None:
        raise NotImplementedError


class SocketReader(_Reader):
    """One WebSocket with many turns, `t0`, `t1` … by stream number."""

    def frames(self, data: bytes, now_us: float) -> None:
        for delta in _WS_DELTA.finditer(data):
            self.tally.tokens(int(delta[1]), delta[2], now_us)
        if b'"turn.done"' in data or b'"turn.error"' in data:
            for end in _WS_END.finditer(data):
                self.tally.end(int(end[2]), end[1] == b"done")

    def send(self, fields: dict[str, object]) -> None:
        payload = json.dumps(fields).encode()
        head = b"\x81" + (bytes((0x80 | len(payload),)) if len(payload) < 126 else b"\xfe" + len(payload).to_bytes(2))
        # Masked with zeros, as clients have to mask: RFC 6455, section 5.3.
        self.transport.write(head + bytes(4) + payload)


class StreamReader(_Reader):
    """One event stream over HTTP."""

    def __init__(self, tally: Tally, stream: int) -> None:
        super().__init__(tally)
        self._stream = stream

    def frames(self, data: bytes, now_us: float) -> None:
        for delta in _SSE_DELTA.finditer(data):
            self.tally.tokens(self._stream, delta[1], now_us)
        if b'"finish_reason":"stop"' in data:
            self.tally.end(self._stream, True)
        elif b'"error"' in data:
            self.tally.end(self._stream, False)


async def open_socket(host: str, port: int, tally: Tally) -> SocketReader:
    _, reader = await asyncio.get_running_loop().create_connection(lambda: SocketReader(tally), host, port)
    key = base64.b64encode(os.urandom(16)).decode()
    lines = ["GET /v1/stream HTTP/1.1", f"Host: {host}", "Upgrade: websocket", "Connection: Upgrade"]
    lines += [f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", "", ""]
    reader.transport.write("\r\n".join(lines).encode())
    await reader.answered
    return reader


def create_turn(reader: SocketReader, stream: int, num_tokens: int) -> None:
    messages = [{"role": "user", "content": f"load {stream} {num_tokens}"}]
    reader.send({"type": "turn.create", "turn": f"t{stream}", "messages": messages})


async def open_event_stream(host: str, port: int, tally: Tally, stream: int, num_tokens: int) -> StreamReader:
    _, reader = await asyncio.get_running_loop().create_connection(lambda: StreamReader(tally, stream), host, port)
    body = json.dumps({"stream": True, "messages": [{"role": "user", "content": f"load {stream} {num_tokens}"}]})
    lines = ["POST /v1/chat/completions HTTP/1.1", f"Host: {host}", f"Content-Length: {len(body)}", "", body]
    reader.transport.write("\r\n".join(lines).encode())
    return reader
