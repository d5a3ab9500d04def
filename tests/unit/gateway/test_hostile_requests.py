"""What one request can do to the server and to the others it serves, over a real server: headers, sizes, time."""

import gzip
import json
import threading

import httpx
import pytest
import pytest_asyncio
from websockets.asyncio.client import connect

from gateway import request_body, responses_turns
from gateway.protocols import native, responses_socket
from gateway.scripted import ScriptLine
from tests.testkit.gateway_kit import running_gateway, scripted

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway():
    async with running_gateway(scripted(ScriptLine("ok", repeat=True))) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def client(gateway):
    async with httpx.AsyncClient(base_url=gateway.url, timeout=20) as http:
        yield http


EVIL = "web_search\r\nset-cookie: pwned=1\r\n\r\n日\0" + "x" * 50_000
NESTED = {
    "type": "function_call_output",
    "call_id": "c",
    "output": [{"type": EVIL}, *({"type": f"k{i}"} for i in range(900))],
}


@pytest.mark.parametrize("fields", [{"tools": [{"type": EVIL}]}, {"tool_choice": {"type": EVIL}}, {"input": [NESTED]}])
async def test_words_of_the_client_in_a_warning_stay_within_one_short_header(client, fields):
    """Audit of 2026-11-30: a line break in them killed the answer, and 3,000 of them were more than clients take."""
    answer = await client.post("/v1/responses", json={"input": "Hi", **fields})
    assert answer.status_code == 200
    assert answer.json()["status"] == "completed"
    assert "set-cookie" not in answer.headers
    value = answer.headers["x-headrace-warning"]
    assert value.isprintable()
    assert value.isascii()
    assert "web_search" in value
    assert len(value) < 1200


@pytest.mark.parametrize(
    ("path", "param", "value"),
    [("", "stream", "yes"), ("/input_items", "order", "bogus"), ("/input_items", "limit", "0")],
)
async def test_a_query_that_means_nothing_is_refused_by_its_name(client, path, param, value):
    made = (await client.post("/v1/responses", json={"input": "Hi"})).json()
    answer = await client.get(f"/v1/responses/{made['id']}{path}", params={param: value})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, param)
    assert f"'{value}'" in error["message"]
    for good in {"stream": ("false", "False", "0"), "order": ("asc", "desc"), "limit": ("1",)}[param]:
        assert (await client.get(f"/v1/responses/{made['id']}{path}", params={param: good})).status_code == 200


PATHS = ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/tokenize"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "br", "gzip, identity", "x" * 500])
async def test_a_compressed_body_is_refused_as_what_it_is(client, path, encoding):
    answer = await client.post(path, content=gzip.compress(b"{}"), headers={"content-encoding": encoding})
    assert answer.status_code == 415
    message = answer.json()["error"]["message"]
    assert encoding[:60] in message
    assert "uncompressed" in message
    assert len(message) < 300
    assert answer.headers["accept-encoding"] == "identity"
    assert answer.headers["x-should-retry"] == "false"


async def test_a_body_that_is_said_to_be_as_it_is_is_read(client):
    body = {"messages": [{"role": "user", "content": "Hi"}]}
    answer = await client.post("/v1/chat/completions", json=body, headers={"content-encoding": "Identity"})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}] * 10_000}),
        ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "x"}] * 10_000}),
        ("/v1/completions", {"prompt": ["word " * 40_000]}),
        ("/v1/responses", {"input": [{"role": "user", "content": "x"}] * 10_000, "store": False}),
        ("/v1/responses/input_tokens", {"input": [{"role": "user", "content": "x"}] * 10_000}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_long_body_is_decoded_beside_the_event_loop(client, monkeypatch, path, body):
    in_loop, names = threading.current_thread(), set()

    def decoded_by(decode):
        def run(*args, **options):
            names.add((decode.__name__, threading.current_thread() is in_loop))
            return decode(*args, **options)

        return run

    for module, name in ((request_body, "parse_object"), (responses_turns, "build_turn")):
        monkeypatch.setattr(module, name, decoded_by(getattr(module, name)))
    assert (await client.post(path, json=body)).status_code == 200
    assert ("parse_object", False) in names
    assert not any(is_in_loop for _, is_in_loop in names)
    names.clear()
    short = (
        {**body, "prompt": "x"}
        if "prompt" in body
        else {name: value[:2] if isinstance(value, list) else value for name, value in body.items()}
    )
    assert (await client.post(path, json=short)).status_code == 200
    assert all(is_in_loop for _, is_in_loop in names)


MANY = [{"role": "user", "content": "x"}] * 10_000


@pytest.mark.parametrize(
    ("path", "frame", "module", "decode", "fault"),
    [
        ("/v1/stream", {"type": "turn.create", "turn": "a", "messages": MANY}, native, "decode_turn", "messages"),
        ("/v1/responses", {"type": "response.create", "input": MANY}, responses_socket, "decode_request", "input"),
    ],
    ids=["native", "responses"],
)
async def test_a_long_frame_is_decoded_beside_the_event_loop_and_its_faults_are_its_turn_s(
    gateway, monkeypatch, path, frame, module, decode, fault
):
    in_loop, places = threading.current_thread(), []
    original = getattr(module, decode)

    def decoded(*args):
        places.append(threading.current_thread() is in_loop)
        return original(*args)

    monkeypatch.setattr(module, decode, decoded)
    url = gateway.url.replace("http", "ws") + path
    async with connect(url, proxy=None, max_size=None) as client:

        async def answer_to(body, last):
            await client.send(json.dumps(body))
            async for text in client:
                event = json.loads(text)
                if event["type"] in last:
                    return event
            raise AssertionError("the connection was closed")

        assert await answer_to(frame, ("turn.done", "response.completed"))
        assert False in places
        bad = {**frame, fault: [*MANY, 5]}
        refused = await answer_to(bad, ("turn.error", "error"))
        assert refused["error"]["param"] == f"{fault}[10000]"
        assert refused.get("turn") == frame.get("turn")
        places.clear()
        assert await answer_to({**frame, fault: MANY[:1]}, ("turn.done", "response.completed"))
        assert places == [True]
