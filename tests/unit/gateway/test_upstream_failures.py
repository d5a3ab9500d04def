"""Upstreams that misbehave: every turn ends with its answer or with an error that says whose fault it was."""

import asyncio
import json

import httpx
import pytest
from websockets.asyncio.client import connect

from gateway.errors import UpstreamMisconfigured
from gateway.upstream_backend import UpstreamBackend
from gateway.upstream_settings import UpstreamSettings
from tests.testkit.fake_upstream import (
    DONE,
    FakeUpstream,
    Reply,
    answer,
    client_of,
    delta,
    frame,
    gateway_before,
    refusal,
    say,
)
from tests.testkit.gateway_kit import content_of, sse_events, weather_tool

BODY = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
GONE = Reply(status=None)


async def ask(upstream, *replies, path="/v1/chat/completions", **fields):
    """The responses to one request after another, each with the reply of its place."""
    upstream.replies.clear()
    upstream.replies.extend(replies)
    async with gateway_before(upstream) as gateway, client_of(gateway) as http:
        return [await http.post(path, json={**BODY, **fields}) for _ in replies]


def error_of(response):
    return response.status_code, response.json()["error"]["code"]


CONTEXT = {
    "openai": (400, {"error": {"message": "Too long.", "code": "context_length_exceeded", "param": "messages"}}),
    "vllm": (
        400,
        {"error": {"message": "This model's maximum context length is 8 tokens.", "type": "BadRequestError"}},
    ),
    "vllm, flat": (
        400,
        {"object": "error", "message": "max_tokens=9 exceeds max_model_len", "type": "BadRequestError"},
    ),
    "llama.cpp": (400, {"error": {"message": "the request exceeds the available context size", "code": 400}}),
    "sglang": (400, {"error": {"message": "The input is longer than the model's context length", "code": 400}}),
    "anthropic": (400, {"error": {"message": "prompt is too long: 9 tokens > 8 maximum"}}),
    "a size": (413, {"error": "prompt too long; exceeded max context length by 4 tokens"}),
}


async def test_a_prompt_that_is_too_long_stays_recognisable_whoever_says_so():
    replies = [refusal(status, body) for status, body in CONTEXT.values()]
    async with FakeUpstream() as upstream:
        responses = await ask(upstream, *replies)
        [for_claude] = await ask(upstream, replies[0], path="/v1/messages", max_tokens=5)
    assert {error_of(response) for response in responses} == {(400, "context_length_exceeded")}
    for response in responses:
        assert response.json()["error"]["type"] == "invalid_request_error"
        assert "exceeds the context window" in response.json()["error"]["message"]
    assert "prompt is too long" in for_claude.json()["error"]["message"]


REFUSALS = [
    (refusal(400, {"error": {"message": "temperature: bad", "code": "invalid_value"}}), (400, "invalid_value")),
    (refusal(422, {"detail": [{"loc": ["body", "n"], "msg": "bad"}]}), (400, "invalid_value")),
    (refusal(401, {"error": {"message": "Incorrect API key sk-secret"}}), (502, "upstream_unauthorized")),
    (refusal(403, b"<html>no</html>"), (502, "upstream_unauthorized")),
    (refusal(402, {"error": {"message": "Insufficient Balance"}}), (429, "insufficient_quota")),
    (refusal(429, {"error": {"message": "Pay", "code": "insufficient_quota"}}), (429, "insufficient_quota")),
    (refusal(404, {"error": {"message": "The model `m` does not exist."}}), (404, "model_not_found")),
    (refusal(404, {"detail": "Not Found"}), (502, "upstream_misconfigured")),
    (refusal(405, b""), (502, "upstream_misconfigured")),
    (refusal(301, b"", location="https://elsewhere"), (502, "upstream_misconfigured")),
    (refusal(408, b""), (504, "upstream_timeout")),
    (refusal(413, b"<html>big</html>"), (413, "request_too_large")),
    (refusal(529, {"error": {"message": "busy"}}), (503, "server_is_overloaded")),
    (refusal(418, b"\xff\xfe"), (502, "upstream_error")),
]


async def test_refusals_keep_their_meaning_and_those_of_this_server_are_the_operators():
    async with FakeUpstream() as upstream:
        responses = await ask(upstream, *(reply for reply, _ in REFUSALS))
        assert len(upstream.turns) == len(REFUSALS)
    assert [error_of(response) for response in responses] == [expected for _, expected in REFUSALS]
    for response in responses:
        assert "sk-secret" not in response.text
        assert "<html>" not in response.text
        code = response.json()["error"]["code"]
        is_final = code in ("insufficient_quota", "upstream_unauthorized", "upstream_misconfigured")
        may_help = response.status_code >= 500 and not is_final
        assert response.headers["x-should-retry"] == ("true" if may_help else "false")


