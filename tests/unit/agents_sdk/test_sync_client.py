"""The blocking client and agent against the fake server."""

import asyncio
import contextlib
import signal
import threading

import pytest
from headrace import (
    AgentDone,
    AsyncClient,
    AuthenticationError,
    Client,
    ContentDelta,
    MaxTurnsExceeded,
    SyncAgent,
    ToolResult,
    TurnDone,
    tool,
)
from headrace.loop_thread import LoopThread

from tests.testkit.sdk_server import Wait, call, content, done, echo

NEVER = Wait(threading.Event())


@tool
def add(a: int, b: int) -> int:
    return a + b


def test_a_turn_is_streamed(server, transport):
    with Client(server.url, transport=transport) as client, client.stream("hi") as turn:
        events = list(turn)
        assert turn.final().content == "echo: hi"
    assert [event.text for event in events if isinstance(event, ContentDelta)] == ["echo: ", "hi"]
    assert isinstance(events[-1], TurnDone)


def test_a_turn_is_completed_and_models_are_listed(server, transport):
    with Client(server.url, transport=transport) as client:
        assert client.complete("hi").content == "echo: hi"
        assert client.models() == ["first-model", "second-model"]


def test_leaving_early_cancels_the_turn(server, transport):
    server.respond = lambda _: [*content("a"), NEVER]
    with Client(server.url, transport=transport) as client:
        with client.stream("hi") as turn:
            for event in turn:
                if isinstance(event, ContentDelta):
                    break
        server.wait_until(lambda: len(server.cancelled) == 1)


def test_another_thread_may_cancel_a_turn(server, transport):
    server.respond = lambda _: [*content("a"), NEVER]
    with Client(server.url, transport=transport) as client, client.stream("hi") as turn:
        threading.Timer(0.05, turn.cancel).start()
        assert list(turn)[-1].finish_reason == "cancelled"


def test_threads_may_share_a_client(server, transport):
    contents = {}
    with Client(server.url, transport=transport) as client:

        def ask(number: int) -> None:
            contents[number] = client.complete(f"{number}").content

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert contents == {number: f"echo: {number}" for number in range(16)}


def test_errors_are_those_of_the_asynchronous_client(server):
    server.api_key = "right"
    with Client(server.url) as client, pytest.raises(AuthenticationError):
        client.complete("hi")


@pytest.mark.parametrize("use", ["complete", "stream", "agent"])
def test_an_interrupt_cancels_the_turn(server, transport, use):
    server.respond = lambda _: [*content("a"), NEVER]
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        server.wait_until(lambda: server.num_turns_running == 1)
        signal.pthread_kill(main, signal.SIGINT)

    with Client(server.url, transport=transport) as client:
        runs = {
            "complete": lambda: client.complete("hi"),
            "stream": lambda: read_all(client),
            "agent": lambda: SyncAgent(client).run("hi"),
        }
        interrupter = threading.Thread(target=interrupt)
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            runs[use]()
        interrupter.join()
        server.wait_until(lambda: len(server.cancelled) == 1)


def test_an_interrupt_at_the_moment_of_the_start_cancels_the_turn(server, transport, monkeypatch):
    server.respond = lambda _: [*content("a"), NEVER]
    with Client(server.url, transport=transport) as client:
        run = client.loop.run

        def run_and_be_interrupted(coroutine):
            monkeypatch.setattr(client.loop, "run", run)
            run(coroutine)
            raise KeyboardInterrupt

        monkeypatch.setattr(client.loop, "run", run_and_be_interrupted)
        with pytest.raises(KeyboardInterrupt), client.stream("hi"):
            pass
        server.wait_until(lambda: len(server.cancelled) == 1)


def read_all(client):
    with client.stream("hi") as turn:
        list(turn)


def test_a_closed_client_says_so(server):
    client = Client(server.url)
    client.close()
    client.close()
    with pytest.raises(RuntimeError, match="closed"):
        client.complete("hi")


