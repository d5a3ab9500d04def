"""/v1/responses over a real server: conversations, stored and background responses, refusals, ends of every kind."""

import asyncio
import json
from contextlib import asynccontextmanager
from functools import partial

import httpx

from gateway import responses_background
from gateway.app import GatewayApp
from gateway.responses_background import EventLog
from gateway.scripted import Match, ScriptLine
from inference.errors import ContextLengthExceeded, QueueFull
from inference.types import TokenChunk
from tests.testkit.gateway_kit import (
    ByteTokenizer,
    FakeEngine,
    gateway_config,
    model_backend,
    running_gateway,
    scripted,
    sse_events,
    token_chunks,
)
from tests.testkit.responses_order import check_order, check_response

CALL = '<think>Hm.</think>Look.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object"}}


@asynccontextmanager
async def client_of(gateway, key=None):
    headers = {"authorization": f"Bearer {key}"} if key else {}
    async with httpx.AsyncClient(base_url=gateway.url, timeout=20, trust_env=False, headers=headers) as client:
        yield client


@asynccontextmanager
async def serving(backend, **changes):
    async with running_gateway(backend, **changes) as gateway, client_of(gateway) as http:
        yield gateway, http
        await gateway.settled()


@asynccontextmanager
async def in_process(backend, **changes):
    """Without a socket: for what does not depend on how an answer arrives."""
    app = GatewayApp(backend, gateway_config(**changes))
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway", timeout=20) as client:
        yield app, client


def talking(text="Hello.", **changes):
    return scripted(ScriptLine(text, repeat=True, **changes))


def with_tool():
    answer = ScriptLine("Four degrees.", match=Match(last_role="tool"), repeat=True)
    return scripted(answer, ScriptLine(CALL, match=Match(last_role="user"), repeat=True))


async def post(http, **body):
    response = await http.post("/v1/responses", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def text_of(response):
    return response["output"][-1]["content"][0]["text"]


async def test_a_conversation_goes_on_by_id_with_the_prompt_it_would_have_had_in_full():
    tokenizer, engine = ByteTokenizer(), FakeEngine(lambda request: token_chunks(request, "Yes."))
    async with in_process(model_backend(engine, tokenizer)) as (_, http):
        first = await post(http, input="One?", instructions="Be brief.")
        second = await post(http, input="Two?", previous_response_id=first["id"])
        items = [{"role": "user", "content": "One?"}, *first["output"], {"role": "user", "content": "Two?"}]
        await post(http, input=items)
    assert second["previous_response_id"] == first["id"]
    by_id, in_full = [messages for messages, _, _ in tokenizer.rendered[1:]]
    assert by_id == in_full
    assert [message["content"] for message in by_id] == ["One?", "Yes.", "Two?"], "instructions are not carried over"


async def test_a_tools_result_goes_back_and_references_find_their_items():
    async with in_process(with_tool()) as (_, http):
        first = await post(http, input="Weather?", tools=[WEATHER])
        call = first["output"][-1]
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "4"}
        by_id = await post(http, input=[result], previous_response_id=first["id"], tools=[WEATHER])
        references = [{"type": "item_reference", "id": item["id"]} for item in first["output"]]
        by_reference = await post(http, input=[{"role": "user", "content": "Weather?"}, *references, result])
    assert text_of(by_id) == text_of(by_reference) == "Four degrees."
    assert by_id["usage"]["input_tokens"] == by_reference["usage"]["input_tokens"]


async def test_reasoning_that_a_client_emptied_finds_its_text_again():
    tokenizer = ByteTokenizer()
    engine = FakeEngine(lambda request: token_chunks(request, "<think>Hm.</think>Yes."))
    async with in_process(model_backend(engine, tokenizer)) as (_, http):
        first = await post(http, input="One?")
        emptied = {"type": "reasoning", "id": first["output"][0]["id"], "summary": [], "content": []}
        await post(http, input=[{"role": "user", "content": "One?"}, emptied, first["output"][1]])
    assert tokenizer.rendered[-1][0][1]["reasoning_content"] == "Hm."


async def test_what_is_not_stored_cannot_be_continued_or_fetched():
    async with in_process(talking()) as (app, http):
        first = await post(http, input="Hi", store=False)
        assert (await http.get(f"/v1/responses/{first['id']}")).status_code == 404
        next_one = await http.post("/v1/responses", json={"input": "Hi", "previous_response_id": first["id"]})
        assert next_one.json()["error"]["code"] == "previous_response_not_found"
        assert len(app.responses) == 0