async def test_retry_after_goes_on_to_the_client_and_is_there_where_the_upstream_forgot_it():
    limited = {"error": {"message": "Slow down", "type": "rate_limit_error"}}
    replies = [
        refusal(429, limited, retry_after="7"),
        refusal(429, limited, retry_after="9", retry_after_ms="1500"),
        refusal(429, limited, retry_after="Wed, 21 Oct 2015 07:28:00 GMT"),
        refusal(429, limited, retry_after="soon"),
        refusal(429, limited),
        refusal(503, {"error": {"message": "Loading model"}}, retry_after="20"),
    ]
    async with FakeUpstream() as upstream:
        responses = await ask(upstream, *replies)
        assert len(upstream.turns) == len(replies)
    assert [response.headers["retry-after"] for response in responses] == ["7", "2", "0", "1", "1", "20"]
    assert [error_of(response)[0] for response in responses] == [429] * 5 + [503]
    assert responses[0].json()["error"]["message"] == "Slow down"


@pytest.mark.parametrize("failures", [[GONE], [refusal(500, b"oops")], [refusal(503, b""), refusal(502, b"")]])
async def test_what_fails_before_its_first_byte_is_tried_again(failures):
    async with FakeUpstream(*failures, say("Hi")) as upstream, gateway_before(upstream) as gateway:
        async with client_of(gateway) as http:
            response = await http.post("/v1/chat/completions", json=BODY)
        assert len(upstream.turns) == len(failures) + 1
    assert response.json()["choices"][0]["message"]["content"] == "Hi"


async def test_tries_have_an_end_and_none_follows_a_byte_of_an_answer():
    async with (
        FakeUpstream(refusal(500, {"error": {"message": "oops"}})) as upstream,
        gateway_before(upstream, max_retries=1) as gateway,
        client_of(gateway) as http,
    ):
        failed = await http.post("/v1/chat/completions", json=BODY)
        assert len(upstream.turns) == 2
        upstream.replies.append(answer(delta(content="Hi"), done=False, ending="cut"))
        upstream.replies.popleft()
        cut = await http.post("/v1/chat/completions", json=BODY)
        assert len(upstream.turns) == 3
    assert (error_of(failed), failed.json()["error"]["message"]) == (
        (502, "upstream_error"),
        "The upstream failed (HTTP 500): oops",
    )
    assert error_of(cut) == (502, "upstream_error")


async def test_an_upstream_that_is_gone_is_told_apart_and_not_ready_until_it_is_back():
    async with (
        FakeUpstream(say("Hi")) as upstream,
        gateway_before(upstream) as gateway,
        client_of(gateway) as http,
    ):
        await upstream.vanish()
        response = await http.post("/v1/chat/completions", json=BODY)
        unready = await http.get("/ready")
        alive = await http.get("/health")
        await upstream.come_back()
        while (await http.get("/ready")).status_code != 200:
            await asyncio.sleep(0.005)
        again = await http.post("/v1/chat/completions", json=BODY)
    assert error_of(response) == (503, "upstream_unreachable")
    assert "retry-after" in response.headers
    assert (unready.status_code, alive.status_code, again.status_code) == (503, 200, 200)


CHUNKS = [delta(content="Grüße"), delta(content=" \ud83d"), delta(content="\ude00"), delta(reason="stop")]
RAW = b"".join(map(frame, CHUNKS))
WELL = {
    "no [DONE]": [RAW],
    "no finish reason": [frame(CHUNKS[0]), frame(CHUNKS[1]), frame(CHUNKS[2]), DONE],
    "CRLF": [(RAW + DONE).replace(b"\n", b"\r\n")],
    "CR": [(RAW + DONE).replace(b"\n", b"\r")],
    "comments, names and ids": [b": hi\n\n", b"event: message\nid: 4\nretry: 1\n" + RAW, b":\n\n", DONE],
    "a byte order mark, no blank after the colon": [b"\xef\xbb\xbf" + (RAW + DONE).replace(b"data: ", b"data:")],
    "no empty lines": [(RAW + DONE).replace(b"\n\n", b"\n")],
    "no end of the last line": [RAW.removesuffix(b"\n\n")],
    "byte by byte": [bytes([byte]) for byte in RAW + DONE],
    "garbage between": [b"data: {oops\n\n", RAW, b"data: []\n\ndata: 7\n\ndata:\n\nnonsense\n\n", DONE],
    "a whole message for a stream": [
        json.dumps({"choices": [{"index": 0, "message": {"content": "Grüße 😀"}, "finish_reason": "stop"}]}).encode()
    ],
    "more after the end": [RAW, DONE, frame(delta(content="never"))],
}


