"""Turns through a gateway in front of a server that behaves: what reaches it, and what comes back on every protocol."""

import asyncio
import json

import httpx
import pytest
from openai import AsyncOpenAI
from websockets.asyncio.client import connect

from gateway.protocols.anthropic_messages import PING
from tests.testkit.fake_upstream import (
    DONE,
    FakeUpstream,
    Reply,
    answer,
    client_of,
    delta,
    frame,
    gateway_before,
    say,
    usage,
)
from tests.testkit.gateway_kit import content_of, sse_events, weather_tool

HELLO = [{"role": "user", "content": "Hello"}]


async def post(gateway, path, body, **headers):
    async with client_of(gateway) as http:
        return await http.post(path, json=body, headers=headers)


async def chat(gateway, **fields):
    return await post(gateway, "/v1/chat/completions", {"model": "m", "messages": HELLO, **fields})


async def test_a_chat_becomes_one_streamed_request_with_what_the_client_gave():
    async with FakeUpstream(say("Hi", " there")) as upstream, gateway_before(upstream, api_key="sk-1") as gateway:
        response = await chat(
            gateway,
            temperature=0.5,
            top_k=7,
            max_completion_tokens=9,
            stop=["END"],
            tools=[weather_tool()],
            tool_choice={"type": "function", "function": {"name": "weather"}},
            parallel_tool_calls=False,
            response_format={"type": "json_object"},
            reasoning_effort="low",
            kv_transfer_params={"remote_host": "10.0.0.1"},
            logit_bias=None,
        )
        [request] = upstream.turns
    assert response.json()["choices"][0]["message"]["content"] == "Hi there"
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == "Bearer sk-1"
    assert request.body == {
        "model": "m",
        "messages": HELLO,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
        "top_k": 7,
        "max_completion_tokens": 9,
        "stop": ["END"],
        "tools": [weather_tool()],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "parallel_tool_calls": False,
        "response_format": {"type": "json_object"},
        "reasoning_effort": "low",
    }


async def test_nothing_is_made_up_that_the_client_left_out():
    async with FakeUpstream(say("Hi")) as upstream, gateway_before(upstream) as gateway:
        await chat(gateway)
        [request] = upstream.turns
    assert request.body.keys() == {"model", "messages", "stream", "stream_options"}
    assert "authorization" not in request.headers
    assert "cookie" not in request.headers


async def test_a_clients_key_and_cookies_stay_here_and_the_upstreams_cookies_go_nowhere():
    reply = Reply(say("a").parts, headers={"content-type": "text/event-stream", "set-cookie": "session=1; Path=/"})
    async with FakeUpstream(reply) as upstream, gateway_before(upstream) as gateway:
        for _ in range(2):
            headers = {"authorization": "Bearer client-key", "cookie": "mine=2"}
            response = await post(gateway, "/v1/chat/completions", {"model": "m", "messages": HELLO}, **headers)
            assert "set-cookie" not in response.headers
        sent = [request.headers for request in upstream.turns]
    assert not any("authorization" in headers or "cookie" in headers for headers in sent)


async def test_chunks_come_out_repaired_while_they_come_in():
    gate = asyncio.Event()
    call = {"id": "call_7", "function": {"name": "weather", "arguments": {"city": "Oslo"}}}
    parts = [frame(delta(reasoning="Hm.")), frame(delta(content="Let me")), gate, frame(delta(tool_calls=[call]))]
    reply = Reply([*parts, frame(delta(reason="stop")), frame(usage(20, 8)), DONE])
    async with (
        FakeUpstream(reply) as upstream,
        gateway_before(upstream, listens=True) as gateway,
        httpx.AsyncClient(trust_env=False, verify=False) as http,
    ):
        body = {"model": "m", "messages": HELLO, "tools": [weather_tool()], "stream": True}
        body["stream_options"] = {"include_usage": True}
        async with http.stream("POST", f"{gateway.url}/v1/chat/completions", json=body) as response:
            text = ""
            async for piece in response.aiter_text():
                text += piece
                if "Let me" in text:
                    gate.set()
    chunks = list(sse_events(text))
    assert chunks[-1] == "[DONE]"
    assert content_of(chunks) == "Let me"
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks[:-2]]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "Hm."
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    assert (calls[0]["id"], calls[0]["function"]["name"]) == ("call_7", "weather")
    assert json.loads("".join(call["function"]["arguments"] for call in calls)) == {"city": "Oslo"}
    assert chunks[-3]["choices"][0]["finish_reason"] == "tool_calls"
    assert chunks[-2]["usage"]["prompt_tokens"] == 20