async def test_a_stored_response_is_fetched_listed_and_deleted():
    async with in_process(talking()) as (app, http):
        items = [{"role": role, "content": text} for role, text in (("user", "A"), ("assistant", "B"), ("user", "C"))]
        first = await post(http, input=items)
        path = f"/v1/responses/{first['id']}"
        assert (await http.get(path)).json() == first
        newest = (await http.get(f"{path}/input_items?limit=2")).json()
        assert [item["content"][0]["text"] for item in newest["data"]] == ["C", "B"]
        assert newest["has_more"] is True
        rest = (await http.get(f"{path}/input_items", params={"after": newest["last_id"]})).json()
        assert [item["content"][0]["text"] for item in rest["data"]] == ["A"]
        oldest = (await http.get(f"{path}/input_items?order=asc")).json()
        assert [item["content"][0]["type"] for item in oldest["data"]] == ["input_text", "output_text", "input_text"]
        for query in ("limit=0", "limit=101", "limit=x", "after=none"):
            assert (await http.get(f"{path}/input_items?{query}")).status_code == 400
        assert (await http.delete(path)).json() == {"id": first["id"], "object": "response", "deleted": True}
        assert (await http.delete(path)).status_code == 404
        assert app.responses.num_bytes == 0


async def test_keys_do_not_see_each_others_responses():
    async with (
        running_gateway(talking(), api_keys=("a", "b")) as gateway,
        client_of(gateway, "a") as mine,
        client_of(gateway, "b") as other,
    ):
        first = await post(mine, input="Hi")
        assert (await other.get(f"/v1/responses/{first['id']}")).status_code == 404
        reference = [{"type": "item_reference", "id": first["output"][0]["id"]}]
        assert (await other.post("/v1/responses", json={"input": reference})).status_code == 404
        assert (await mine.get(f"/v1/responses/{first['id']}")).status_code == 200