async def test_a_stream_that_can_be_read_is():
    async with FakeUpstream() as upstream:
        responses = await ask(upstream, *map(Reply, WELL.values()))
    for name, response in zip(WELL, responses, strict=True):
        [choice] = response.json()["choices"]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("Grüße 😀", "stop"), name


BROKEN = {
    "cut": (answer(delta(content="Hi"), done=False, ending="cut"), 502, "upstream_error"),
    "ended without a word": (answer(delta(content="Hi"), done=False), 502, "upstream_stream_cut"),
    "nothing at all": (Reply(), 502, "upstream_stream_cut"),
    "only [DONE]": (Reply([DONE]), 502, "upstream_stream_cut"),
    "a page": (Reply([b"<html>\n\nWelcome\n\n</html>"]), 502, "upstream_stream_cut"),
    "an error": (answer(delta(content="Hi"), {"error": {"message": "Out of memory"}}), 502, "upstream_error"),
    "a bare error": (
        Reply([frame(delta(content="Hi")), b'{"error": {"message": "Slow", "code": 429}}\n']),
        429,
        "rate_limit_exceeded",
    ),
    "an old error": (answer(delta(content="Hi"), {"object": "error", "message": "max_model_len", "code": 400}), 400,
                     "context_length_exceeded"),
    "a filter": (answer(delta(content="Hi"), delta(reason="content_filter")), 400, "content_filter"),
    "cancelled by nobody here": (answer(delta(content="Hi"), delta(reason="abort")), 502, "upstream_error"),
    "an error as the reason": (answer(delta(content="Hi"), delta(reason="error")), 502, "upstream_error"),
}  # fmt: skip


async def test_an_answer_that_breaks_off_ends_with_an_error_on_every_protocol():
    replies = [reply for reply, _, _ in BROKEN.values()]
    expected = [(status, code) for _, status, code in BROKEN.values()]
    async with FakeUpstream() as upstream:
        whole = await ask(upstream, *replies)
        streamed = await ask(upstream, *replies, stream=True)
        messages = await ask(upstream, *replies, path="/v1/messages", max_tokens=9, stream=True)
        responses = await ask(upstream, *replies, path="/v1/responses", input="Hello", stream=True)
    assert [error_of(response) for response in whole] == expected
    for response, (_, code) in zip(streamed, expected, strict=True):
        events = list(sse_events(response.text))
        assert events[-1]["error"]["code"] == code
        assert "[DONE]" not in events
    for response in messages:
        assert response.text.rstrip().rpartition("event: ")[2].startswith("error")
    for response in responses:
        assert list(sse_events(response.text))[-1]["type"] == "response.failed"


async def test_an_error_that_comes_instead_of_an_answer_is_an_http_status_also_for_streams():
    error = {"error": {"message": "This model's maximum context length is 8 tokens.", "code": 400}}
    async with FakeUpstream() as upstream:
        [of_chat] = await ask(upstream, answer(error), stream=True)
        [of_messages] = await ask(upstream, answer(error), path="/v1/messages", max_tokens=5, stream=True)
        [of_texts] = await ask(upstream, answer(error), path="/v1/completions", prompt="a", stream=True)
    assert error_of(of_chat) == error_of(of_texts) == (400, "context_length_exceeded")
    assert (of_messages.status_code, of_messages.json()["error"]["type"]) == (400, "invalid_request_error")


async def test_a_call_cut_off_is_never_closed_as_if_it_were_whole():
    call = {"index": 0, "id": "c", "function": {"name": "weather", "arguments": '{"city": "Os'}}
    reply = answer(delta(content="So:"), delta(tool_calls=[call]), done=False, ending="cut")
    async with FakeUpstream() as upstream:
        [response] = await ask(upstream, reply, stream=True, tools=[weather_tool()])
    events = list(sse_events(response.text))
    assert content_of(events[:-1]) == "So:"
    assert events[-1]["error"]["code"] == "upstream_error"
    assert not any(event["choices"][0]["finish_reason"] for event in events[:-1])


