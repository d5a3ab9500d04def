"""Responses, fixture by fixture: turn items to events, byte for byte; bodies as clients send them, answered in order on
every transport; bodies that nobody should send, refused with the field at fault."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter
from websockets.asyncio.client import connect

from gateway.protocols.frames import TurnLabels, sse
from gateway.protocols.responses_encoder import ResponsesEncoder
from gateway.protocols.responses_request import build_turn, decode_request
from gateway.scripted import ScriptLine
from tests.testkit.gateway_kit import running_gateway, scripted, sse_events
from tests.testkit.responses_order import TERMINAL, check_order, check_response
from tests.testkit.turn_items import turn_items

SDK_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
FIXTURES = Path(__file__).parents[2] / "fixtures"
SCRIPT = '<think>Hm.</think>Two files.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'


def cases(name: str) -> list[Any]:
    lines = (FIXTURES / f"{name}.jsonl").read_text().rstrip("\n").split("\n")
    return [pytest.param(case, id=case["name"]) for case in map(json.loads, lines)]


def encoder_of(case: dict[str, Any]) -> ResponsesEncoder:
    request = decode_request(case["request"])
    turn = build_turn(request, (), request.input)
    return ResponsesEncoder(TurnLabels("resp_1", "m", 1700000000), turn, lambda: 1700000009.5)


@pytest.mark.parametrize("case", cases("protocols/responses_stream"))
def test_events_are_byte_exact_in_order_and_end_in_the_whole_response(case):
    encoder = encoder_of(case)
    frames = [frame for item in turn_items(case["items"]) for frame in encoder.encode(item)]
    assert [sse(frame).decode() for frame in frames] == case["sse"]
    assert json.loads(encoder.body()) == case["body"] == check_order([json.loads(frame.data) for frame in frames])


@pytest.mark.parametrize("case", cases("protocols/responses_stream"))
def test_a_keepalive_anywhere_takes_a_number_and_changes_nothing_else(case):
    encoder = encoder_of(case)
    events = []
    for item in turn_items(case["items"]):
        events += [json.loads(frame.data) for frame in encoder.encode(item)]
        if encoder.status == "in_progress":
            events.append(json.loads(encoder.keepalive().data))
    assert check_order(events) == case["body"]
    assert [event["type"] for event in events].count("keepalive") == len(case["items"]) - 1


@pytest.mark.parametrize("case", cases("protocols/responses_stream"))
def test_events_and_responses_are_of_the_sdks_types(case):
    """The SDK itself builds its objects without checking; here every field is held against its type."""
    for text in case["sse"]:
        SDK_EVENT.validate_python(json.loads(text.partition("data: ")[2]))
    Response.model_validate(case["body"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway():
    async with running_gateway(scripted(ScriptLine(SCRIPT, repeat=True))) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def http(gateway):
    async with httpx.AsyncClient(base_url=gateway.url, timeout=10, trust_env=False) as client:
        yield client


def said(response: dict[str, Any]) -> list[Any]:
    """What the model said, without the ids."""
    fields = ("type", "content", "summary", "name", "arguments", "input")
    return [[item.get(field) for field in fields] for item in response["output"]]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("case", cases("requests/responses_good"))
async def test_what_clients_send_is_answered_the_same_on_every_transport(gateway, http, case):
    whole = await http.post("/v1/responses", json=case["body"])
    assert whole.status_code == 200, whole.text
    check_response(whole.json())

    streamed = await http.post("/v1/responses", json={**case["body"], "stream": True})
    by_events = check_order(list(sse_events(streamed.text)))

    async with connect(f"ws://127.0.0.1:{gateway.port}/v1/responses", proxy=None) as socket:
        await socket.send(json.dumps({"type": "response.create", "stream_id": "a.b-C_1", **case["body"]}))
        events = []
        while not events or events[-1]["type"] not in (*TERMINAL, "error"):
            events.append(json.loads(await asyncio.wait_for(socket.recv(), 5)))
    assert {event["stream_id"] for event in events} == {"a.b-C_1"}
    by_socket = check_order(events)
    assert said(whole.json()) == said(by_events) == said(by_socket)
    assert whole.json()["metadata"] == by_events["metadata"] == by_socket["metadata"]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("case", cases("requests/responses_bad"))
async def test_what_nobody_should_send_is_refused_with_the_field_at_fault(gateway, http, case):
    response = await http.post("/v1/responses", json=case["body"])
    assert response.status_code == case["status"], response.text
    error = response.json()["error"]
    assert (error["code"], error["param"], error["type"]) == (case["code"], case["param"], "invalid_request_error")

    if "background" in case["body"]:
        return  # A socket has no background, and ignores the field.
    async with connect(f"ws://127.0.0.1:{gateway.port}/v1/responses", proxy=None) as socket:
        await socket.send(json.dumps({"type": "response.create", "stream_id": "s", **case["body"]}))
        frame = json.loads(await asyncio.wait_for(socket.recv(), 5))
    error["headers"] = {"x-should-retry": response.headers["x-should-retry"]}
    assert frame == {"type": "error", "status": case["status"], "stream_id": "s", "error": error}


@pytest.mark.parametrize("case", cases("protocols/responses_stream"))
def test_the_checker_misses_no_event_that_is_left_out_or_comes_twice(case):
    events = [json.loads(text.partition("data: ")[2]) for text in case["sse"]]
    # `queued` may be there or not; of a failed stream, the item that was open has no end.
    num_checked = 2 if events[-1]["type"] == "response.failed" else len(events)
    for i, event in enumerate(events[:num_checked]):
        without, twice = events[:i] + events[i + 1 :], events[: i + 1] + events[i:]
        for broken in (twice,) if event["type"] == "response.queued" else (without, twice):
            with pytest.raises((AssertionError, KeyError, IndexError, ValueError)):
                check_order([{**event, "sequence_number": number} for number, event in enumerate(broken)])
    with pytest.raises(AssertionError):
        check_order([{**event, "sequence_number": i + 1} for i, event in enumerate(events)])
