"""Anthropic's Messages over a real server: headers, keys, errors, keepalives, limits, counting, models."""

import asyncio
import json

import httpx
import pytest

from gateway.scripted import Match, ScriptLine
from inference.errors import ContextLengthExceeded, EngineUnavailable, QueueFull
from inference.types import TokenChunk
from tests.testkit.anthropic_order import check_error, check_message, check_messages_stream, messages_events
from tests.testkit.gateway_kit import (
    MODEL,
    FakeEngine,
    model_backend,
    running_gateway,
    scripted,
    token_chunks,
)

CALL = '<tool_call>\n{{"name": "weather", "arguments": {{"city": "{}"}}}}\n</tool_call>'
TWO_CALLS = f"Both.\n{CALL.format('Oslo')}\n{CALL.format('Rome')}"
TOOL = {"name": "weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
LINES = (
    ScriptLine(TWO_CALLS, match=Match(contains="calls"), repeat=True),
    ScriptLine("One. Two. END Three.", match=Match(contains="stop"), chunk="char", repeat=True),
    ScriptLine("Hello there.", repeat=True),
)


def body(text="Hi", **fields):
    return {"model": MODEL, "max_tokens": 1000, "messages": [{"role": "user", "content": text}], **fields}


def client(gateway, **headers):
    return httpx.AsyncClient(base_url=gateway.url, timeout=10, headers=headers)


async def post(http, **fields):
    """Both ways to answer; they must be the same message."""
    whole = await http.post("/v1/messages", json=body(**fields))
    streamed = await http.post("/v1/messages", json=body(**fields, stream=True))
    assert (whole.status_code, streamed.status_code) == (200, 200), whole.text + streamed.text
    message, summed = whole.json(), check_messages_stream(streamed.text)
    check_message(message)
    assert [block["type"] for block in message["content"]] == [block["type"] for block in summed["content"]]
    for name in ("stop_reason", "stop_sequence", "usage", "model"):
        assert message[name] == summed[name]
    return message


@pytest.mark.parametrize("version", ["2023-06-01", "2026-10-21"])
async def test_a_stream_has_its_headers_and_its_events_in_order(version):
    async with running_gateway(scripted(*LINES)) as gateway, client(gateway, **{"anthropic-version": version}) as http:
        response = await http.post("/v1/messages?beta=true", json=body(stream=True), headers={"x-request-id": "mine"})
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert response.headers["request-id"] == response.headers["x-request-id"] == "mine"
        message = check_messages_stream(response.text)
    assert message["content"] == [{"type": "text", "text": "Hello there."}]
    assert message["usage"]["output_tokens"] == 3


async def test_a_stop_sequence_is_named_and_not_part_of_the_text():
    async with running_gateway(scripted(*LINES)) as gateway, client(gateway) as http:
        message = await post(http, text="stop", stop_sequences=["XX", "END"])
    assert (message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", "END")
    assert message["content"][0]["text"] == "One. Two. "


async def test_the_limit_of_tokens_is_the_stop_reason():
    async with running_gateway(scripted(*LINES)) as gateway, client(gateway) as http:
        message = await post(http, max_tokens=2)
    assert (message["stop_reason"], message["usage"]["output_tokens"]) == ("max_tokens", 2)


async def test_calls_are_ended_after_the_first_one_where_that_is_asked_for():
    async with running_gateway(scripted(*LINES)) as gateway, client(gateway) as http:
        both = await post(http, text="calls", tools=[TOOL])
        choice = {"type": "auto", "disable_parallel_tool_use": True}
        one = await post(http, text="calls", tools=[TOOL], tool_choice=choice)
    assert [block.get("input") for block in both["content"]] == [None, {"city": "Oslo"}, {"city": "Rome"}]
    assert [block.get("input") for block in one["content"]] == [None, {"city": "Oslo"}]
    assert both["stop_reason"] == one["stop_reason"] == "tool_use"


async def test_what_cannot_be_had_is_said_in_a_header():
    async with running_gateway(scripted(*LINES)) as gateway, client(gateway) as http:
        fields = {"tools": [TOOL, {"type": "web_search_20250305", "name": "w"}], "tool_choice": {"type": "any"}}
        response = await http.post("/v1/messages", json=body(**fields))
    warning = response.headers["x-headrace-warning"]
    assert "tool_choice" in warning
    assert "web_search_20250305" in warning


async def test_cached_tokens_are_counted_beside_the_others():
    def reply(request):
        first, *rest = token_chunks(request, "ok")
        return [TokenChunk(request.turn_id, 0, first.token_ids, num_cached_tokens=16), *rest]

    async with running_gateway(model_backend(FakeEngine(reply))) as gateway, client(gateway) as http:
        message = await post(http, text="x" * 30)
        streamed = await http.post("/v1/messages", json=body("x" * 30, stream=True))
    usage = message["usage"]
    assert usage["cache_read_input_tokens"] == 16
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == 80
    start = next(messages_events(streamed.text))
    assert start["message"]["usage"]["input_tokens"] == 80


async def test_no_answer_still_fills_the_prefix_cache():
    engine = FakeEngine(lambda request: token_chunks(request, "x"))
    async with running_gateway(model_backend(engine)) as gateway, client(gateway) as http:
        message = await post(http, max_tokens=0)
        await gateway.settled()
    assert (message["content"], message["stop_reason"]) == ([], "max_tokens")
    assert message["usage"]["output_tokens"] == 0
    assert [request.params.max_tokens for request in engine.requests] == [1, 1]
    assert not engine.live


async def test_an_answer_that_has_begun_is_part_of_the_prompt():
    engine = FakeEngine(lambda request: token_chunks(request, " so."))
    messages = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Because"}]
    async with running_gateway(model_backend(engine)) as gateway, client(gateway) as http:
        message = await post(http, messages=messages)
    assert message["content"] == [{"type": "text", "text": " so."}]
    prompt = bytes(engine.requests[0].prompt_token_ids).decode("latin-1")
    assert prompt.endswith("assistant\nBecause")


async def test_a_silent_stream_is_pinged_by_the_clock_until_it_ends():
    engine = FakeEngine()
    text = ""
    async with (
        running_gateway(model_backend(engine), keepalive_s=0.05) as gateway,
        client(gateway) as http,
        http.stream("POST", "/v1/messages", json=body(stream=True)) as response,
    ):
        async for piece in response.aiter_text():
            text += piece
            if text.count("event: ping") == 3 and engine.live:
                [tokens] = engine.live.values()
                for chunk in token_chunks(tokens.request, "Hi"):
                    tokens.push(chunk)
    events = [event["type"] for event in messages_events(text)]
    assert events[:4] == ["message_start", "ping", "ping", "ping"]
    assert check_messages_stream(text)["content"] == [{"type": "text", "text": "Hi"}]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("refusal", "status", "kind"),
    [
        (QueueFull(8, 8, 2.5), 429, "rate_limit_error"),
        (EngineUnavailable("The engine starts."), 503, "overloaded_error"),
        (RuntimeError("secret"), 500, "api_error"),
    ],
)
async def test_refusals_are_real_http_errors_also_of_streams(refusal, status, kind, stream):
    engine = FakeEngine()
    engine.refusal = refusal
    async with running_gateway(model_backend(engine)) as gateway, client(gateway) as http:
        response = await http.post("/v1/messages", json=body(stream=stream))
    assert response.status_code == status
    check_error(response.json())
    assert response.json()["error"]["type"] == kind
    assert response.json()["request_id"] == response.headers["request-id"]
    assert "secret" not in response.text
    assert ("retry-after" in response.headers) == (status != 500)


async def test_a_prompt_that_is_too_long_is_refused_in_the_words_that_agents_look_for():
    engine = FakeEngine()
    engine.refusal = ContextLengthExceeded(2000, 1000)
    async with running_gateway(model_backend(engine)) as gateway, client(gateway) as http:
        response = await http.post("/v1/messages", json=body(stream=True))
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert "prompt is too long: 2000 tokens > 1000 maximum" in response.json()["error"]["message"]


async def test_an_engine_that_dies_in_mid_stream_ends_it_with_an_error_event():
    engine = FakeEngine()
    async with running_gateway(model_backend(engine)) as gateway, client(gateway) as http:
        async with http.stream("POST", "/v1/messages", json=body(stream=True)) as response:
            request_id = response.headers["request-id"]
            text = ""
            async for piece in response.aiter_text():
                text += piece
                if "message_start" in text and engine.live:
                    [tokens] = engine.live.values()
                    tokens.push(TokenChunk(tokens.request.turn_id, 0, tuple(b"Hel")))
                    engine.die()
        await gateway.settled()
    error = check_messages_stream(text)
    assert error["error"]["type"] == "overloaded_error"
    assert error["request_id"] == request_id


async def test_a_shutdown_ends_streams_with_an_error_event():
    async with (
        running_gateway(model_backend(FakeEngine())) as gateway,
        client(gateway) as http,
        http.stream("POST", "/v1/messages", json=body(stream=True)) as response,
    ):
        gateway.server.should_exit = True
        text = (await response.aread()).decode()
    assert "shutting down" in check_messages_stream(text)["error"]["message"]


async def test_a_client_that_leaves_ends_its_turn():
    engine = FakeEngine()
    async with running_gateway(model_backend(engine)) as gateway, client(gateway) as http:
        async with http.stream("POST", "/v1/messages", json=body(stream=True)) as response:
            await anext(response.aiter_text())
            [tokens] = engine.live.values()
        await gateway.settled()
    assert tokens.is_cancelled
    assert not engine.live


@pytest.mark.parametrize("headers", [{"x-api-key": "k"}, {"authorization": "Bearer k"}])
async def test_a_key_comes_in_either_header(headers):
    async with running_gateway(scripted(*LINES), api_keys=("k",)) as gateway, client(gateway, **headers) as http:
        assert (await http.post("/v1/messages", json=body())).status_code == 200


async def test_without_a_key_the_error_is_anthropics_on_their_paths_and_to_their_clients():
    async with running_gateway(scripted(*LINES), api_keys=("k",)) as gateway, client(gateway) as http:
        for response in (
            await http.post("/v1/messages", json=body()),
            await http.post("/v1/messages/count_tokens", json=body()),
            await http.get("/v1/models", headers={"anthropic-version": "2023-06-01"}),
        ):
            assert response.status_code == 401
            check_error(response.json())
            assert response.json()["error"]["type"] == "authentication_error"
            assert response.headers["request-id"]
        openai = await http.get("/v1/models")
    assert openai.json()["error"]["code"] == "invalid_api_key"
    assert "request-id" not in openai.headers


async def test_paths_and_methods_that_are_not_there():
    async with running_gateway(scripted(*LINES)) as gateway, client(gateway) as http:
        unknown = await http.post("/v1/messages/batches", json={}, headers={"anthropic-version": "2026-10-21"})
        wrong = await http.get("/v1/messages")
    assert (unknown.status_code, unknown.json()["error"]["type"]) == (404, "not_found_error")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    check_error(wrong.json())


async def test_counting_counts_the_prompt_and_refuses_what_a_turn_would():
    async with running_gateway(model_backend(FakeEngine())) as gateway, client(gateway) as http:
        request = {"model": MODEL, "messages": [{"role": "user", "content": "x" * 30}]}
        counted = await http.post("/v1/messages/count_tokens?beta=true", json=request)
        other = await http.post("/v1/messages/count_tokens", json={**request, "model": "other"})
        empty = await http.post("/v1/messages/count_tokens", json={"messages": []})
    assert counted.json() == {"input_tokens": 80}
    assert (other.status_code, other.json()["error"]["type"]) == (404, "not_found_error")
    assert (empty.status_code, empty.json()["error"]["type"]) == (400, "invalid_request_error")


async def test_models_are_spelled_as_the_client_knows_them():
    async with running_gateway(scripted(*LINES), served_names=("a", "org/b")) as gateway, client(gateway) as http:
        headers = {"anthropic-version": "2023-06-01"}
        listed = (await http.get("/v1/models", headers=headers)).json()
        one = (await http.get("/v1/models/org/b", headers=headers)).json()
        missing = await http.get("/v1/models/c", headers=headers)
        openai = (await http.get("/v1/models")).json()
    assert [model["id"] for model in listed["data"]] == ["a", "org/b"]
    assert (listed["first_id"], listed["last_id"], listed["has_more"]) == ("a", "org/b", False)
    assert one == listed["data"][1]
    assert missing.json()["error"]["type"] == "not_found_error"
    assert openai["object"] == "list"


async def test_claude_codes_greeting_is_answered_without_a_key():
    async with running_gateway(scripted(*LINES), api_keys=("k",)) as gateway, client(gateway) as http:
        response = await http.head("/api/hello")
    assert (response.status_code, response.content) == (200, b"")


async def test_many_streams_at_once_are_not_mixed_up():
    lines = [ScriptLine(f"I am {i}.", match=Match(contains=f"[{i}]"), chunk="char", repeat=True) for i in range(32)]
    async with running_gateway(scripted(*lines)) as gateway, client(gateway) as http:

        async def one(number):
            response = await http.post("/v1/messages", json=body(f"[{number}]", stream=True))
            message = check_messages_stream(response.text)
            assert message["content"][0]["text"] == f"I am {number}."
            return message["id"]

        ids = await asyncio.gather(*(one(number) for number in range(32)))
        await gateway.settled()
    assert len(set(ids)) == 32


async def test_a_body_that_is_too_large_is_refused_in_their_words():
    async with running_gateway(scripted(*LINES), max_body_bytes=1000) as gateway, client(gateway) as http:
        response = await http.post("/v1/messages", content=json.dumps(body("x" * 2000)))
    assert (response.status_code, response.json()["error"]["type"]) == (413, "request_too_large")
