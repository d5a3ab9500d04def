"""The asynchronous client against the fake server: what both transports must do alike, and what each does alone."""

import asyncio
import json
import socket
import threading

import pytest
from headrace import (
    APIError,
    AsyncClient,
    AuthenticationError,
    ConnectionFailed,
    ConnectionLost,
    ContentDelta,
    HeadraceError,
    IdleTimeout,
    InvalidRequestError,
    Message,
    NotFoundError,
    ProtocolError,
    RateLimitError,
    ReasoningDelta,
    ServerError,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    TurnDone,
    TurnStarted,
    Usage,
    tool,
)

from tests.testkit.sdk_server import CloseSocket, Drop, Raw, Refuse, Say, Wait, call, content, done, echo, reasoning

USAGE = Usage(prompt_tokens=7, completion_tokens=3, total_tokens=10, cached_tokens=4, reasoning_tokens=1)
NEVER = Wait(threading.Event())


async def until(server, condition):
    await asyncio.to_thread(server.wait_until, condition)


async def read(turn):
    return [event async for event in turn]


async def test_events_come_in_order_and_typed(server, transport):
    server.respond = lambda _: [*reasoning("hm"), *content("Hel", "lo"), *call(0, "f", '{"x": 1}'), *done("tool_calls")]
    async with AsyncClient(server.url, transport=transport) as client, client.stream("hi") as turn:
        events = await read(turn)
    assert isinstance(events[0], TurnStarted)
    assert events[0].model == "first-model"
    assert events[0].created_s == 1_700_000_000
    assert events[1:] == [
        ReasoningDelta("hm"),
        ContentDelta("Hel"),
        ContentDelta("lo"),
        ToolCallStart(0, "call_0", "f"),
        ToolCallDelta(0, '{"x"'),
        ToolCallDelta(0, ": 1}"),
        ToolCallEnd(0, '{"x": 1}', "ok", None),
        TurnDone("tool_calls", USAGE),
    ]


async def test_complete_returns_the_whole_message(server, transport):
    server.respond = lambda _: [*reasoning("h", "m"), *content("a", "b"), *call(0, "f", "{}"), *done("tool_calls")]
    async with AsyncClient(server.url, transport=transport) as client:
        message = await client.complete("hi")
    assert message.content == "ab"
    assert message.reasoning == "hm"
    assert message.tool_calls == (ToolCall(0, "call_0", "f", "{}", "ok"),)
    assert message.finish_reason == "tool_calls"
    assert message.usage == USAGE
    assert message.model == "first-model"
    assert message.turn_id


async def test_a_message_goes_back_into_the_next_turn(server, transport):
    server.respond = lambda _: [*reasoning("hm"), *call(0, "f", '{"x": 1}'), *done("tool_calls")]
    async with AsyncClient(server.url, transport=transport) as client:
        message = await client.complete("hi")
        await client.complete([{"role": "user", "content": "hi"}, message])
    assert server.requests[-1]["messages"][1] == {
        "role": "assistant",
        "content": None,
        "reasoning_content": "hm",
        "tool_calls": [{"id": "call_0", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}],
    }


async def test_final_after_part_of_the_events_still_has_all_of_the_text(server, transport):
    async with AsyncClient(server.url, transport=transport) as client, client.stream("hi") as turn:
        async for event in turn:
            if isinstance(event, ContentDelta):
                break
        first, second = await turn.final(), await turn.final()
    assert first.content == "echo: hi"
    assert first == second


async def test_all_fields_of_a_turn_reach_the_server(server, transport):
    @tool
    def weather(city: str) -> str:
        return city

    async with AsyncClient(server.url, transport=transport, model="second-model") as client:
        await client.complete(
            "hi",
            tools=[weather, {"type": "function", "function": {"name": "raw"}}],
            tool_choice="auto",
            temperature=0.5,
            stop=["x"],
            seed=3,
            extra={"my_field": [1]},
        )
    request = server.requests[0]
    assert request["model"] == "second-model"
    assert request["messages"] == [{"role": "user", "content": "hi"}]
    assert [entry["function"]["name"] for entry in request["tools"]] == ["weather", "raw"]
    assert request["tool_choice"] == "auto"
    assert (request["temperature"], request["stop"], request["seed"], request["my_field"]) == (0.5, ["x"], 3, [1])


