"""The native protocol over a real socket. Every frame that comes is checked against the published schema."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect

from gateway.scripted import Match, ScriptLine
from inference.errors import QueueFull
from tests.testkit.gateway_kit import (
    MODEL,
    FakeEngine,
    RunningGateway,
    model_backend,
    running_gateway,
    scripted,
    token_chunks,
    weather_tool,
)
from tests.testkit.native_schema import check_client_frame, check_server_frame

SLOW = ScriptLine("one two three four five six seven eight", match=Match(contains="slow"), delay_s=0.02, repeat=True)
CALL = ScriptLine(
    '<think>why</think>Let me look.<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>',
    match=Match(contains="weather"),
    repeat=True,
)
HELLO = ScriptLine("Hello there.", repeat=True)
LINES = (SLOW, CALL, HELLO)


class Client:
    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self.frames: list[dict[str, Any]] = []

    async def send(self, frame: Any) -> None:
        await self._socket.send(frame if isinstance(frame, (str, bytes)) else json.dumps(frame))

    async def create(self, turn: str, text: str = "Hi", **fields: Any) -> None:
        frame = {"type": "turn.create", "turn": turn, "messages": [{"role": "user", "content": text}], **fields}
        check_client_frame(frame)
        await self.send(frame)

    async def recv(self) -> dict[str, Any]:
        async with asyncio.timeout(10):
            frame = json.loads(await self._socket.recv())
        check_server_frame(frame)
        self.frames.append(frame)
        return frame

    async def until(self, kind: str, turn: str | None = None) -> dict[str, Any]:
        """Reads on to the next frame of this kind (and turn) and gives it back."""
        while True:
            frame = await self.recv()
            if frame["type"] == kind and (turn is None or frame["turn"] == turn):
                return frame

    def of(self, turn: str) -> list[dict[str, Any]]:
        return [frame for frame in self.frames if frame.get("turn") == turn]

    def kinds(self, turn: str) -> list[str]:
        return [frame["type"] for frame in self.of(turn)]

    def text(self, turn: str) -> str:
        return "".join(frame["text"] for frame in self.of(turn) if frame["type"] == "content.delta")


@asynccontextmanager
async def connected(gateway: RunningGateway) -> AsyncIterator[Client]:
    async with connect(gateway.ws_url) as socket:
        client = Client(socket)
        assert (await client.recv())["type"] == "hello"
        yield client


@asynccontextmanager
async def scripted_client(*lines: ScriptLine, **config: Any) -> AsyncIterator[Client]:
    async with running_gateway(scripted(*(lines or LINES)), **config) as gateway:
        async with connected(gateway) as client:
            yield client
        await gateway.settled()


async def test_hello_says_who_serves_what_and_how_much():
    async with (
        running_gateway(model_backend(FakeEngine()), max_connection_turns=3) as gateway,
        connected(gateway) as client,
    ):
        (hello,) = client.frames
        assert (hello["protocol"], hello["models"]) == ("headrace.v1", [MODEL])
        assert hello["limits"] == {"max_turns": 3, "max_frame_bytes": 8 * 1024 * 1024, "max_model_len": 1000}


async def test_a_turn_has_its_frames_in_order_with_sequence_numbers():
    async with scripted_client() as client:
        await client.create("t", "weather", tools=[weather_tool()])
        done = await client.until("turn.done")
        assert [frame["seq"] for frame in client.of("t")] == list(range(len(client.of("t"))))
        kinds = client.kinds("t")
        assert kinds[0] == "turn.created"
        assert kinds.index("reasoning.delta") < kinds.index("content.delta") < kinds.index("tool_call.start")
        assert kinds[-2:] == ["tool_call.end", "turn.done"]
        end = client.of("t")[-2]
        pieces = [frame["arguments"] for frame in client.of("t") if frame["type"] == "tool_call.delta"]
        assert (end["arguments"], end["outcome"], end["reason"]) == ('{"city": "Oslo"}', "ok", None)
        assert "".join(pieces) == end["arguments"]
        assert done["finish_reason"] == "tool_calls"
        assert done["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0


async def test_what_a_turn_asked_for_and_will_not_get_is_said_when_it_is_created():
    async with scripted_client() as client:
        await client.create("t", "weather", tools=[weather_tool()], tool_choice="required")
        (warning,) = (await client.until("turn.created"))["warnings"]
        assert warning.startswith("tool_choice")
        await client.until("turn.done")


async def test_turns_without_a_lane_run_side_by_side():
    async with scripted_client() as client:
        await client.create("slow", "slow")
        await client.until("content.delta", "slow")
        await client.create("fast")
        await client.until("turn.done", "fast")
        assert "turn.done" not in client.kinds("slow")
        await client.until("turn.done", "slow")
        assert client.text("slow") == SLOW.text


async def test_turns_of_a_lane_run_one_after_the_other_and_lanes_side_by_side():
    async with scripted_client() as client:
        await client.create("a1", "slow", lane="a", max_tokens=3)
        await client.create("a2", lane="a")
        await client.create("b1", lane="b")
        await client.until("turn.done", "b1")
        assert client.of("a2") == []
        await client.until("turn.done", "a2")
        order = [frame["turn"] for frame in client.frames if frame["type"] in ("turn.created", "turn.done")]
        assert order.index("a1") < len(order) - 1 - order[::-1].index("a1") < order.index("a2")


async def test_a_cancelled_turn_ends_at_once_and_says_so():
    async with scripted_client() as client:
        await client.create("t", "slow")
        await client.until("content.delta", "t")
        await client.send({"type": "turn.cancel", "turn": "t"})
        done = await client.until("turn.done", "t")
        assert done["finish_reason"] == "cancelled"
        assert 0 < done["usage"]["completion_tokens"] < 8


async def test_a_cancelled_call_is_closed_first():
    line = ScriptLine(CALL.text, chunk=4, delay_s=0.02)
    async with scripted_client(line) as client:
        await client.create("t", "weather", tools=[weather_tool()])
        await client.until("tool_call.delta", "t")
        await client.send({"type": "turn.cancel", "turn": "t"})
        await client.until("turn.done", "t")
        assert client.kinds("t")[-2:] == ["tool_call.end", "turn.done"]
        assert client.of("t")[-2]["outcome"] == "truncated"


async def test_a_turn_that_waits_in_its_lane_can_be_cancelled_and_the_lane_goes_on():
    async with scripted_client() as client:
        await client.create("a1", "slow", lane="a", max_tokens=3)
        await client.create("a2", lane="a")
        await client.create("a3", lane="a")
        await client.send({"type": "turn.cancel", "turn": "a2"})
        done = await client.until("turn.done", "a2")
        assert (done["seq"], done["finish_reason"]) == (0, "cancelled")
        assert "turn.done" not in client.kinds("a1")
        await client.until("turn.done", "a3")
        assert client.text("a3") == "Hello there."


async def test_cancelling_what_is_not_there_is_ignored():
    async with scripted_client() as client:
        await client.send({"type": "turn.cancel", "turn": "gone"})
        await client.send({"type": "ping", "nonce": "n"})
        assert await client.recv() == {"type": "pong", "nonce": "n"}


async def test_an_id_is_free_again_once_its_last_frame_was_read():
    async with scripted_client() as client:
        for _ in range(20):
            await client.create("t")
            await client.until("turn.done", "t")
        assert client.kinds("t").count("turn.created") == 20
        assert "error" not in [frame["type"] for frame in client.frames]


async def test_an_id_in_use_is_an_error_of_the_connection_and_the_turn_goes_on():
    async with scripted_client() as client:
        await client.create("t", "slow")
        await client.create("t")
        error = await client.until("error")
        assert (error["error"]["code"], error["error"]["param"]) == ("turn_in_use", "turn")
        await client.until("turn.done", "t")
        assert client.text("t") == SLOW.text


@pytest.mark.parametrize(
    ("fields", "status", "code", "param"),
    [
        ({"messages": []}, 400, "empty_array", "messages"),
        ({"max_tokens": -1}, 400, "invalid_value", "max_tokens"),
        ({"model": "other"}, 404, "model_not_found", "model"),
        ({"n": 2}, 400, "invalid_value", "n"),
        ({"logprobs": True}, 400, "invalid_value", "logprobs"),
    ],
)
async def test_what_is_wrong_with_a_turn_ends_that_turn_alone(fields, status, code, param):
    async with scripted_client() as client:
        await client.send(
            {"type": "turn.create", "turn": "t", "messages": [{"role": "user", "content": "x"}], **fields}
        )
        error = await client.until("turn.error", "t")
        assert (error["seq"], error["error"]["status"]) == (0, status)
        assert (error["error"]["code"], error["error"]["param"]) == (code, param)
        await client.create("t")
        await client.until("turn.done", "t")


@pytest.mark.parametrize(
    ("frame", "code", "param"),
    [
        ("", "invalid_json", None),
        ("{", "invalid_json", None),
        ("[]", "invalid_type", None),
        ("[" * 10_000, "invalid_json", None),
        (b"\x00", "invalid_frame", None),
        ({}, "missing_required_parameter", "type"),
        ({"type": 3}, "invalid_type", "type"),
        ({"type": "turn.destroy"}, "invalid_value", "type"),
        ({"type": "turn.create"}, "missing_required_parameter", "turn"),
        ({"type": "turn.create", "turn": ""}, "invalid_value", "turn"),
        ({"type": "turn.create", "turn": 7}, "invalid_type", "turn"),
        ({"type": "turn.create", "turn": "x" * 129}, "invalid_value", "turn"),
        ({"type": "turn.create", "turn": "a", "lane": 1}, "invalid_type", "lane"),
        ({"type": "turn.cancel"}, "missing_required_parameter", "turn"),
        ({"type": "ping", "nonce": 5}, "invalid_type", "nonce"),
        ({"type": "ping", "padding": "x" * 20_000}, "frame_too_large", None),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_a_frame_that_belongs_to_no_turn_is_an_error_and_the_connection_stays(frame, code, param):
    async with scripted_client(max_body_bytes=12_000) as client:
        await client.create("t", "slow")
        await client.send(frame)
        error = await client.until("error")
        assert (error["error"]["code"], error["error"]["param"]) == (code, param)
        assert error["error"]["status"] == (413 if code == "frame_too_large" else 400)
        await client.until("turn.done", "t")
        assert client.text("t") == SLOW.text


async def test_more_turns_than_a_connection_takes_are_refused_one_by_one():
    async with scripted_client(max_connection_turns=2) as client:
        for turn in ("a", "b", "c"):
            await client.create(turn, "slow")
        error = await client.until("turn.error", "c")
        assert (error["error"]["status"], error["error"]["retry_after_s"]) == (429, 1.0)
        await client.until("turn.done", "b")


async def test_what_the_engine_refuses_ends_the_turn_with_when_to_come_back():
    engine = FakeEngine()
    engine.refusal = QueueFull(512, 512, 2.5)
    async with running_gateway(model_backend(engine)) as gateway, connected(gateway) as client:
        await client.create("t")
        error = (await client.until("turn.error", "t"))["error"]
        assert (error["status"], error["code"], error["retry_after_s"]) == (429, "rate_limit_exceeded", 2.5)
        assert client.kinds("t") == ["turn.error"]


async def test_an_engine_that_dies_ends_its_turns_with_an_error_and_the_socket_stays():
    engine = FakeEngine()
    async with running_gateway(model_backend(engine)) as gateway, connected(gateway) as client:
        await client.create("t")
        await client.until("turn.created")
        (tokens,) = engine.live.values()
        for chunk in token_chunks(tokens.request, "Hello")[:2]:
            tokens.push(chunk)
        await client.until("content.delta", "t")
        engine.die()
        error = (await client.until("turn.error", "t"))["error"]
        assert (error["status"], error["code"]) == (503, "engine_unavailable")
        await client.send({"type": "ping"})
        assert await client.recv() == {"type": "pong"}


async def test_closing_the_socket_cancels_its_turns_in_the_engine():
    engine = FakeEngine()
    async with running_gateway(model_backend(engine)) as gateway:
        async with connected(gateway) as client:
            for turn in ("a", "b", "c"):
                await client.create(turn, lane="x" if turn == "c" else None)
            for _ in range(3):
                await client.until("turn.created")
            tokens = list(engine.live.values())
        await gateway.settled()
        assert engine.live == {}
        assert all(stream.is_cancelled for stream in tokens)


async def test_a_client_that_pings_without_reading_is_held_up_and_then_served():
    async with scripted_client() as client:
        for i in range(600):
            await client.send({"type": "ping", "nonce": str(i)})
        for i in range(600):
            assert (await client.recv())["nonce"] == str(i)


async def test_requests_that_wait_may_not_take_all_memory():
    async with scripted_client(SLOW, max_body_bytes=2000) as client:
        for number in range(40):
            await client.create(f"t{number}", "slow" + "x" * 1800, lane="a")
        refused = [await client.until("turn.error") for _ in range(6)]
        assert {error["error"]["code"] for error in refused} == {"rate_limit_exceeded"}
        for number in range(40):
            await client.send({"type": "turn.cancel", "turn": f"t{number}"})
        await client.until("turn.done", "t0")
        # What has ended makes room again.
        await client.create("again", "slow", lane="b", max_tokens=1)
        await client.until("turn.done", "again")
