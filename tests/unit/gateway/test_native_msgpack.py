"""The native protocol in MessagePack: the same fields in binary frames."""

import ormsgpack
import pytest

from gateway.errors import InvalidRequest
from gateway.protocols.native_codec import JSON, MSGPACK, delta_head, negotiate
from gateway.scripted import Match, ScriptLine
from tests.testkit.gateway_kit import running_gateway, scripted, weather_tool
from tests.testkit.native_client import native_client, resumed

SUBPROTOCOL = "headrace.v1.msgpack"
CALL = '<think>why</think>Let me look.<tool_call>\n{"name": "weather", "arguments": {"city": "Åre"}}\n</tool_call>'
LINES = (
    ScriptLine(CALL, match=Match(contains="weather"), delay_s=0.002, repeat=True),
    ScriptLine("Hello.", repeat=True),
)


async def test_both_encodings_say_the_same():
    async with running_gateway(scripted(*LINES)) as gateway:
        answers = []
        for subprotocols in ((), ("headrace.v1",), (SUBPROTOCOL,), ("unknown", SUBPROTOCOL)):
            async with native_client(gateway, subprotocols=subprotocols) as client:
                assert client.socket.subprotocol == (subprotocols[-1] if subprotocols else None)
                await client.create("t", "weather", tools=[weather_tool()])
                await client.ended("t")
                varying = ("id", "created")
                answers.append([{k: v for k, v in frame.items() if k not in varying} for frame in client.of("t")])
        assert all(answer == answers[0] for answer in answers)
        assert {"reasoning.delta", "content.delta", "tool_call.delta"} <= {frame["type"] for frame in answers[0]}


async def test_a_subprotocol_that_is_not_known_is_not_accepted_and_json_is_spoken():
    offered = ("other.v7",)
    async with running_gateway(scripted(*LINES)) as gateway, native_client(gateway, subprotocols=offered) as client:
        assert client.socket.subprotocol is None
        await client.create("t")
        await client.ended("t")
        assert client.text("t") == "Hello."


async def test_a_msgpack_stream_is_resumed_like_a_json_one():
    async with running_gateway(scripted(*LINES)) as gateway:
        async with native_client(gateway, subprotocols=(SUBPROTOCOL,)) as first:
            await first.create("t", "weather", tools=[weather_tool()])
            await first.until("content.delta")
            first.lose()
        async with resumed(gateway, first, subprotocols=(SUBPROTOCOL,)) as client:
            await client.ended("t")
            assert client.kinds("t")[-2:] == ["tool_call.end", "turn.done"]


BAD_FRAMES: list[tuple[str | bytes, str]] = [
    ("{}", "invalid_frame"),
    (b"", "invalid_msgpack"),
    (b"\xc1", "invalid_msgpack"),
    (b"\x81\x01\x02", "invalid_msgpack"),
    (b"\x81\xa1\xff\x01", "invalid_msgpack"),
    (b"\xd6\xff\x00\x00\x00\x01", "invalid_msgpack"),
    (b"\x91" * 100_000, "invalid_msgpack"),
    (ormsgpack.packb([]), "invalid_type"),
    (ormsgpack.packb({"type": "ping", "x": b"bytes"}), "invalid_msgpack"),
    (ormsgpack.packb({"type": "ping", "x": [{"y": float("nan")}]}), "invalid_msgpack"),
    (ormsgpack.packb({"type": "ping", "nonce": 1.5}), "invalid_type"),
    (ormsgpack.packb({"type": "nothing"}), "invalid_value"),
]


async def test_what_is_no_frame_is_an_error_of_the_connection_which_stays():
    offered = (SUBPROTOCOL,)
    async with running_gateway(scripted(*LINES)) as gateway, native_client(gateway, subprotocols=offered) as client:
        for data, code in BAD_FRAMES:
            await client.send(data)
            assert ((await client.until("error"))["error"]["code"], data) == (code, data)
        await client.create("t")
        await client.ended("t")


def test_deep_nesting_is_refused_before_anything_walks_it():
    value: object = 1
    for _ in range(200):
        value = [value]
    with pytest.raises(InvalidRequest):
        MSGPACK.load(ormsgpack.packb({"x": value}))


def test_numbers_texts_and_nothing_pass():
    fields = {"a": 1, "b": -1.5, "c": None, "d": True, "e": "日本", "f": [{"g": []}]}
    assert MSGPACK.load(MSGPACK.dump(fields)) == JSON.load(JSON.dump(fields).decode()) == fields


def test_the_first_known_subprotocol_wins():
    assert negotiate(["x", SUBPROTOCOL, "headrace.v1"]) == (MSGPACK, SUBPROTOCOL)
    assert negotiate(["headrace.v1", SUBPROTOCOL]) == (JSON, "headrace.v1")
    assert negotiate([]) == (JSON, None)


@pytest.mark.parametrize("codec", [JSON, MSGPACK])
@pytest.mark.parametrize("turn", ["t", 'quote " and \\', "日本"])
def test_a_delta_is_spelled_as_the_whole_frame_would_be(codec, turn):
    def load(data: bytes) -> object:
        return codec.load(data.decode() if codec.is_text else data)

    text = load(codec.delta(delta_head("content.delta", turn, "text"), 3, 'a"b', None))
    assert text == {"type": "content.delta", "turn": turn, "seq": 3, "text": 'a"b'}
    call = load(codec.delta(delta_head("tool_call.delta", turn, "arguments"), 0, "{", 2))
    assert call == {"type": "tool_call.delta", "turn": turn, "seq": 0, "index": 2, "arguments": "{"}
