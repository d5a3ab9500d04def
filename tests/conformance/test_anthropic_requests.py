"""Messages requests as agents send them, and requests that nobody should send, over HTTP."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from gateway.scripted import ScriptLine
from tests.testkit.anthropic_order import check_error, check_message, check_messages_stream
from tests.testkit.gateway_kit import running_gateway, scripted

pytestmark = pytest.mark.asyncio(loop_scope="module")

FIXTURES = Path(__file__).parents[2] / "fixtures" / "requests"
ANSWER = (
    "<think>\nHm.\n</think>\nLet me look.\n"
    '<tool_call>\n{"name": "list_files", "arguments": {"path": "."}}\n</tool_call>\n'
    '<tool_call>\n{"name": "list_files", "arguments": {"path": ".."}}\n</tool_call>'
)


def cases(name: str) -> list[Any]:
    lines = (FIXTURES / f"{name}.jsonl").read_text().splitlines()
    return [pytest.param(case, id=case["name"]) for case in map(json.loads, lines)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway():
    async with running_gateway(scripted(ScriptLine(ANSWER, repeat=True))) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def http(gateway):
    async with httpx.AsyncClient(base_url=gateway.url, timeout=10) as client:
        yield client


def without_ids(message: dict[str, Any]) -> dict[str, Any]:
    content = [{name: value for name, value in block.items() if name != "id"} for block in message["content"]]
    return {**message, "id": "", "content": content}


@pytest.mark.parametrize("case", cases("messages_good"))
async def test_what_agents_send_is_answered_alike_whole_and_streamed(http, case):
    whole = await http.post("/v1/messages", json={**case["body"], "stream": False})
    assert whole.status_code == 200, whole.text
    check_message(whole.json())
    streamed = await http.post("/v1/messages?beta=true", json={**case["body"], "stream": True})
    assert streamed.status_code == 200, streamed.text
    assert without_ids(check_messages_stream(streamed.text)) == without_ids(whole.json())


@pytest.mark.parametrize("case", cases("messages_good"))
async def test_what_can_be_asked_can_be_counted(http, case):
    response = await http.post("/v1/messages/count_tokens", json=case["body"])
    assert response.status_code == 200
    assert response.json().keys() == {"input_tokens"}
    assert response.json()["input_tokens"] > 0


@pytest.mark.parametrize("case", cases("messages_bad"))
async def test_what_nobody_should_send_is_refused_and_the_field_is_named(http, case):
    response = await http.post("/v1/messages", content=case["raw"].encode())
    assert response.status_code == case["status"], response.text
    body = response.json()
    check_error(body)
    assert body["error"]["type"] == ("not_found_error" if case["status"] == 404 else "invalid_request_error")
    assert body["request_id"] == response.headers["request-id"] == response.headers["x-request-id"]
    assert (case["param"] or "body") in body["error"]["message"]
