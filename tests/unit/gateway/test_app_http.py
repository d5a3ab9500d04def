"""The HTTP endpoints over a real server, one for all tests of this file."""

import asyncio
import json

import httpx
import pytest
import pytest_asyncio

from gateway.scripted import Match, ScriptLine
from tests.testkit.gateway_kit import MODEL, chat_body, content_of, running_gateway, scripted, sse_events, weather_tool

pytestmark = pytest.mark.asyncio(loop_scope="module")

CALL_OF = '{"name": "weather", "arguments": {"city": "%s"}}'
CALL = 'Let me look.<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
CALLS = "".join(f"<tool_call>{CALL_OF % city}</tool_call>" for city in ("Oslo", "Rome"))
LINES = (
    ScriptLine("<think>why</think>Because.", match=Match(contains="think"), repeat=True),
    ScriptLine(CALLS, match=Match(last_role="user", contains="both"), chunk=1000, repeat=True),
    ScriptLine(CALL, match=Match(last_role="user", contains="weather"), repeat=True),
    ScriptLine("Hello there.", repeat=True),
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway():
    async with running_gateway(scripted(*LINES), max_body_bytes=100_000) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def client(gateway):
    async with httpx.AsyncClient(base_url=gateway.url, timeout=10) as http:
        yield http


def assert_openai_error(response: httpx.Response, status: int, code: str, param: str | None = None) -> None:
    assert response.status_code == status
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]
    error = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert (error["code"], error["param"]) == (code, param)
    assert error["message"]
    assert "Traceback" not in response.text


async def test_a_chat_answer_in_one_body(client):
    response = await client.post("/v1/chat/completions", json=chat_body())
    body = response.json()
    assert response.status_code == 200
    assert body["object"] == "chat.completion"
    assert body["model"] == MODEL
    assert body["choices"][0]["message"]["content"] == "Hello there."
    assert body["usage"]["completion_tokens"] == 3


async def test_a_chat_answer_as_a_stream(client):
    response = await client.post("/v1/chat/completions", json=chat_body(stream=True))
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-accel-buffering"] == "no"
    chunks = list(sse_events(response.text))
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert content_of(chunks) == "Hello there."
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1] == "[DONE]"


async def test_usage_comes_last_when_it_is_asked_for(client):
    body = chat_body("think", stream=True, stream_options={"include_usage": True})
    chunks = list(sse_events((await client.post("/v1/chat/completions", json=body)).text))
    assert all(chunk["usage"] is None for chunk in chunks[:-2])
    assert chunks[-2]["choices"] == []
    assert chunks[-2]["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0


async def test_a_tool_call_streamed_and_whole_are_the_same(client):
    body = chat_body("weather", tools=[weather_tool()])
    whole = (await client.post("/v1/chat/completions", json=body)).json()["choices"][0]
    assert whole["finish_reason"] == "tool_calls"
    call = whole["message"]["tool_calls"][0]
    assert (call["type"], call["function"]) == ("function", {"name": "weather", "arguments": '{"city": "Oslo"}'})

    chunks = list(sse_events((await client.post("/v1/chat/completions", json={**body, "stream": True})).text))
    deltas = [d for chunk in chunks[:-1] for d in chunk["choices"][0]["delta"].get("tool_calls", ())]
    assert deltas[0]["function"]["name"] == "weather"
    assert "".join(delta["function"]["arguments"] for delta in deltas) == '{"city": "Oslo"}'
    assert content_of(chunks) == whole["message"]["content"] == "Let me look."


async def test_choices_are_numbered_and_do_not_mix(client):
    body = (await client.post("/v1/chat/completions", json=chat_body(n=3, max_tokens=2))).json()
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
    assert {choice["message"]["content"] for choice in body["choices"]} == {"Hello there"}
    assert body["usage"]["completion_tokens"] == 6


async def test_completions_of_several_prompts_are_numbered_by_prompt_and_choice(client):
    body = {"model": MODEL, "prompt": ["a", "b"], "n": 2, "max_tokens": 2, "echo": True}
    answer = (await client.post("/v1/completions", json=body)).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    texts = [choice["text"] for choice in answer["choices"]]
    assert texts == ["aHello there", "aHello there", "bHello there", "bHello there"]
    assert {choice["finish_reason"] for choice in answer["choices"]} == {"length"}


async def test_completions_stream_one_chunk_a_token_and_the_reason_in_the_last(client):
    body = {"model": MODEL, "prompt": [1, 2, 3], "stream": True, "max_tokens": 2}
    chunks = list(sse_events((await client.post("/v1/completions", json=body)).text))
    assert [chunk["choices"][0]["text"] for chunk in chunks[:-1]] == ["Hello", " there"]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]] == [None, "length"]


