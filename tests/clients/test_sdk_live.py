"""The SDK against the real server, which answers from a script."""

import asyncio
import os
import subprocess
import sys

import pytest
from headrace import (
    Agent,
    AsyncClient,
    AuthenticationError,
    Client,
    ConnectionLost,
    ContentDelta,
    InvalidRequestError,
    NotFoundError,
    ServerError,
    SyncAgent,
    ToolCallEnd,
    ToolResult,
    TurnDone,
    tool,
)

from tests.testkit.scripted_server import ScriptedServer

pytestmark = pytest.mark.clients

NUM_TURNS = 32
LONG = "long " * 5000


def call(name, arguments):
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


SCRIPT = [
    *(
        {
            "text": f"answer {number} " * 20,
            "match": {"contains": f"<{number}>"},
            "chunk": "token",
            "delay_ms": 1,
            "repeat": True,
        }
        for number in range(NUM_TURNS)
    ),
    {"text": "The sum is 5.", "match": {"last_role": "tool", "contains": "add please"}, "repeat": True},
    {"text": "Two calls done.", "match": {"last_role": "tool", "contains": "two please"}, "repeat": True},
    {"text": "Sorry.", "match": {"last_role": "tool"}, "repeat": True},
    {
        "text": "Let me add.\n" + call("add", '{"a": 2, "b": 3}'),
        "match": {"contains": "add please"},
        "chunk": "char",
        "repeat": True,
    },
    {
        "text": call("add", '{"a": 1, "b": 1}') + "\n" + call("add", '{"a": 10, "b": 10}'),
        "match": {"contains": "two please"},
        "chunk": "char",
        "delay_ms": 5,
        "repeat": True,
    },
    {"text": call("missing", "{}"), "match": {"contains": "missing please"}, "repeat": True},
    {
        "text": '<tool_call>\n{"name": "add", "arguments": {"a": 2',
        "finish": "length",
        "match": {"contains": "cut please"},
    },
    {"text": LONG, "match": {"contains": "long please"}, "chunk": "token", "delay_ms": 5, "repeat": True},
    {
        "text": "<think>Hmm, let me think.</think>I thought.",
        "match": {"contains": "think please"},
        "chunk": "char",
        "repeat": True,
    },
    {"text": "Hello there.", "chunk": "char", "repeat": True},
]


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with ScriptedServer(tmp_path_factory.mktemp("script"), SCRIPT) as server:
        yield server


@pytest.fixture(params=["websocket", "sse"])
async def client(request, server):
    async with AsyncClient(server.url, transport=request.param) as client:
        yield client


async def test_text_is_streamed_piece_by_piece(client):
    async with client.stream("hello") as turn:
        pieces = [event.text async for event in turn if isinstance(event, ContentDelta)]
        message = await turn.final()
    assert len(pieces) > 3
    assert "".join(pieces) == message.content == "Hello there."
    assert message.finish_reason == "stop"
    assert message.usage is not None
    assert message.usage.completion_tokens > 0
    assert message.usage.total_tokens == message.usage.prompt_tokens + message.usage.completion_tokens


async def test_reasoning_is_apart_from_the_text(client):
    message = await client.complete("think please")
    assert message.reasoning.strip() == "Hmm, let me think."
    assert message.content.strip() == "I thought."


async def test_many_turns_at_once_are_not_mixed_up(server, client):
    messages = await asyncio.gather(*(client.complete(f"number <{number}>") for number in range(NUM_TURNS)))
    for number, message in enumerate(messages):
        assert message.content.strip() == " ".join([f"answer {number}"] * 20)
    await asyncio.to_thread(server.wait_until_idle)


async def test_turns_of_one_lane_run_in_order(server):
    async with AsyncClient(server.url) as client:
        ended = []

        async def ask(number):
            await client.complete(f"number <{number}>", lane="one")
            ended.append(number)

        tasks = []
        for number in range(4):
            tasks.append(asyncio.create_task(ask(number)))
            await asyncio.sleep(0.01)
        await asyncio.gather(*tasks)
    assert ended == [0, 1, 2, 3]


async def test_leaving_a_turn_ends_it_on_the_server(server, client):
    async with client.stream("long please") as turn:
        async for event in turn:
            if isinstance(event, ContentDelta):
                break
    await asyncio.to_thread(server.wait_until_idle)


