"""Turn items to frames, byte for byte, for every protocol; and the order rules that clients rely on."""

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.protocols import native
from gateway.protocols.completions import COMPLETIONS
from gateway.protocols.frames import HttpProtocol, TurnLabels, sse
from gateway.protocols.openai_chat import OPENAI_CHAT
from gateway.types import TurnEvent, TurnText
from tests.testkit.native_schema import check_server_frame
from tests.testkit.turn_items import turn_items

FIXTURES = Path(__file__).parents[2] / "fixtures" / "protocols"
CREATED_S = 1700000000


def cases(name: str) -> list[Any]:
    lines = (FIXTURES / f"{name}.jsonl").read_text().rstrip("\n").split("\n")
    return [pytest.param(case, id=f"{name}: {case['name']}") for case in map(json.loads, lines)]


def http_cases() -> list[Any]:
    protocols = (OPENAI_CHAT, COMPLETIONS)
    return [pytest.param(p, *case.values, id=case.id) for p in protocols for case in cases(p.name)]


def labels(protocol: HttpProtocol) -> TurnLabels:
    return TurnLabels(f"{protocol.id_prefix}1", "m", CREATED_S)


def frames_of(protocol: HttpProtocol, case: dict[str, Any]) -> list[str]:
    encoder = protocol.encoder(labels(protocol), protocol.decode(case["request"]))
    return [sse(frame).decode() for item in turn_items(case["items"]) for frame in encoder.encode(item)]


@pytest.mark.parametrize(("protocol", "case"), http_cases())
def test_streamed_frames_are_byte_exact(protocol, case):
    assert frames_of(protocol, case) == case["sse"]


@pytest.mark.parametrize(("protocol", "case"), [c for c in http_cases() if "body" in c.values[1]])
def test_the_gathered_body_is_exact(protocol, case):
    collector = protocol.collector(labels(protocol), protocol.decode(case["request"]))
    for item in turn_items(case["items"]):
        collector.add(item)
    assert json.loads(collector.body()) == case["body"]


@pytest.mark.parametrize(("protocol", "case"), http_cases())
def test_a_frame_is_one_line_whatever_a_client_takes_for_a_line_break(protocol, case):
    for frame in frames_of(protocol, case):
        assert frame.startswith("data: ")
        assert frame.endswith("\n\n")
        assert len(frame.splitlines()) == 2


@pytest.mark.parametrize("case", cases("openai_chat"))
def test_chat_streams_keep_the_order_rules(case):
    data = [line.removeprefix("data: ").strip() for line in case["sse"]]
    chunks = [json.loads(line) for line in data if line != "[DONE]"]
    failed = "error" in chunks[-1]
    assert (data[-1] == "[DONE]") != failed

    seen_calls: set[tuple[int, int]] = set()
    finished: set[int] = set()
    for chunk in chunks[:-1] if failed else chunks:
        assert {"id", "object", "created", "model", "choices"} <= chunk.keys()
        for choice in chunk["choices"]:
            assert choice["index"] not in finished
            assert None not in choice["delta"].values()
            for call in choice["delta"].get("tool_calls", ()):
                key = (choice["index"], call["index"])
                assert ("id" in call) == ("type" in call) == ("name" in call["function"]) == (key not in seen_calls)
                seen_calls.add(key)
            if choice["finish_reason"] is not None:
                finished.add(choice["index"])
    assert failed or finished == set(range(case["request"].get("n", 1)))


@pytest.mark.parametrize("case", cases("native"))
def test_native_frames_are_byte_exact_and_fit_their_schema(case):
    encoder = native.NativeEncoder("t1", TurnLabels("turn_1", "m", CREATED_S))
    frames = [frame.data.decode() for item in turn_items(case["items"]) for frame in encoder.encode(item)]
    assert frames == case["frames"]
    for seq, frame in enumerate(map(json.loads, frames)):
        check_server_frame(frame)
        assert (frame["turn"], frame["seq"]) == ("t1", seq)
    kinds = [json.loads(frame)["type"] for frame in frames]
    assert kinds[-1] in ("turn.done", "turn.error")
    assert not {"turn.done", "turn.error"} & set(kinds[:-1])


def test_the_native_protocol_has_no_unparsed_text_and_nothing_unknown():
    encoder = native.NativeEncoder("t1", TurnLabels("turn_1", "m", CREATED_S))
    for item in (TurnText(0, "x"), object(), TurnEvent(0, object())):
        with pytest.raises(AssertionError):
            encoder.encode(item)
    assert encoder.seq == 0