async def test_the_turns_own_model_wins(server, transport):
    async with AsyncClient(server.url, transport=transport, model="second-model") as client:
        await client.complete("hi", model="third-model")
    assert server.requests[0]["model"] == "third-model"


async def test_a_lane_is_named_on_the_socket(server):
    async with AsyncClient(server.url) as client:
        await client.complete("hi", lane="left")
    assert server.requests[0]["lane"] == "left"


async def test_a_misspelt_field_is_refused_by_name(server, transport):
    async with AsyncClient(server.url, transport=transport) as client:
        with pytest.raises(TypeError, match="temprature"):
            client.stream("hi", temprature=1)
    assert server.requests == []


async def test_a_single_message_instead_of_a_list_is_refused(server):
    async with AsyncClient(server.url) as client:
        with pytest.raises(TypeError, match="list of messages"):
            client.stream({"role": "user", "content": "hi"})


async def test_many_turns_at_once_are_not_mixed_up(server, transport):
    prompts = [f"prompt {number}" for number in range(32)]
    async with AsyncClient(server.url, transport=transport) as client:
        messages = await asyncio.gather(*(client.complete(prompt) for prompt in prompts))
    assert [message.content for message in messages] == [f"echo: {prompt}" for prompt in prompts]
    if transport == "websocket":
        assert server.num_sockets == 1


async def test_a_reader_that_stands_still_holds_up_no_other_turn(server, transport):
    server.respond = lambda request: [*content(*["x" * 10_000] * 200), *done()]
    async with AsyncClient(server.url, transport=transport) as client, client.stream("never read") as unread:
        message = await client.complete("read")
        assert len(message.content) == 2_000_000
        assert len((await unread.final()).content) == 2_000_000


async def test_nothing_is_connected_before_the_first_turn(server):
    async with AsyncClient(server.url):
        pass
    assert server.num_sockets == 0


@pytest.mark.parametrize("leave", ["break", "raise"])
async def test_leaving_early_cancels_the_turn(server, transport, leave):
    server.respond = lambda _: [*content("a"), NEVER, *done()]
    async with AsyncClient(server.url, transport=transport) as client:
        try:
            async with client.stream("hi") as turn:
                async for event in turn:
                    if isinstance(event, ContentDelta):
                        if leave == "raise":
                            raise KeyError("mine")
                        break
        except KeyError:
            pass
        await until(server, lambda: len(server.cancelled) == 1 and server.num_turns_running == 0)
        server.respond = echo
        assert (await client.complete("again")).content == "echo: again"


