"""The agent's loop against the fake server: what runs when, and what the model is told."""

import asyncio
import contextlib
import threading
import time

import pytest
from headrace import (
    Agent,
    AgentDone,
    AsyncClient,
    Client,
    ContentDelta,
    InvalidRequestError,
    MaxTurnsExceeded,
    ServerError,
    ToolCallEnd,
    ToolResult,
    TurnDone,
    Usage,
    tool,
)

from tests.testkit.sdk_server import Refuse, Wait, call, content, done

NEVER = Wait(threading.Event())


@pytest.fixture
async def client(server, transport):
    async with AsyncClient(server.url, transport=transport) as client:
        yield client


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def script(server, *turns):
    """Answer with the first list of steps, then the second, and so on."""
    remaining = list(turns)
    server.respond = lambda _: remaining.pop(0)


def told(server):
    """What the model was told, call by call, in the last request."""
    return [(m["tool_call_id"], m["content"]) for m in server.requests[-1]["messages"] if m["role"] == "tool"]


async def test_without_calls_a_run_is_one_turn(server, client):
    result = await Agent(client, [add]).run("hi")
    assert result.content == "echo: hi"
    assert result.num_turns == 1
    assert result.messages == [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "echo: hi"}]
    assert result.usage == Usage(7, 3, 10, 4, 1)


