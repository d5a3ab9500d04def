"""Bodies as agents send them, and bodies that nobody should send: over HTTP, streamed or not, and over the socket."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from websockets.asyncio.client import connect

from gateway.scripted import ScriptLine
from tests.testkit.gateway_kit import running_gateway, scripted, sse_events
from tests.testkit.native_schema import check_server_frame

pytestmark = pytest.mark.asyncio(loop_scope="module")

FIXTURES = Path(__file__).parents[2] / "fixtures" / "requests"


def cases(name: str) -> list[Any]:
    lines = (FIXTURES / f"{name}.jsonl").read_text().rstrip("\n").split("\n")
    return [pytest.param(case, id=case["name"]) for case in map(json.loads, lines)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway():
    async with running_gateway(scripted(ScriptLine("Two files.", repeat=True))) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def http(gateway):
    async with httpx.AsyncClient(base_url=gateway.url, timeout=10) as client:
        yield client


@pytest.mark.parametrize("case", cases("chat_good"))
async def test_what_agents_send_is_answered_whole_and_streamed(http, case):
    whole = await http.post("/v1/chat/completions", json={**case["body"], "stream": False})
    assert whole.status_code == 200, whole.text
    for choice in whole.json()["choices"]:
        assert "Two files.".startswith(choice["message"]["content"])
    streamed = await http.post("/v1/chat/completions", json={**case["body"], "stream": True})
    events = list(sse_events(streamed.text))
    assert events[-1] == "[DONE]"
    assert {c["finish_reason"] for e in events[:-1] for c in e["choices"] if c["finish_reason"]} <= {"stop", "length"}


@pytest.mark.parametrize("case", cases("chat_bad"))
async def test_what_nobody_should_send_is_refused_with_the_field_at_fault(http, case):
    response = await http.post("/v1/chat/completions", content=case["raw"].encode())
    assert response.status_code == case["status"], response.text
    error = response.json()["error"]
    assert (error["code"], error["param"]) == (case["code"], case["param"])
    assert error["type"] == "invalid_request_error"
    if case["param"]:
        assert case["param"] in error["message"] or case["code"] == "model_not_found"


async def test_the_socket_refuses_the_same_bodies_and_stays_open(gateway):
    bad = [
        case.values[0] for case in cases("chat_bad") if case.values[0]["code"] not in ("invalid_json", "invalid_type")
    ]
    async with connect(gateway.ws_url) as socket:
        await socket.recv()
        for number, case in enumerate(bad):
            await socket.send(json.dumps({**json.loads(case["raw"]), "type": "turn.create", "turn": str(number)}))
            frame = json.loads(await socket.recv())
            check_server_frame(frame)
            assert (frame["type"], frame["turn"], frame["error"]["status"]) == (
                "turn.error",
                str(number),
                case["status"],
            )
            assert (frame["error"]["code"], frame["error"]["param"]) == (case["code"], case["param"])


async def test_bytes_that_are_no_utf8_are_refused(http):
    raw = b'{"messages": [{"role": "user", "content": "\xc3\x28"}]}'
    response = await http.post("/v1/chat/completions", content=raw)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_json")


async def test_ten_megabytes_are_refused_and_the_next_request_is_served(http):
    raw = json.dumps({"messages": [{"role": "user", "content": "x" * 10_000_000}]}).encode()
    response = await http.post("/v1/chat/completions", content=raw)
    assert (response.status_code, response.json()["error"]["code"]) == (413, "request_too_large")
    good = await http.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "Hi"}]})
    assert good.status_code == 200