async def test_a_cancelled_task_cancels_its_turn(server, transport):
    server.respond = lambda _: [*content("a"), NEVER]
    async with AsyncClient(server.url, transport=transport) as client:
        task = asyncio.create_task(client.complete("hi"))
        await until(server, lambda: server.num_turns_running == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(server, lambda: len(server.cancelled) == 1)


async def test_a_turn_that_ended_is_not_cancelled(server, transport):
    async with AsyncClient(server.url, transport=transport) as client:
        await client.complete("one")
        await client.complete("two")
    assert server.cancelled == []


async def test_cancel_ends_the_iteration_with_what_was_received(server, transport):
    server.respond = lambda _: [
        *content("so far"),
        Say("tool_call.start", {"index": 0, "id": "c", "name": "f"}),
        Say("tool_call.delta", {"index": 0, "arguments": '{"x'}),
        NEVER,
    ]
    async with AsyncClient(server.url, transport=transport) as client, client.stream("hi") as turn:
        async for event in turn:
            if isinstance(event, ToolCallDelta):
                await turn.cancel()
                await turn.cancel()
        message = await turn.final()
    assert message.finish_reason == "cancelled"
    assert message.content == "so far"
    assert message.tool_calls[0].arguments == '{"x'
    assert message.tool_calls[0].outcome == "truncated"


async def test_a_turn_must_be_entered(server, transport):
    async with AsyncClient(server.url, transport=transport) as client:
        with pytest.raises(RuntimeError, match="async with"):
            await read(client.stream("hi"))


async def test_a_turn_runs_once(server, transport):
    async with AsyncClient(server.url, transport=transport) as client:
        async with client.stream("hi") as turn:
            await read(turn)
        with pytest.raises(RuntimeError, match="again"):
            async with turn:
                pass


async def test_a_turn_left_early_can_not_be_read_on(server, transport):
    server.respond = lambda _: [*content("a"), NEVER]
    async with AsyncClient(server.url, transport=transport) as client:
        async with client.stream("hi") as turn:
            pass
        with pytest.raises(HeadraceError, match="left"):
            await turn.final()


@pytest.mark.parametrize(
    ("status", "code", "kind", "retryable"),
    [
        (400, "context_length_exceeded", InvalidRequestError, False),
        (401, "invalid_api_key", AuthenticationError, False),
        (403, None, AuthenticationError, False),
        (404, "model_not_found", NotFoundError, False),
        (409, None, APIError, True),
        (418, None, APIError, False),
        (422, None, InvalidRequestError, False),
        (429, "rate_limit_exceeded", RateLimitError, True),
        (429, "insufficient_quota", RateLimitError, False),
        (500, None, ServerError, True),
        (503, "server_is_overloaded", ServerError, True),
    ],
)
async def test_a_refused_turn_raises_the_error_of_its_status(server, transport, status, code, kind, retryable):
    server.respond = lambda _: [Refuse(status, code, "because", retry_after_s=1.5)]
    async with AsyncClient(server.url, transport=transport) as client:
        with pytest.raises(kind, match="because") as caught:
            await client.complete("hi")
    error = caught.value
    assert type(error) is kind
    assert (error.status, error.code, error.kind, error.retryable) == (status, code, "test_error", retryable)
    assert error.retry_after_s == 1.5


async def test_an_error_amid_a_turn_raises_after_what_came_before(server, transport):
    server.respond = lambda _: [*content("a"), Refuse(500, "engine_died", "the engine died")]
    async with AsyncClient(server.url, transport=transport) as client, client.stream("hi") as turn:
        assert isinstance(await anext(turn), TurnStarted)
        assert await anext(turn) == ContentDelta("a")
        with pytest.raises(ServerError, match="the engine died"):
            await anext(turn)
        with pytest.raises(ServerError, match="the engine died"):
            await turn.final()


async def test_an_error_of_one_turn_leaves_the_others_alone(server, transport):
    gate = threading.Event()
    server.respond = lambda request: (
        [Refuse(400)] if request["messages"][0]["content"] == "bad" else [*content("a"), Wait(gate), *done()]
    )
    async with AsyncClient(server.url, transport=transport) as client, client.stream("good") as turn:
        with pytest.raises(InvalidRequestError):
            await client.complete("bad")
        gate.set()
        assert (await turn.final()).content == "a"


async def test_a_connection_cut_amid_a_turn_raises(server, transport):
    server.respond = lambda _: [*content("a"), Drop(), NEVER]
    async with AsyncClient(server.url, transport=transport) as client:
        with pytest.raises(ConnectionLost) as caught:
            await client.complete("hi")
        assert caught.value.retryable
        server.respond = echo
        assert (await client.complete("again")).content == "echo: again"


async def test_a_cut_connection_fails_all_its_turns_each_with_its_own_error(server):
    gate = threading.Event()
    server.respond = lambda request: [*content("a"), Wait(gate), Drop(), NEVER]
    async with AsyncClient(server.url) as client:
        tasks = [asyncio.create_task(client.complete("hi")) for _ in range(3)]
        await until(server, lambda: server.num_turns_running == 3)
        gate.set()
        errors = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(error) for error in errors] == [ConnectionLost] * 3
    assert len({id(error) for error in errors}) == 3


async def test_a_stream_without_an_end_raises(server):
    server.respond = lambda _: content("a")
    async with AsyncClient(server.url, transport="sse") as client:
        with pytest.raises(ConnectionLost):
            await client.complete("hi")


async def test_a_stream_with_a_finish_reason_but_no_done_line_is_whole(server):
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    server.respond = lambda _: [*content("a"), Raw(json.dumps(last))]
    async with AsyncClient(server.url, transport="sse") as client:
        message = await client.complete("hi")
    assert (message.content, message.finish_reason, message.usage) == ("a", "stop", None)