async def test_calls_that_the_upstream_left_in_its_text_are_recovered_with_a_content_dialect():
    markup = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
    async with FakeUpstream(say(*markup)) as upstream, gateway_before(upstream, content_dialect="hermes") as gateway:
        [choice] = (await chat(gateway, tools=[weather_tool()])).json()["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"]) == {"city": "Oslo"}
    assert choice["message"]["content"] is None


async def test_messages_and_its_stream_are_served():
    chunks = [delta(reasoning_content="Hm."), delta(content="Hi"), delta(reason="length")]
    counts = usage(20, 8, prompt_tokens_details={"cached_tokens": 15})
    async with FakeUpstream(answer(*chunks, counts)) as upstream, gateway_before(upstream) as gateway:
        body = {
            "model": "claude-x", "max_tokens": 50, "messages": HELLO, "system": "Be kind.", "stop_sequences": ["END"],
            "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}},
        }  # fmt: skip
        whole = (await post(gateway, "/v1/messages", body)).json()
        streamed = await post(gateway, "/v1/messages", {**body, "stream": True})
        sent = upstream.bodies[0]
    assert [block["type"] for block in whole["content"]] == ["thinking", "text"]
    assert whole["stop_reason"] == "max_tokens"
    assert (whole["usage"]["input_tokens"], whole["usage"]["cache_read_input_tokens"]) == (5, 15)
    assert streamed.text.count("event: message_stop") == 1
    assert (sent["max_tokens"], sent["stop"], sent["reasoning_effort"]) == (50, ["END"], "low")
    assert sent["messages"][0] == {"role": "system", "content": "Be kind."}
    assert sent["response_format"]["json_schema"] == {"name": "answer", "schema": {"type": "object"}}


async def test_responses_are_served_and_continue_by_their_id():
    async with FakeUpstream(say("One"), say("Two")) as upstream, gateway_before(upstream) as gateway:
        client = AsyncOpenAI(base_url="http://gateway/v1", api_key="none", http_client=client_of(gateway))
        first = await client.responses.create(model="m", input="Hello", text={"verbosity": "low"})
        events = [
            event
            async for event in await client.responses.create(
                model="m", input="And?", previous_response_id=first.id, stream=True
            )
        ]
        await client.close()
    assert first.output_text == "One"
    assert first.usage.input_tokens == 9
    assert events[-1].type == "response.completed"
    assert upstream.bodies[0]["verbosity"] == "low"
    assert [message["content"] for message in upstream.bodies[1]["messages"]] == ["Hello", "One", "And?"]


async def test_the_native_socket_and_its_sessions_are_served():
    async with (
        FakeUpstream(say("One"), say("Two")) as upstream,
        gateway_before(upstream, listens=True) as gateway,
        connect(gateway.ws_url, proxy=None) as socket,
    ):
        hello = json.loads(await socket.recv())
        for turn, fields in (("a", {}), ("b", {"continue": True})):
            request = {"type": "turn.create", "turn": turn, "session": "s", "messages": HELLO, **fields}
            await socket.send(json.dumps(request))
            while json.loads(await socket.recv())["type"] != "turn.done":
                pass
    assert hello["models"] == ["up-1"]
    assert [len(body["messages"]) for body in upstream.bodies] == [1, 3]
    assert upstream.bodies[1]["model"] == "up-1"


async def test_completions_are_served_with_their_own_path_upstream():
    chunks = [{"choices": [{"index": 0, "text": text, "finish_reason": None}]} for text in ("Once", " upon")]
    last = {"choices": [{"index": 0, "text": "", "finish_reason": "length"}]}
    async with FakeUpstream(answer(*chunks, last, usage(3, 2))) as upstream, gateway_before(upstream) as gateway:
        body = {"model": "m", "prompt": ["a", [1, 2]], "max_tokens": 2, "echo": False, "seed": 4}
        response = (await post(gateway, "/v1/completions", body)).json()
        refused = await post(gateway, "/v1/completions", {**body, "echo": True})
    assert [choice["text"] for choice in response["choices"]] == ["Once upon"] * 2
    assert {choice["finish_reason"] for choice in response["choices"]} == {"length"}
    assert response["usage"]["prompt_tokens"] == 6
    assert {request.path for request in upstream.turns} == {"/v1/completions"}
    assert sorted(map(str, (request.body["prompt"] for request in upstream.turns))) == ["[1, 2]", "a"]
    assert all(request.body["seed"] == 4 for request in upstream.turns)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "echo")