def test_a_client_that_is_dropped_ends_its_thread(server):
    client = Client(server.url)
    client.complete("hi")
    thread = next(thread for thread in threading.enumerate() if thread.name == "headrace")
    del client
    thread.join(5)
    assert not thread.is_alive()


def test_a_bad_url_leaves_no_thread_behind(server):
    before = threading.active_count()
    with pytest.raises(Exception, match="ftp"):
        Client("ftp://example.org")
    assert threading.active_count() == before


def test_an_agent_runs_the_loop(server, transport):
    turns = [[*call(0, "add", '{"a": 2, "b": 3}'), *done("tool_calls")], [*content("5"), *done()]]
    server.respond = lambda _: turns.pop(0)
    with Client(server.url, transport=transport) as client:
        assert SyncAgent(client, [add]).run("go").content == "5"


def test_an_agents_events_can_be_read_and_left(server, transport):
    server.respond = lambda request: (
        [*call(0, "add", '{"a": 2, "b": 3}'), *done("tool_calls")]
        if request["messages"][-1]["role"] == "user"
        else [*content("5"), *done()]
    )
    with Client(server.url, transport=transport) as client:
        agent = SyncAgent(client, [add])
        events = list(agent.run_stream("go"))
        assert ToolResult(0, "call_0", "add", "5", is_error=False) in events
        assert isinstance(events[-1], AgentDone)

        server.respond = lambda _: [*content("a"), NEVER]
        with contextlib.closing(agent.run_stream("go")) as left:
            next(left)
        server.wait_until(lambda: len(server.cancelled) == 1)


def test_an_agents_errors_come_through(server):
    server.respond = lambda _: [*call(0, "add", '{"a": 2, "b": 3}'), *done("tool_calls")]
    with Client(server.url) as client:
        with pytest.raises(MaxTurnsExceeded):
            list(SyncAgent(client, [add], max_turns=1).run_stream("go"))
        with pytest.raises(TypeError, match="AsyncClient"):
            SyncAgent(AsyncClient(server.url))


def test_a_tool_that_would_block_its_own_client_is_told_and_a_plain_one_may(server):
    with Client(server.url) as client:

        @tool
        async def blocks() -> str:
            return client.complete("inner").content

        @tool
        def asks() -> str:
            return client.complete("inner").content

        turns = [[*call(0, "blocks", "{}"), *call(1, "asks", "{}"), *done("tool_calls")], [*content("x"), *done()]]
        server.respond = lambda request: (
            turns.pop(0) if request["messages"][-1]["content"] != "inner" else echo(request)
        )
        messages = SyncAgent(client, [blocks, asks]).run("go").messages
    assert "can't block" in messages[2]["content"]
    assert messages[3]["content"] == "echo: inner"


@pytest.mark.parametrize("is_on_its_way", [True, False])
def test_an_interrupt_as_a_coroutine_is_handed_over_ends_it(monkeypatch, is_on_its_way):
    loop = LoopThread()
    ends = []

    async def never() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ends.append(1)

    call_soon = loop._loop.call_soon_threadsafe

    def hand_over_and_be_interrupted(callback):
        monkeypatch.setattr(loop._loop, "call_soon_threadsafe", call_soon)
        if is_on_its_way:
            call_soon(callback)
        raise KeyboardInterrupt

    monkeypatch.setattr(loop._loop, "call_soon_threadsafe", hand_over_and_be_interrupted)
    with pytest.raises(KeyboardInterrupt):
        loop.run(never())
    loop.close()
    assert len(ends) <= is_on_its_way


def test_closing_the_loop_ends_what_waits_on_it():
    loop = LoopThread()
    timer = threading.Timer(0.05, loop.close)
    timer.start()
    with pytest.raises(RuntimeError, match="closed"):
        loop.run(asyncio.Event().wait())
    timer.join()