async def test_a_socket_that_died_between_turns_is_replaced(server):
    async with AsyncClient(server.url) as client:
        await client.complete("one")
        server.drop_connections()
        assert (await client.complete("two")).content == "echo: two"
    assert server.num_sockets == 2


async def test_a_socket_that_dies_as_a_turn_is_sent_is_replaced_once(server):
    async with AsyncClient(server.url) as client:
        await client.complete("one")
        deaths = [1]
        server.respond = lambda request: [Drop(), NEVER] if deaths and deaths.pop() else echo(request)
        assert (await client.complete("two")).content == "echo: two"
        assert server.num_sockets == 2
        server.respond = lambda request: [Drop(), NEVER]
        with pytest.raises(ConnectionLost):
            await client.complete("three")
    assert server.num_sockets == 3


@pytest.mark.parametrize(("code", "retryable"), [(1001, True), (1011, True), (1012, True), (1013, True), (1008, False)])
async def test_the_close_code_tells_whether_to_try_again(server, code, retryable):
    server.respond = lambda _: [*content("a"), CloseSocket(code), NEVER]
    async with AsyncClient(server.url) as client:
        with pytest.raises(ConnectionLost, match=str(code)) as caught:
            await client.complete("hi")
    assert caught.value.retryable is retryable


async def test_turns_that_run_when_the_client_is_closed_raise(server, transport):
    server.respond = lambda _: [*content("a"), NEVER]
    client = AsyncClient(server.url, transport=transport)
    async with client.stream("hi") as turn:
        await anext(turn)
        await client.aclose()
        with pytest.raises(ConnectionLost, match="closed"):
            await read(turn)
    await client.aclose()


async def test_a_server_that_is_not_there_raises(unused_tcp_port, transport):
    async with AsyncClient(f"http://127.0.0.1:{unused_tcp_port}", transport=transport, model="m") as client:
        with pytest.raises(ConnectionFailed, match=str(unused_tcp_port)) as caught:
            await client.complete("hi")
    assert caught.value.retryable
    assert caught.value.status is None


async def test_a_server_that_accepts_and_says_nothing_raises_in_time():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        async with AsyncClient(url, connect_timeout_s=0.05) as client:
            with pytest.raises(ConnectionFailed, match=r"0\.05 s"):
                await client.complete("hi")


async def test_a_turn_that_goes_silent_raises_and_is_cancelled(server, transport):
    server.respond = lambda _: [*content("a"), NEVER]
    async with AsyncClient(server.url, transport=transport, idle_timeout_s=0.1) as client:
        with pytest.raises(IdleTimeout):
            await client.complete("hi")
        await until(server, lambda: len(server.cancelled) == 1)


@pytest.mark.parametrize("use", ["turn", "models"])
async def test_a_wrong_key_raises(server, transport, use):
    server.api_key = "right"
    async with AsyncClient(server.url, transport=transport, api_key="wrong") as client:
        with pytest.raises(AuthenticationError, match="wrong key") as caught:
            await (client.complete("hi") if use == "turn" else client.models())
    assert (caught.value.status, caught.value.code, caught.value.retryable) == (401, "invalid_api_key", False)


async def test_the_key_may_come_from_the_environment(server, transport, monkeypatch):
    server.api_key = "right"
    monkeypatch.setenv("HEADRACE_API_KEY", "right")
    monkeypatch.setenv("HEADRACE_URL", f"{server.url}/v1/")
    async with AsyncClient(transport=transport) as client:
        assert (await client.complete("hi")).content == "echo: hi"


async def test_models_are_listed(server, transport):
    async with AsyncClient(server.url, transport=transport) as client:
        assert await client.models() == ["first-model", "second-model"]


async def test_a_server_without_models_is_an_error(server, transport):
    server.models = []
    async with AsyncClient(server.url, transport=transport) as client:
        with pytest.raises(HeadraceError, match="no model"):
            await client.complete("hi")