async def test_a_call_is_run_and_its_result_goes_back(server, client):
    script(
        server,
        [*content("Let me see."), *call(0, "add", '{"a": 2, "b": 3}'), *done("tool_calls")],
        [*content("5"), *done()],
    )
    result = await Agent(client, [add], system="Be brief.", temperature=0.0).run("2 + 3?")
    assert result.content == "5"
    assert result.num_turns == 2
    assert result.usage == Usage(14, 6, 20, 8, 2)
    assert result.messages == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "2 + 3?"},
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [
                {"id": "call_0", "type": "function", "function": {"name": "add", "arguments": '{"a": 2, "b": 3}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "call_0", "content": "5"},
        {"role": "assistant", "content": "5"},
    ]
    assert server.requests[1]["messages"] == result.messages[:-1]
    assert [request["temperature"] for request in server.requests] == [0.0, 0.0]
    assert server.requests[0]["tools"] == [add.to_openai()]


async def test_a_conversation_goes_on_from_a_result(server, client):
    agent = Agent(client, system="Be brief.")
    first = await agent.run("one")
    second = await agent.run([*first.messages, {"role": "user", "content": "two"}])
    assert [message["role"] for message in second.messages] == ["system", "user", "assistant", "user", "assistant"]


async def test_a_typed_function_is_a_tool_as_it_is(server, client):
    def double(x: int) -> int:
        return 2 * x

    script(server, [*call(0, "double", '{"x": 4}'), *done("tool_calls")], done())
    await Agent(client, [double]).run("go")
    assert told(server) == [("call_0", "8")]


async def test_the_calls_of_a_turn_run_at_once_and_are_answered_in_order(server, client):
    both_run = asyncio.Barrier(2)

    @tool
    async def first() -> str:
        await both_run.wait()
        await asyncio.sleep(0.02)
        return "first"

    @tool
    async def second() -> str:
        await both_run.wait()
        return "second"

    script(server, [*call(0, "first", "{}"), *call(1, "second", "{}"), *done("tool_calls")], done())
    await asyncio.wait_for(Agent(client, [first, second]).run("go"), 5)
    assert told(server) == [("call_0", "first"), ("call_1", "second")]


async def test_many_plain_functions_run_at_once(server, client):
    all_run = threading.Barrier(24)

    @tool
    def meet(number: int) -> int:
        all_run.wait(5)
        return number

    calls = [step for number in range(24) for step in call(number, "meet", f'{{"number": {number}}}')]
    script(server, [*calls, *done("tool_calls")], done())
    await Agent(client, [meet]).run("go")
    assert told(server) == [(f"call_{number}", str(number)) for number in range(24)]


async def test_a_tool_starts_while_the_model_still_writes(server, client):
    started = threading.Event()

    @tool
    def start() -> str:
        started.set()
        return "started"

    # The model ends its turn only after the tool has run. (Over SSE a call ends where the text after it begins.)
    script(server, [*call(0, "start", "{}"), *content("now"), Wait(started), *done("tool_calls")], done())
    await asyncio.wait_for(Agent(client, [start]).run("go"), 5)
    assert told(server) == [("call_0", "started")]


@pytest.mark.parametrize(
    ("step", "answer"),
    [
        (call(0, "fails", "{}"), "Error: ValueError: no luck"),
        (call(0, "missing", "{}"), "Error: there is no tool 'missing'; there are: fails, add"),
        (
            call(0, "add", '{"a": "x", "b": 1}'),
            'Error: invalid arguments for add: a must be an integer, got "x"',
        ),
        (call(0, "add", "[1, 2]", "invalid"), "Error: not run, the call is invalid"),
    ],
)
async def test_the_model_is_told_why_a_call_failed(server, client, step, answer):
    @tool
    def fails() -> None:
        raise ValueError("no luck")

    script(server, [*step, *done("tool_calls")], [*content("sorry"), *done()])
    result = await Agent(client, [fails, add]).run("go")
    assert result.content == "sorry"
    [(call_id, text)] = told(server)
    assert call_id == "call_0"
    assert text.startswith(answer)


@pytest.mark.parametrize("outcome", ["invalid", "truncated"])
async def test_a_call_that_did_not_come_out_well_is_not_executed(server, outcome):
    runs = []

    @tool
    def run(x: int = 0) -> None:
        runs.append(x)

    arguments = '{"x": 1}' if outcome == "invalid" else '{"x": '
    script(server, [*call(0, "run", arguments, outcome, "the reason"), *done("length")], [*content("ok"), *done()])
    async with AsyncClient(server.url) as client:
        await Agent(client, [run]).run("go")
    assert runs == []
    assert told(server) == [("call_0", f"Error: not run, the call is {outcome}: the reason")]


async def test_a_repaired_call_is_executed(server):
    script(server, [*call(0, "add", '{"a": 1, "b": 2}', "repaired", "a comma"), *done("tool_calls")], done())
    async with AsyncClient(server.url) as client:
        await Agent(client, [add]).run("go")
    assert told(server) == [("call_0", "3")]


async def test_max_turns_ends_the_run_with_a_conversation_that_can_go_on(server, client):
    runs = []

    @tool
    def again() -> str:
        runs.append(1)
        return "ok"

    server.respond = lambda _: [*call(0, "again", "{}"), *done("tool_calls")]
    with pytest.raises(MaxTurnsExceeded, match="3 turn") as caught:
        await Agent(client, [again], max_turns=3).run("go")
    assert len(server.requests) == 3
    assert len(runs) == 2, "the calls of the last turn have no reader and must not run"
    messages = caught.value.messages
    assert [m["role"] for m in messages] == ["user", *["assistant", "tool"] * 3]
    assert messages[-1]["content"] == "Error: not run, the limit of turns is reached"


async def test_an_answer_in_the_last_turn_is_a_result(server, client):
    script(server, [*call(0, "add", '{"a": 1, "b": 1}'), *done("tool_calls")], [*content("2"), *done()])
    result = await Agent(client, [add], max_turns=2).run("go")
    assert result.content == "2"


async def test_a_required_tool_choice_holds_for_the_first_turn_only(server, client):
    script(server, [*call(0, "add", '{"a": 1, "b": 1}'), *done("tool_calls")], done())
    await Agent(client, [add], tool_choice="required").run("go")
    assert server.requests[0]["tool_choice"] == "required"
    assert "tool_choice" not in server.requests[1]


async def test_run_stream_gives_the_events_of_all_turns(server, client):
    script(server, [*call(0, "add", '{"a": 1, "b": 1}'), *done("tool_calls")], [*content("2"), *done()])
    events = [event async for event in Agent(client, [add]).run_stream("go")]
    kinds = [type(event) for event in events]
    assert kinds.count(TurnDone) == 2
    assert events[-1] == AgentDone(events[-1].result)
    assert events[-1].result.content == "2"
    result = ToolResult(0, "call_0", "add", "2", is_error=False)
    assert kinds.index(ToolCallEnd) < events.index(result) < events.index(ContentDelta("2"))


async def test_an_error_of_a_turn_ends_the_run_and_its_tools(server, client):
    ended = asyncio.Event()
    running = threading.Event()

    @tool
    async def wait_long() -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    script(server, [*call(0, "wait_long", "{}"), *content("x"), Wait(running), Refuse(500, "engine_died")])
    with pytest.raises(ServerError):
        await Agent(client, [wait_long]).run("go")
    assert ended.is_set()


async def test_a_refused_turn_raises_as_it_is(server, client):
    server.respond = lambda _: [Refuse(400)]
    with pytest.raises(InvalidRequestError):
        await Agent(client).run("go")


@pytest.mark.parametrize("moment", ["in the turn", "in the tool"])
async def test_cancelling_a_run_cancels_its_turn_and_tools(server, client, moment):
    running, ended = asyncio.Event(), asyncio.Event()

    @tool
    async def wait_long() -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    rest = [*content("x"), NEVER] if moment == "in the turn" else done("tool_calls")
    script(server, [*call(0, "wait_long", "{}"), *rest])
    task = asyncio.create_task(Agent(client, [wait_long]).run("go"))
    await asyncio.wait_for(running.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
    await asyncio.to_thread(server.wait_until, lambda: server.num_turns_running == 0)


async def test_leaving_run_stream_early_cancels_the_run(server, client):
    server.respond = lambda _: [*content("a"), NEVER]
    async with contextlib.aclosing(Agent(client).run_stream("go")) as events:
        async for event in events:
            if isinstance(event, ContentDelta):
                break
    await asyncio.to_thread(server.wait_until, lambda: len(server.cancelled) == 1)


async def test_a_run_does_not_wait_for_a_plain_function_that_it_left(server, client):
    release, running = threading.Event(), threading.Event()

    @tool
    def stuck() -> None:
        running.set()
        release.wait(10)

    script(server, [*call(0, "stuck", "{}"), *done("tool_calls")])
    task = asyncio.create_task(Agent(client, [stuck]).run("go"))
    await asyncio.to_thread(running.wait, 5)
    start = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - start < 5
    release.set()


async def test_an_agent_runs_any_number_of_conversations_at_once(server, client):
    server.respond = lambda request: (
        [*content(request["messages"][-1]["content"]), *done()]
        if request["messages"][-1]["role"] == "tool"
        else [*call(0, "add", f'{{"a": {request["messages"][0]["content"]}, "b": 0}}'), *done("tool_calls")]
    )
    agent = Agent(client, [add])
    results = await asyncio.gather(*(agent.run(str(number)) for number in range(16)))
    assert [result.content for result in results] == [str(number) for number in range(16)]


async def test_wrong_arguments_of_an_agent_are_refused(server):
    async with AsyncClient(server.url) as client:
        with pytest.raises(ValueError, match="two tools"):
            Agent(client, [add, add])
        with pytest.raises(ValueError, match="max_turns"):
            Agent(client, max_turns=0)
    with Client(server.url) as blocking, pytest.raises(TypeError, match="SyncAgent"):
        Agent(blocking)