async def test_log_probabilities_and_several_choices_come_through():
    entry = {"token": "Hi", "logprob": -0.5, "bytes": None, "top_logprobs": [{"token": "Yo", "logprob": -1.5}]}
    first = delta(0, content="Hi")
    first["choices"][0]["logprobs"] = {"content": [entry]}
    both = {"choices": [delta(0, reason="stop")["choices"][0], delta(1, reason="stop")["choices"][0]]}
    reply = answer(first, delta(1, content="Ho"), both, usage(4, 2))
    async with FakeUpstream(reply) as upstream, gateway_before(upstream) as gateway:
        response = (await chat(gateway, n=2, logprobs=True, top_logprobs=1)).json()
        [sent] = upstream.bodies
    assert [choice["message"]["content"] for choice in response["choices"]] == ["Hi", "Ho"]
    [logprob] = response["choices"][0]["logprobs"]["content"]
    assert (logprob["token"], logprob["logprob"]) == ("Hi", -0.5)
    assert [(top["token"], top["logprob"]) for top in logprob["top_logprobs"]] == [("Yo", -1.5)]
    assert (sent["n"], sent["logprobs"], sent["top_logprobs"]) == (2, True, 1)


async def test_an_upstream_that_does_not_know_n_fails_the_turn():
    async with FakeUpstream(say("Hi")) as upstream, gateway_before(upstream) as gateway:
        response = await chat(gateway, n=2)
    assert response.status_code == 502
    assert "does not know n" in response.json()["error"]["message"]