@pytest.mark.parametrize(
    "nonsense", ["no json", "[]", '{"type": 3}', '{"type": "content.delta", "turn": "t1", "seq": "0", "text": ""}']
)
async def test_nonsense_on_the_socket_raises_and_a_new_socket_works(server, nonsense):
    server.respond = lambda _: [*content("a"), Raw(nonsense), NEVER]
    async with AsyncClient(server.url) as client:
        with pytest.raises(ProtocolError):
            await client.complete("hi")
        server.respond = echo
        assert (await client.complete("again")).content == "echo: again"


async def test_nonsense_over_sse_raises(server):
    for nonsense in ("no json", "[]", '{"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {}}]}}]}'):
        server.respond = lambda _, text=nonsense: [*content("a"), Raw(text), NEVER]
        async with AsyncClient(server.url, transport="sse") as client:
            with pytest.raises(ProtocolError):
                await client.complete("hi")


async def test_a_missing_frame_raises(server):
    late = {"type": "content.delta", "turn": "t1", "seq": 5, "text": "late"}
    server.respond = lambda _: [*content("a"), Raw(json.dumps(late)), NEVER]
    async with AsyncClient(server.url) as client:
        with pytest.raises(ProtocolError, match="frame 5 came where 2 was due"):
            await client.complete("hi")


async def test_unknown_frames_and_fields_are_passed_over(server):
    server.respond = lambda _: [
        Say("content.delta", {"text": "a", "new_field": 1}),
        Say("turn.progress", {"percent": 50}),
        Raw('{"type": "goaway", "deadline_s": 5}'),
        Raw('{"type": "pong"}'),
        *content("b"),
        *done(),
    ]
    async with AsyncClient(server.url) as client:
        assert (await client.complete("hi")).content == "ab"


async def test_an_error_of_the_connection_raises_in_the_turn_that_has_no_answer(server):
    error = {"type": "error", "error": {"status": 400, "code": "bad_frame", "message": "what?"}}
    gate = threading.Event()
    server.respond = lambda request: (
        [Raw(json.dumps(error)), NEVER]
        if request["messages"][0]["content"] == "bad"
        else [*content("a"), Wait(gate), *done()]
    )
    async with AsyncClient(server.url) as client, client.stream("good") as turn:
        with pytest.raises(InvalidRequestError, match="what"):
            await client.complete("bad")
        gate.set()
        assert (await turn.final()).content == "a"
        await until(server, lambda: len(server.cancelled) == 1)


async def test_an_error_of_a_lane_raises_in_the_turns_that_it_ends_and_in_no_others(server):
    gate = threading.Event()

    def respond(request):
        if request["messages"][0]["content"] == "good":
            return [Wait(gate), *content("a"), *done()]
        failure = {"status": 424, "code": "previous_turn_failed", "message": "what came before failed"}
        error = {"type": "error", "lane": "l", "turns": [request["turn"], "another"], "error": failure}
        return [Raw(json.dumps(error)), Say("turn.error", {"error": failure})]

    server.respond = respond
    async with AsyncClient(server.url) as client:
        good = asyncio.create_task(client.complete("good"))
        await until(server, lambda: len(server.requests) == 1)
        with pytest.raises(APIError, match="what came before failed") as caught:
            await client.complete("hi", lane="l")
        assert (caught.value.status, caught.value.code) == (424, "previous_turn_failed")
        assert not caught.value.retryable
        assert not good.done(), "it had no answer yet, and is of no concern to the lane"
        gate.set()
        assert (await good).content == "a"


async def test_text_with_every_kind_of_line_end_arrives_whole(server, transport):
    text = "a\r\nb\rc\u2028d\u2029e\x85f\x0bg\x0c\n\nh\U0001f600"
    server.respond = lambda _: [*content(text), *done()]
    async with AsyncClient(server.url, transport=transport) as client:
        assert (await client.complete("hi")).content == text


async def test_an_unknown_transport_is_refused():
    with pytest.raises(ValueError, match="websocket"):
        AsyncClient(transport="carrier pigeon")


async def test_a_call_cut_by_the_limit_of_tokens_is_truncated_over_sse_too(server, transport):
    server.respond = lambda _: [*call(0, "f", '{"x": [1,', "truncated"), *done("length")]
    async with AsyncClient(server.url, transport=transport) as client:
        message = await client.complete("hi")
    assert isinstance(message, Message)
    assert (message.tool_calls[0].outcome, message.finish_reason) == ("truncated", "length")