async def test_completions_with_no_tokens_give_the_prompt_back(client):
    body = {"model": MODEL, "prompt": "abc", "echo": True, "max_tokens": 0}
    choice = (await client.post("/v1/completions", json=body)).json()["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("abc", "length")


async def test_a_model_may_be_left_out(client):
    response = await client.post("/v1/chat/completions", json={"messages": chat_body()["messages"]})
    assert response.json()["model"] == MODEL


async def test_models_are_listed_and_found_by_name(client):
    listed = (await client.get("/v1/models")).json()
    assert (listed["object"], [model["id"] for model in listed["data"]]) == ("list", [MODEL])
    assert (await client.get(f"/v1/models/{MODEL}")).json() == listed["data"][0]
    assert_openai_error(await client.get("/v1/models/org/other"), 404, "model_not_found", "model")


async def test_health_ready_and_version_answer(client):
    assert (await client.get("/health")).json() == {"status": "ok"}
    assert (await client.get("/ready")).json()["status"] == "ready"
    assert (await client.get("/version")).json() == {"version": "0.1.0"}
    head = await client.head("/health")
    assert (head.status_code, head.content) == (200, b"")


async def test_tokenize_and_detokenize_undo_each_other(client):
    tokens = (await client.post("/tokenize", json={"prompt": "to be or not"})).json()
    assert tokens["count"] == len(tokens["tokens"]) == 4
    text = (await client.post("/detokenize", json={"tokens": tokens["tokens"]})).json()
    assert text == {"prompt": "to be or not"}
    chat = (await client.post("/tokenize", json={"messages": chat_body("to be")["messages"]})).json()
    assert chat["tokens"] == tokens["tokens"][:2]


async def test_metrics_count_what_happened(client):
    await client.post("/v1/chat/completions", json=chat_body("weather", tools=[weather_tool()]))
    text = (await client.get("/metrics")).text
    for line in (
        'headrace_request_success_total{finished_reason="tool_calls"}',
        'headrace_tool_calls_total{outcome="ok"}',
        "headrace_live_turns 0.0",
        "headrace_time_to_first_token_seconds_bucket",
        "headrace_inter_token_latency_seconds_count",
        "headrace_num_requests_running 0.0",
        "headrace_kv_blocks_in_use 0.0",
        'headrace_http_requests_total{path="/v1/chat/completions",status="200"}',
    ):
        assert line in text


async def test_a_request_id_of_the_client_is_kept_and_a_bad_one_replaced(client):
    for name in ("x-request-id", "x-client-request-id"):
        response = await client.get("/health", headers={name: "mine-1"})
        assert response.headers["x-request-id"] == "mine-1"
    for bad in ("a b", "x" * 200, "é".encode("latin-1")):
        response = await client.get("/health", headers={"x-request-id": bad})
        assert response.headers["x-request-id"].startswith("req_")


async def test_what_will_not_be_done_is_said_in_a_header(client):
    body = chat_body("weather", tools=[weather_tool()], tool_choice="required")
    assert "tool_choice" in (await client.post("/v1/chat/completions", json=body)).headers["x-headrace-warning"]
    body["stream"] = True
    assert "tool_choice" in (await client.post("/v1/chat/completions", json=body)).headers["x-headrace-warning"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"])
@pytest.mark.parametrize("raw", [b"", b"{", b"\xff\xfe", b'{"messages": NaN}', b"[" * 50_000], ids=repr)
async def test_a_body_that_is_not_json_is_refused(client, path, raw):
    assert_openai_error(await client.post(path, content=raw[:60_000]), 400, "invalid_json")


async def test_the_content_type_does_not_matter(client):
    raw = json.dumps(chat_body()).encode()
    for content_type in ("text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-8"):
        response = await client.post("/v1/chat/completions", content=raw, headers={"content-type": content_type})
        assert response.status_code == 200


async def test_errors_name_the_field_also_when_a_stream_was_asked_for(client):
    for stream in (False, True):
        response = await client.post("/v1/chat/completions", json=chat_body(max_tokens=-1, stream=stream))
        assert_openai_error(response, 400, "invalid_value", "max_tokens")
    assert_openai_error(await client.post("/v1/completions", json={}), 400, "missing_required_parameter", "prompt")
    assert_openai_error(await client.post("/detokenize", json={}), 400, "missing_required_parameter", "tokens")
    assert_openai_error(await client.post("/tokenize", json={}), 400, "missing_required_parameter", "prompt")


async def test_an_unknown_model_is_refused_everywhere(client):
    for path, body in (
        ("/v1/chat/completions", chat_body()),
        ("/v1/completions", {"prompt": "a"}),
        ("/tokenize", {"prompt": "a"}),
        ("/detokenize", {"tokens": []}),
    ):
        assert_openai_error(await client.post(path, json={**body, "model": "other"}), 404, "model_not_found", "model")


async def test_a_body_above_the_limit_is_refused_by_its_announced_and_by_its_real_length(client):
    raw = json.dumps(chat_body("x" * 200_000)).encode()
    assert_openai_error(await client.post("/v1/chat/completions", content=raw), 413, "request_too_large", "body")

    async def pieces():
        for start in range(0, len(raw), 10_000):
            yield raw[start : start + 10_000]

    response = await client.post("/v1/chat/completions", content=pieces())
    assert_openai_error(response, 413, "request_too_large", "body")
    assert "100000 bytes" in response.json()["error"]["message"]


async def test_paths_and_methods_that_are_not_there(client):
    assert_openai_error(await client.get("/nope"), 404, "not_found")
    assert_openai_error(await client.post("/v1/chat"), 404, "not_found")
    response = await client.get("/v1/chat/completions")
    assert_openai_error(response, 405, "method_not_allowed")
    assert response.headers["allow"] == "POST"
    assert_openai_error(await client.delete("/v1/models"), 405, "method_not_allowed")


async def test_a_client_that_leaves_in_the_middle_of_its_request_leaves_nothing_behind(gateway):
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{")
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    await gateway.settled()
    assert reader is not None


async def test_many_requests_on_one_connection(gateway):
    async with httpx.AsyncClient(base_url=gateway.url, limits=httpx.Limits(max_connections=1)) as http:
        for i in range(20):
            body = chat_body(stream=bool(i % 2))
            assert (await http.post("/v1/chat/completions", json=body)).status_code == 200


@pytest.mark.parametrize("n", [1, 2])
async def test_an_answer_ends_after_its_first_call_where_that_is_asked_for(client, n):
    body = chat_body("both", tools=[weather_tool()], parallel_tool_calls=False, n=n)
    whole = (await client.post("/v1/chat/completions", json=body)).json()
    for choice in whole["choices"]:
        [call] = choice["message"]["tool_calls"]
        assert (call["function"]["arguments"], choice["finish_reason"]) == ('{"city": "Oslo"}', "tool_calls")

    streamed = await client.post("/v1/chat/completions", json={**body, "stream": True})
    assert "Oslo" in streamed.text
    assert "Rome" not in streamed.text
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in sse_events(streamed.text) if chunk != "[DONE]"]
    assert [reason for reason in reasons if reason] == ["tool_calls"] * n
    assert "x-headrace-warning" not in streamed.headers

    both = await client.post("/v1/chat/completions", json={**body, "parallel_tool_calls": True})
    assert all(len(choice["message"]["tool_calls"]) == 2 for choice in both.json()["choices"])