async def test_silence_and_length_have_limits_of_their_own():
    async with FakeUpstream(answer(delta(content="Hi"), done=False, ending="hang")) as upstream:
        async with gateway_before(upstream, idle_timeout_s=0.03) as gateway, client_of(gateway) as http:
            silent = await http.post("/v1/chat/completions", json=BODY)
        await upstream.left()
        async with gateway_before(upstream, deadline_s=0.03) as gateway, client_of(gateway) as http:
            long = await http.post("/v1/chat/completions", json=BODY)
    assert error_of(silent) == (504, "upstream_timeout")
    assert "--upstream-timeout" in silent.json()["error"]["message"]
    assert error_of(long) == (504, "deadline_exceeded")


async def test_a_stream_that_hangs_after_its_end_is_over(monkeypatch):
    monkeypatch.setattr("gateway.upstream_streams._GRACE_S", 0.02)
    async with FakeUpstream(answer(delta(content="Hi"), delta(reason="stop"), done=False, ending="hang")) as upstream:
        async with gateway_before(upstream) as gateway, client_of(gateway) as http:
            response = await http.post("/v1/chat/completions", json=BODY)
        await upstream.left()
    assert response.json()["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("parts", [(), (frame(delta(content="Hi")),)], ids=["before its head", "within its answer"])
async def test_a_client_that_goes_closes_the_upstreams_connection_at_once(parts):
    async with FakeUpstream(Reply(parts, ending="hang")) as upstream, gateway_before(upstream, listens=True) as gateway:
        if not parts:
            upstream.delay = asyncio.Event()
        for stream in (True, False):
            upstream.num_left = 0
            upstream.has_begun.clear()
            _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
            body = json.dumps({**BODY, "stream": stream}).encode()
            head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            await upstream.has_begun.wait()
            writer.close()
            await upstream.left()
        await gateway.settled()


async def test_a_cancelled_turn_of_the_native_socket_closes_the_upstreams_connection():
    async with (
        FakeUpstream(answer(delta(content="Hi"), done=False, ending="hang")) as upstream,
        gateway_before(upstream, listens=True) as gateway,
        connect(gateway.ws_url, proxy=None) as socket,
    ):
        await socket.send(json.dumps({"type": "turn.create", "turn": "a", "messages": BODY["messages"]}))
        await upstream.has_begun.wait()
        await socket.send(json.dumps({"type": "turn.cancel", "turn": "a"}))
        await upstream.left()
        frames = [json.loads(await socket.recv())]
        while frames[-1]["type"] != "turn.done":
            frames.append(json.loads(await socket.recv()))
    assert any(frame.get("finish_reason") == "cancelled" for frame in frames), frames


async def test_connections_are_bounded_by_admission_and_the_failure_is_clear():
    async with (
        FakeUpstream(answer(delta(content="Hi"), done=False, ending="hang")) as upstream,
        gateway_before(upstream, max_live_turns=1, listens=True) as gateway,
        httpx.AsyncClient(base_url=gateway.url, trust_env=False, verify=False) as http,
    ):
        first = asyncio.create_task(http.post("/v1/chat/completions", json=BODY))
        await upstream.has_begun.wait()
        second = await http.post("/v1/chat/completions", json=BODY)
        first.cancel()
        await upstream.left()
    assert error_of(second) == (429, "rate_limit_exceeded")


async def test_the_start_waits_for_an_upstream_and_gives_up_on_one_that_refuses_the_key():
    async with FakeUpstream(say("Hi")) as upstream:
        await upstream.vanish()
        backend = UpstreamBackend(UpstreamSettings(upstream.url), 4, probe_s=0.005)
        starting = asyncio.create_task(backend.start())
        await asyncio.sleep(0.03)
        assert not backend.is_ready
        await upstream.come_back()
        await starting
        assert backend.is_ready
        await backend.close()
        assert not backend.is_ready
    async with FakeUpstream(say("Hi"), models=refusal(401, {"error": "who are you?"})) as upstream:
        backend = UpstreamBackend(UpstreamSettings(upstream.url), 4)
        with pytest.raises(UpstreamMisconfigured, match="--upstream-key-env"):
            await backend.start()
        await backend.close()


async def test_a_list_of_models_that_cannot_be_had_is_no_hindrance():
    async with (
        FakeUpstream(say("Hi"), models=refusal(404, b"")) as upstream,
        gateway_before(upstream) as gateway,
        client_of(gateway) as http,
    ):
        listed = (await http.get("/v1/models")).json()["data"]
        nameless = await http.post("/v1/chat/completions", json={"messages": BODY["messages"]})
        named = await http.post("/v1/chat/completions", json=BODY)
    assert listed == []
    assert error_of(nameless) == (400, "missing_required_parameter")
    assert named.status_code == 200