async def test_a_cancelled_turn_ends_with_what_was_written(server, client):
    async with client.stream("long please") as turn:
        async for event in turn:
            if isinstance(event, ContentDelta):
                await turn.cancel()
        message = await turn.final()
    assert message.finish_reason == "cancelled"
    assert LONG.startswith(message.content)
    assert 0 < len(message.content) < len(LONG)
    await asyncio.to_thread(server.wait_until_idle)


async def test_an_agent_adds(client):
    result = await Agent(client, [add], temperature=0.0).run("add please")
    assert result.content == "The sum is 5."
    assert result.num_turns == 2
    assert [message["role"] for message in result.messages] == ["user", "assistant", "tool", "assistant"]
    assert result.messages[2]["content"] == "5"


async def test_a_tool_runs_while_the_model_writes_the_next_call(server):
    async with AsyncClient(server.url) as client:
        events = [event async for event in Agent(client, [add]).run_stream("two please")]
    first_result = events.index(ToolResult(0, events[1].id, "add", "2", is_error=False))
    second_end = next(i for i, event in enumerate(events) if isinstance(event, ToolCallEnd) and event.index == 1)
    assert first_result < second_end < next(i for i, event in enumerate(events) if isinstance(event, TurnDone))


async def test_calls_that_can_not_be_run_are_told_and_the_conversation_is_accepted(client):
    result = await Agent(client, [add]).run("missing please")
    assert "there is no tool 'missing'" in result.messages[2]["content"]
    assert result.content == "Sorry."


async def test_a_call_cut_by_the_limit_of_tokens_is_not_run(server):
    async with AsyncClient(server.url) as client:
        result = await Agent(client, [add]).run("cut please")
    assert "truncated" in result.messages[2]["content"]
    assert result.content == "Sorry."


async def test_models_are_listed(client):
    assert await client.models() == ["script"]


@pytest.mark.parametrize(
    ("fields", "kind", "param"),
    [
        ({"model": "no-such-model"}, NotFoundError, "model"),
        ({"max_tokens": -1}, InvalidRequestError, "max_tokens"),
        ({"temperature": "hot"}, InvalidRequestError, "temperature"),
        ({"extra": {"messages": []}}, InvalidRequestError, "messages"),
    ],
)
async def test_a_bad_request_raises_with_the_fields_name(client, fields, kind, param):
    with pytest.raises(kind) as caught:
        await client.complete("hello", **fields)
    assert caught.value.param == param
    assert not caught.value.retryable
    assert (await client.complete("hello")).content == "Hello there."


@pytest.mark.parametrize("transport", ["websocket", "sse"])
async def test_a_key_is_asked_for(tmp_path, transport):
    with ScriptedServer(tmp_path, SCRIPT, "--api-key", "secret") as server:
        async with AsyncClient(server.url, api_key="wrong", transport=transport) as client:
            with pytest.raises(AuthenticationError) as caught:
                await client.complete("hello")
            assert caught.value.status == 401
        async with AsyncClient(server.url, api_key="secret", transport=transport) as client:
            assert (await client.complete("hello")).content == "Hello there."


@pytest.mark.parametrize("transport", ["websocket", "sse"])
async def test_a_server_killed_amid_a_turn_raises_and_its_successor_is_found(tmp_path, transport):
    with ScriptedServer(tmp_path, SCRIPT) as server:
        async with AsyncClient(server.url, transport=transport) as client:
            async with client.stream("long please") as turn:
                await anext(turn)
                server.kill()
                with pytest.raises(ConnectionLost):
                    await turn.final()
            with ScriptedServer(tmp_path, SCRIPT, port=server.port):
                assert (await client.complete("hello")).content == "Hello there."


async def test_a_server_that_drains_ends_turns_with_an_error(tmp_path):
    with ScriptedServer(tmp_path, SCRIPT) as server:
        async with AsyncClient(server.url) as client, client.stream("long please") as turn:
            await anext(turn)
            server.process.terminate()
            with pytest.raises((ConnectionLost, ServerError)):
                await turn.final()


def test_the_blocking_client_does_the_same(server):
    with Client(server.url) as client:
        assert client.complete("hello").content == "Hello there."
        assert SyncAgent(client, [add]).run("add please").content == "The sum is 5."
        with client.stream("long please") as turn:
            next(iter(turn))
        server.wait_until_idle()


@pytest.mark.parametrize("command", [["-m", "gateway.cli", "chat"], ["-m", "headrace.chat"]])
def test_the_terminal_chat_talks_to_it(server, command):
    finished = subprocess.run(
        [sys.executable, *command, "--url", server.url],
        input="hello\n/quit\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert "Hello there.\n" in finished.stdout
    assert finished.stderr == ""