async def test_a_second_call_is_not_waited_for_when_the_client_wants_one():
    calls = [
        {"index": i, "id": f"c{i}", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}} for i in range(2)
    ]
    reply = answer(delta(tool_calls=calls[:1]), delta(content="and"), delta(tool_calls=calls[1:]), ending="hang")
    tool = {"type": "function", "function": {"name": "weather"}}
    async with FakeUpstream(reply) as upstream, gateway_before(upstream) as gateway:
        [choice] = (await chat(gateway, tools=[tool], parallel_tool_calls=False)).json()["choices"]
        await upstream.left()
    assert [call["id"] for call in choice["message"]["tool_calls"]] == ["c0"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", None)


async def test_after_one_call_the_rest_is_left_out_but_the_cost_is_known():
    call = {"index": 0, "id": "c0", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
    reply = answer(delta(tool_calls=[call]), delta(content="more"), delta(reason="tool_calls"), usage(30, 12))
    tool = {"type": "function", "function": {"name": "weather"}}
    async with FakeUpstream(reply) as upstream, gateway_before(upstream) as gateway:
        response = (await chat(gateway, tools=[tool], parallel_tool_calls=False)).json()
    assert response["choices"][0]["message"]["content"] is None
    assert response["usage"]["completion_tokens"] == 12


async def test_reasoning_goes_back_under_the_name_that_the_upstream_uses():
    reply = answer(delta(reasoning="Hm."), delta(content="Hi"), delta(reason="stop"))
    past = {"role": "assistant", "content": "Hi", "reasoning_content": "Hm."}
    async with FakeUpstream(reply) as upstream, gateway_before(upstream) as gateway:
        for _ in range(2):
            await chat(gateway, messages=[*HELLO, past, *HELLO])
    assert upstream.bodies[0]["messages"][1] == {"role": "assistant", "content": "Hi"}
    assert upstream.bodies[1]["messages"][1] == {"role": "assistant", "content": "Hi", "reasoning": "Hm."}


async def test_the_upstreams_models_are_listed_and_any_name_passes():
    models = [{"id": "a", "max_model_len": 4096}, {"id": "org/b"}, {"nonsense": 1}]
    async with FakeUpstream(say("Hi"), models=models) as upstream, gateway_before(upstream) as gateway:
        async with client_of(gateway) as http:
            listed = (await http.get("/v1/models")).json()["data"]
            for_claude = (await http.get("/v1/models", headers={"anthropic-version": "2023-06-01"})).json()
            one, other = await http.get("/v1/models/org/b"), await http.get("/v1/models/c")
            ready = (await http.get("/ready")).json()
        alias = (await chat(gateway, model="alias-of-a")).json()
        nameless = (await chat(gateway, model=None)).json()
    assert [(model["id"], model["max_model_len"]) for model in listed] == [("a", 4096), ("org/b", None)]
    assert for_claude["first_id"] == "a"
    assert (one.status_code, other.status_code) == (200, 404)
    assert ready["models"] == ["a", "org/b"]
    assert (alias["model"], nameless["model"]) == ("alias-of-a", "a")
    assert [body["model"] for body in upstream.bodies] == ["alias-of-a", "a"]


async def test_one_model_by_name_is_the_only_one_served():
    async with FakeUpstream(say("Hi")) as upstream, gateway_before(upstream, model="up-1", names=("mine",)) as gateway:
        async with client_of(gateway) as http:
            listed = (await http.get("/v1/models")).json()["data"]
        mine, other = await chat(gateway, model="mine"), await chat(gateway, model="up-1")
    assert [model["id"] for model in listed] == ["mine"]
    assert (mine.json()["model"], other.status_code) == ("mine", 404)
    assert [body["model"] for body in upstream.bodies] == ["up-1"]


async def test_tokens_are_estimated_for_messages_and_the_estimate_says_so():
    long = {"role": "user", "content": "word " * 400}
    reply = answer(delta(content="x"), delta(reason="stop"), usage(405, 1))
    async with FakeUpstream(reply) as upstream, gateway_before(upstream) as gateway:
        body = {"model": "m", "messages": [long]}
        before = await post(gateway, "/v1/messages/count_tokens", body)
        for _ in range(12):
            await post(gateway, "/v1/messages", {**body, "max_tokens": 5})
        after = await post(gateway, "/v1/messages/count_tokens", body)
        responses = await post(gateway, "/v1/responses/input_tokens", {"model": "m", "input": "Hello"})
        tokenized = await post(gateway, "/tokenize", {"model": "m", "prompt": "a"})
    assert "estimate" in before.headers["x-headrace-warning"]
    assert "estimate" in responses.headers["x-headrace-warning"]
    assert before.json()["input_tokens"] > 450
    # What the upstream counted since has made it better.
    assert after.json()["input_tokens"] == pytest.approx(405, rel=0.08)
    assert (tokenized.status_code, tokenized.json()["error"]["code"]) == (501, "not_available")


async def test_usage_is_estimated_where_the_upstream_does_not_count():
    chunks = [delta(content=f"{i} ") for i in range(5)]
    async with FakeUpstream(answer(*chunks, delta(reason="stop"))) as upstream, gateway_before(upstream) as gateway:
        counted = (await chat(gateway)).json()["usage"]
    assert counted["completion_tokens"] == 5
    assert counted["prompt_tokens"] > 0


async def test_a_turn_that_only_warms_up_asks_nothing_of_the_upstream():
    async with FakeUpstream(say("Hi")) as upstream, gateway_before(upstream) as gateway:
        response = await post(gateway, "/v1/messages", {"model": "m", "max_tokens": 0, "messages": HELLO})
        assert response.json()["content"] == []
        assert upstream.turns == []


async def test_a_connection_serves_one_turn_after_another():
    async with FakeUpstream(say("Hi")) as upstream, gateway_before(upstream) as gateway:
        for _ in range(3):
            await chat(gateway)
            await asyncio.sleep(0.01)
        # One more asked for the list of models.
        assert upstream.num_connections <= 2


async def test_keepalives_come_while_the_upstream_thinks_about_its_first_byte():
    gate = asyncio.Event()
    replies = [Reply([], None)]
    async with FakeUpstream(*replies) as upstream, gateway_before(upstream, keepalive_s=0.02, listens=True) as gateway:
        upstream.delay = gate
        upstream.replies[0] = say("Hi")
        async with httpx.AsyncClient(trust_env=False, verify=False) as http:
            body = {"model": "m", "max_tokens": 5, "messages": HELLO, "stream": True}
            async with http.stream("POST", f"{gateway.url}/v1/messages", json=body) as response:
                text = b""
                async for piece in response.aiter_bytes():
                    text += piece
                    if PING in text:
                        gate.set()
    assert text.index(PING) < text.index(b"content_block_start")
    assert b"message_stop" in text


async def test_nobody_is_warned_of_what_the_upstream_can_force():
    weather = {"type": "function", **weather_tool()["function"]}
    forced = {"tools": [weather_tool()], "tool_choice": "required", "response_format": {"type": "json_object"}}
    async with FakeUpstream(say("Hi")) as upstream, gateway_before(upstream) as gateway:
        of_chat = await chat(gateway, **forced, functions=[{"name": "f"}])
        body = {"model": "m", "input": "Hello", "tools": [weather], "tool_choice": "required", "truncation": "auto"}
        of_responses = await post(gateway, "/v1/responses", body)
    assert of_chat.headers["x-headrace-warning"] == "functions is ignored: the request has tools"
    assert of_responses.headers["x-headrace-warning"].startswith("truncation auto")
    assert upstream.bodies[1]["tool_choice"] == "required"