async def test_a_cut_answer_is_incomplete_and_can_be_taken_up():
    async with in_process(talking("one two three four")) as (_, http):
        cut = await post(http, input="Hi", max_output_tokens=2)
        assert (cut["status"], cut["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
        assert (await post(http, input="Go on", previous_response_id=cut["id"]))["status"] == "completed"


async def test_warnings_come_in_a_header_and_in_the_metadata():
    async with in_process(talking()) as (_, http):
        body = {"input": "Hi", "tools": [{"type": "web_search"}], "stream": True}
        answer = await http.post("/v1/responses", json=body)
        assert "web_search" in answer.headers["x-headrace-warning"]
        response = check_order(list(sse_events(answer.text)))
        assert "web_search" in response["metadata"]["headrace_warnings"]


# Background


async def test_a_background_response_is_followed_from_any_point():
    async with serving(talking("one two three")) as (_, http):
        streamed = await http.post("/v1/responses", json={"input": "Hi", "background": True, "stream": True})
        events = list(sse_events(streamed.text))
        response = check_order(events)
        path = f"/v1/responses/{response['id']}"
        by_query = await http.get(path, params={"stream": "true", "starting_after": 4})
        by_header = await http.get(f"{path}?stream=true", headers={"last-event-id": "4"})
        assert list(sse_events(by_query.text)) == list(sse_events(by_header.text)) == events[5:]
        assert by_query.text.startswith("id: 5\nevent: ")
        past_the_end = await http.get(path, params={"stream": "true", "starting_after": 999})
        assert (past_the_end.status_code, past_the_end.text) == (200, "")
        assert (await http.get(path)).json() == response
        assert (await http.get(f"{path}?stream=true&starting_after=x")).status_code == 400
        on = await post(http, input="More", previous_response_id=response["id"])
        assert on["status"] == "completed"


async def test_a_browser_that_comes_back_to_its_address_goes_on_where_it_was_and_stops_at_the_end():
    async with serving(talking("one two three")) as (_, http):
        started = await post(http, input="Hi", background=True)
        path = f"/v1/responses/{started['id']}?stream=true&starting_after=2"
        ids = [line[4:] for line in (await http.get(path)).text.split("\n") if line.startswith("id: ")]
        assert ids[0] == "3"
        again = (await http.get(path, headers={"last-event-id": ids[4]})).text
        assert [line[4:] for line in again.split("\n") if line.startswith("id: ")] == ids[5:]
        over = await http.get(path, headers={"last-event-id": ids[-1]})
        assert (over.status_code, over.content, "content-length" in over.headers) == (204, b"", False)
        assert (await http.get(path, headers={"last-event-id": ""})).text.startswith("id: 3\n")
        begun_at_the_end = path.replace("starting_after=2", "starting_after=99")
        assert (await http.get(begun_at_the_end, headers={"accept": "text/event-stream"})).status_code == 204
        strange = (await http.get(path, headers={"last-event-id": "x"})).json()["error"]
        assert (strange["param"], strange["code"]) == ("Last-Event-ID", "invalid_value")


async def test_a_compaction_in_the_background_is_followed_and_cancelled_like_any_other():
    async with serving(talking()) as (_, http):
        items = [{"role": "user", "content": "Hi"}, {"type": "compaction_trigger"}]
        response = await post(http, input=items, background=True)
        assert (response["background"], response["status"]) == (True, "completed")
        path = f"/v1/responses/{response['id']}"
        followed = await http.get(f"{path}?stream=true")
        assert check_order(list(sse_events(followed.text))) == response
        assert followed.text.startswith("id: 0\n")
        assert (await http.post(f"{path}/cancel")).json() == response
        assert (await post(http, input="More", previous_response_id=response["id"]))["status"] == "completed"
        await http.delete(path)
        assert (await http.get(path)).status_code == 404


async def test_conversations_say_what_to_use_instead():
    async with in_process(talking()) as (_, http):
        for method, path in (("POST", "/v1/conversations"), ("GET", "/v1/conversations/conv_1/items")):
            refused = await http.request(method, path, json={})
            assert (refused.status_code, refused.json()["error"]["code"]) == (404, "conversations_not_supported")
            assert "previous_response_id" in refused.json()["error"]["message"]
        field = (await http.post("/v1/responses", json={"input": "x", "conversation": "conv_1"})).json()["error"]
        assert (field["param"], "previous_response_id" in field["message"]) == ("conversation", True)


async def test_a_background_response_outlives_its_reader_and_is_read_by_many():
    engine = FakeEngine()
    async with serving(model_backend(engine)) as (_, http):
        body = {"input": "Hi", "background": True, "stream": True}
        async with http.stream("POST", "/v1/responses", json=body) as first:
            lines = first.aiter_lines()
            while "response.in_progress" not in await anext(lines):
                pass
        [tokens] = engine.live.values()
        response_id = tokens.request.turn_id
        path = f"/v1/responses/{response_id}"
        assert (await http.get(path)).json()["status"] == "in_progress"
        early = await http.post("/v1/responses", json={"input": "x", "previous_response_id": response_id})
        assert "in_progress" in early.json()["error"]["message"]

        readers = [asyncio.create_task(http.get(f"{path}?stream=true")) for _ in range(3)]
        await asyncio.sleep(0.02)
        assert engine.live, "the turn goes on without the client that started it"
        finish(tokens, "Done.")
        streams = [list(sse_events(reader.text)) for reader in await asyncio.gather(*readers)]
        assert streams[0] == streams[1] == streams[2]
        assert text_of(check_order(streams[0])) == "Done."


async def test_cancelling_ends_the_turn_and_may_be_repeated():
    engine = FakeEngine()
    async with in_process(model_backend(engine)) as (_, http):
        started = await post(http, input="Hi", background=True)
        assert started["status"] == "in_progress"
        path = f"/v1/responses/{started['id']}"
        reader = asyncio.create_task(http.get(f"{path}?stream=true"))
        cancelled = (await http.post(f"{path}/cancel")).json()
        assert cancelled["status"] == "cancelled"
        assert not engine.live
        assert (await http.post(f"{path}/cancel")).json() == cancelled
        assert check_order(list(sse_events((await reader).text))) == cancelled
        assert (await http.post("/v1/responses", json={"input": "x", "previous_response_id": started["id"]})).is_error


async def test_only_background_responses_are_followed_or_cancelled():
    async with in_process(talking()) as (_, http):
        path = f"/v1/responses/{(await post(http, input='Hi'))['id']}"
        assert (await http.post(f"{path}/cancel")).json()["error"]["code"] == "response_not_background"
        assert (await http.get(f"{path}?stream=true")).json()["error"]["code"] == "response_not_background"


async def test_deleting_a_running_response_stops_it():
    engine = FakeEngine()
    async with in_process(model_backend(engine)) as (app, http):
        started = await post(http, input="Hi", background=True)
        await http.delete(f"/v1/responses/{started['id']}")
        assert not engine.live
        assert (len(app.responses), app.responses.num_bytes) == (0, 0)


async def test_all_followers_hear_the_same_numbered_keepalives():
    engine = FakeEngine()
    async with serving(model_backend(engine), keepalive_s=0.02) as (_, http):
        body = {"input": "Hi", "background": True, "stream": True}
        async with http.stream("POST", "/v1/responses", json=body) as answer:
            events = [json.loads(line[6:]) async for line in until_keepalives(answer, engine)]
        response = check_order(events)
        assert text_of(response) == "Ok"
        assert [event["type"] for event in events].count("keepalive") >= 2
        again = await http.get(f"/v1/responses/{response['id']}?stream=true&starting_after=2")
        assert list(sse_events(again.text)) == events[3:]


def finish(tokens, text):
    for chunk in token_chunks(tokens.request, text):
        tokens.push(chunk)


async def until_keepalives(answer, engine):
    """The data lines; the model answers after the second keepalive."""
    num_keepalives = 0
    async for line in answer.aiter_lines():
        if not line.startswith("data: "):
            continue
        yield line
        num_keepalives += '"type":"keepalive"' in line
        if num_keepalives == 2 and engine.live:
            finish(next(iter(engine.live.values())), "Ok")
            num_keepalives += 1


async def test_a_background_response_that_writes_needs_few_keepalives():
    async with in_process(talking("a b c d e", delay_s=0.015), keepalive_s=0.02) as (_, http):
        streamed = await http.post("/v1/responses", json={"input": "Hi", "background": True, "stream": True})
        assert text_of(check_order(list(sse_events(streamed.text)))) == "a b c d e"


async def test_a_follower_that_the_log_has_left_behind_is_told(monkeypatch):
    monkeypatch.setattr(responses_background, "EventLog", partial(EventLog, max_bytes=3000))
    engine = FakeEngine()
    async with serving(model_backend(engine)) as (_, http):
        started = await post(http, input="Hi", background=True)
        path = f"/v1/responses/{started['id']}?stream=true"
        [tokens] = engine.live.values()
        async with http.stream("GET", path) as answer:
            lines = answer.aiter_lines()
            while "response.in_progress" not in await anext(lines):
                pass
            finish(tokens, "x" * 200)
            rest = [json.loads(line[6:]) async for line in lines if line.startswith("data: ")]
        assert (rest[-1]["type"], rest[-1]["code"]) == ("error", "events_expired")
        late = await http.get(path)
        assert (late.status_code, late.json()["error"]["code"]) == (400, "events_expired")


async def test_a_follower_that_stops_reading_is_dropped_and_holds_up_nobody(caplog):
    backend = talking("x" * 20_000_000, chunk=200_000)
    async with running_gateway(backend, slow_reader_timeout_s=0.1) as gateway, client_of(gateway) as http:
        body = json.dumps({"input": "Hi", "background": True, "stream": True}).encode()
        _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(b"POST /v1/responses HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        while "stopped reading" not in caplog.text:
            await asyncio.sleep(0.01)
        writer.close()
        await gateway.settled()
        assert (await post(http, input="Hi", max_output_tokens=1))["status"] == "incomplete"


# Ends


async def test_keepalives_are_typed_and_numbered_with_the_events():
    engine = FakeEngine()
    async with serving(model_backend(engine), keepalive_s=0.02) as (_, http):
        async with http.stream("POST", "/v1/responses", json={"input": "Hi", "stream": True}) as answer:
            events = [json.loads(line[6:]) async for line in until_keepalives(answer, engine)]
        assert text_of(check_order(events)) == "Ok"
        assert [event["type"] for event in events][2:4] == ["keepalive", "keepalive"]


async def test_an_engine_that_dies_gives_a_failed_response():
    engine = FakeEngine()
    async with serving(model_backend(engine)) as (_, http):
        asking = asyncio.create_task(http.post("/v1/responses", json={"input": "Hi", "stream": True}))
        while not engine.live:
            await asyncio.sleep(0.002)
        [tokens] = engine.live.values()
        tokens.push(TokenChunk(tokens.request.turn_id, 0, tuple(b"Half")))
        engine.die()
        response = check_order(list(sse_events((await asking).text)))
        assert (response["status"], response["error"]["code"]) == ("failed", "server_error")
        assert (await http.get(f"/v1/responses/{response['id']}")).json() == response


async def test_a_client_that_leaves_ends_its_turn():
    engine = FakeEngine()
    async with serving(model_backend(engine)) as (gateway, http):
        for stream in (True, False):
            asking = asyncio.create_task(http.post("/v1/responses", json={"input": "Hi", "stream": stream}))
            while not engine.live:
                await asyncio.sleep(0.002)
            asking.cancel()
            await gateway.settled()
            assert not engine.live
        assert len(gateway.app.responses) == 0


async def test_refusals_are_http_errors_that_name_the_clients_own_fields():
    engine = FakeEngine()
    async with in_process(model_backend(engine)) as (app, http):
        for body in ({"input": "Hi", "stream": True}, {"input": "Hi"}, {"input": "Hi", "background": True}):
            engine.refusal = ContextLengthExceeded(2000, 1000)
            refused = await http.post("/v1/responses", json=body)
            error = refused.json()["error"]
            assert (refused.status_code, error["code"], error["param"]) == (400, "context_length_exceeded", "input")
            engine.refusal = QueueFull(10, 10, 2.0)
            full = await http.post("/v1/responses", json=body)
            assert (full.status_code, full.headers["retry-after"]) == (429, "2")
        assert len(app.responses) == 0


async def test_a_conversation_that_grows_without_end_meets_a_limit():
    async with in_process(talking(), max_body_bytes=2000) as (_, http):
        body, last = {"input": "x" * 1500}, None
        for _ in range(20):
            answer = await http.post("/v1/responses", json={**body, "previous_response_id": last})
            if answer.is_error:
                break
            last = answer.json()["id"]
        assert answer.json()["error"]["code"] == "context_length_exceeded"


# Without an answer of the model


async def test_input_tokens_are_counted_and_nothing_is_generated():
    engine = FakeEngine()
    async with in_process(model_backend(engine)) as (_, http):
        counted = (await http.post("/v1/responses/input_tokens", json={"input": "Hi"})).json()
        assert counted["object"] == "response.input_tokens"
        assert counted["input_tokens"] > 2
        assert not engine.requests
        assert (await http.post("/v1/responses/input_tokens", json={})).json()["error"]["param"] == "input"


async def test_a_conversation_is_compacted_and_goes_on():
    tokenizer = ByteTokenizer()
    async with in_process(model_backend(FakeEngine(lambda r: token_chunks(r, "Yes.")), tokenizer)) as (_, http):
        first = await post(http, input="One?")
        body = {"previous_response_id": first["id"], "input": [{"role": "user", "content": "Two?"}]}
        compacted = (await http.post("/v1/responses/compact", json=body)).json()
        assert (compacted["object"], len(compacted["output"])) == ("response.compaction", 1)
        await post(http, input=[*compacted["output"], {"role": "user", "content": "Three?"}])
        assert [m["content"] for m in tokenizer.rendered[-1][0]] == ["One?", "Yes.", "Two?", "Three?"]


async def test_a_compaction_can_be_asked_for_as_a_response():
    tokenizer = ByteTokenizer()
    async with in_process(model_backend(FakeEngine(lambda r: token_chunks(r, "Yes.")), tokenizer)) as (_, http):
        first = await post(http, input="One?")
        body = {"previous_response_id": first["id"], "input": [{"type": "compaction_trigger"}]}
        whole = await post(http, **body)
        streamed = await http.post("/v1/responses", json={**body, "stream": True})
        response = check_order(list(sse_events(streamed.text)))
        assert [item["type"] for item in (*whole["output"], *response["output"])] == ["compaction"] * 2
        await post(http, input="Two?", previous_response_id=response["id"])
        assert [m["content"] for m in tokenizer.rendered[-1][0]] == ["One?", "Yes.", "Two?"]


async def test_a_response_ends_after_its_first_call_where_that_is_asked_for():
    calls = CALL + CALL.partition("Look.")[2]
    async with in_process(talking(calls, chunk=1000)) as (_, http):
        both = await post(http, input="Weather?", tools=[WEATHER])
        one = await post(http, input="Weather?", tools=[WEATHER], parallel_tool_calls=False)
    assert [item["type"] for item in both["output"]].count("function_call") == 2
    assert [item["type"] for item in one["output"]].count("function_call") == 1
    assert one["status"] == "completed"


async def test_a_prepared_response_has_no_output_and_a_usable_id():
    async with in_process(talking()) as (_, http):
        prepared = await post(http, input="Hi", generate=False)
        check_response(prepared)
        assert (prepared["status"], prepared["output"]) == ("completed", [])
        assert text_of(await post(http, input="Now", previous_response_id=prepared["id"])) == "Hello."


async def test_paths_below_are_known_and_others_are_not():
    async with in_process(talking()) as (_, http):
        assert (await http.get("/v1/responses")).status_code == 405
        assert (await http.get("/v1/responses/")).status_code == 405
        for path in ("/v1/responses/a/b/c", "/v1/responses/a/other"):
            assert (await http.get(path)).json()["error"]["code"] == "not_found"
        assert (await http.get("/v1/responses/resp_x")).json()["error"]["code"] == "response_not_found"


