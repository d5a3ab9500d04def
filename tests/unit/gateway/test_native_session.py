"""Sessions: the server keeps the conversation, and the next prompt is the last one, the raw output and what is new."""

from typing import Any

import pytest

from gateway.errors import Conflict, InvalidRequest, NotFound
from gateway.pieces import TextPiece
from gateway.scripted import Match, ScriptLine
from gateway.sessions import SessionStore
from gateway.types import ChatMessage, ChatTurn, Prepared, SamplingParams, TurnEvent
from inference.types import TokenChunk, TurnRequest
from stream_parser.events import ContentDelta
from tests.testkit.gateway_kit import (
    ByteTokenizer,
    FakeClock,
    FakeEngine,
    model_backend,
    running_gateway,
    scripted,
    token_chunks,
    weather_tool,
)
from tests.testkit.native_client import NativeClient, native_client

END = 257
RAW = '<think>hm</think>ok <tool_call>{"name":  "weather", "arguments": {"city":"Oslo"}}</tool_call>'


def replies(*texts: str) -> Any:
    waiting = list(texts)
    return lambda request: token_chunks(request, waiting.pop(0))


async def ask(client: NativeClient, turn: str, text: str, **fields: Any) -> dict[str, Any]:
    await client.create(turn, text, **fields)
    await client.ended(turn)
    return client.of(turn)[-1]


async def test_the_next_prompt_is_the_last_one_the_raw_output_and_the_new_messages():
    engine, tokenizer = FakeEngine(replies(RAW, "It rains.")), ByteTokenizer()
    async with running_gateway(model_backend(engine, tokenizer)) as gateway, native_client(gateway) as client:
        await ask(client, "a", "Weather?", session="s", tools=[weather_tool()])
        (start,) = [frame for frame in client.of("a") if frame["type"] == "tool_call.start"]
        result = {"role": "tool", "tool_call_id": start["id"], "content": "rain"}
        await client.create("b", session="s", messages=[result], **{"continue": True})
        await client.ended("b")

        first, second = engine.requests
        output = (*RAW.encode(), END)
        new = tokenizer.encode("\n<|im_start|>tool\nrain<|im_end|>\n<|im_start|>assistant\n")
        assert second.prompt_token_ids == (*first.prompt_token_ids, *output, *new)
        # The template saw the tools and the call again, for what it may say about the result.
        messages, tools, _ = tokenizer.rendered[-1]
        assert tools
        assert messages[-1]["name"] == "weather"


async def test_an_answer_that_was_cut_is_closed_as_the_template_does():
    def cut(request: TurnRequest) -> list[TokenChunk]:
        return [*token_chunks(request, "one tw")[:-2], TokenChunk(request.turn_id, 0, (ord("w"),), (), "length")]

    engine, tokenizer = FakeEngine(cut), ByteTokenizer()
    async with running_gateway(model_backend(engine, tokenizer)) as gateway, native_client(gateway) as client:
        await ask(client, "a", "Count", session="s")
        await ask(client, "b", "Go on", session="s", **{"continue": True})
        first, second = engine.requests
        new = tokenizer.encode("<|im_end|>\n<|im_start|>user\nGo on<|im_end|>\n<|im_start|>assistant\n")
        assert second.prompt_token_ids == (*first.prompt_token_ids, *b"one tw", *new)


async def test_a_template_that_hides_the_answer_is_rendered_anew(caplog):
    class Forgetful(ByteTokenizer):
        def render_chat(self, messages: Any, tools: Any = None, **variables: Any) -> str:
            return super().render_chat([m for m in messages if m["role"] != "assistant"], tools, **variables)

    engine, tokenizer = FakeEngine(replies("one", "two")), Forgetful()
    async with running_gateway(model_backend(engine, tokenizer)) as gateway, native_client(gateway) as client:
        await ask(client, "a", "A", session="s")
        await ask(client, "b", "B", session="s", **{"continue": True})
        text = "<|im_start|>user\nA<|im_end|>\n<|im_start|>user\nB<|im_end|>\n<|im_start|>assistant\n"
        assert engine.requests[1].prompt_token_ids == tuple(tokenizer.encode(text))
        assert "rendered anew" in caplog.text


async def test_all_but_the_new_messages_counts_as_cached_with_the_scripted_engine():
    lines = (ScriptLine("one two three", match=Match(contains="A")), ScriptLine("four"))
    async with running_gateway(scripted(*lines)) as gateway, native_client(gateway) as client:
        first = (await ask(client, "a", "A b c", session="s"))["usage"]
        second = (await ask(client, "b", "d e", session="s", **{"continue": True}))["usage"]
        kept = first["prompt_tokens"] + first["completion_tokens"]
        assert second["prompt_tokens_details"]["cached_tokens"] == kept == 6
        assert second["prompt_tokens"] == kept + 2


async def test_a_session_that_is_unknown_or_somebody_elses_is_an_error_of_the_turn():
    keys = ("key-a", "key-b")
    async with running_gateway(scripted(ScriptLine("ok", repeat=True)), api_keys=keys) as gateway:
        async with native_client(gateway, headers={"Authorization": "Bearer key-a"}) as client:
            error = (await ask(client, "t", "x", session="s", **{"continue": True}))["error"]
            assert (error["status"], error["code"], error["param"]) == (404, "session_not_found", "session")
            await ask(client, "t", "x", session="s")
            assert (await ask(client, "t", "x", session="s", **{"continue": True}))["type"] == "turn.done"
        async with native_client(gateway, headers={"Authorization": "Bearer key-b"}) as client:
            error = (await ask(client, "t", "x", session="s", **{"continue": True}))["error"]
            assert error["code"] == "session_not_found"


async def test_a_session_outlives_its_socket_and_can_be_begun_anew():
    lines = (ScriptLine("with history", match=Match(contains="first")), ScriptLine("again"), ScriptLine("alone"))
    engine = scripted(ScriptLine("hi"), *lines)
    async with running_gateway(engine) as gateway:
        async with native_client(gateway) as client:
            await ask(client, "a", "first", session="s")
        async with native_client(gateway) as client:
            await ask(client, "b", "second", session="s", **{"continue": True})
            assert client.text("b") == "with history"
            usage = (await ask(client, "c", "third", session="s"))["usage"]
            assert usage["prompt_tokens"] == 1


async def test_turns_of_a_session_follow_each_other_in_a_lane_and_clash_without_one():
    lines = (ScriptLine("one two three four", delay_s=0.02), ScriptLine("five", repeat=True))
    async with running_gateway(scripted(*lines)) as gateway, native_client(gateway) as client:
        await client.create("a", session="s", lane="l")
        await client.create("b", session="s", lane="l", **{"continue": True})
        await client.create("clash", session="s", **{"continue": True})
        error = (await client.until("turn.error", "clash"))["error"]
        assert (error["status"], error["code"]) == (409, "session_busy")
        await client.ended("a", "b")
        assert client.text("b") == "five"


async def test_a_failed_turn_leaves_the_session_as_it_was_and_a_cancelled_one_counts():
    lines = (ScriptLine("hi"), ScriptLine("one two three", delay_s=0.05), ScriptLine("end", match=Match(contains="C")))
    async with running_gateway(scripted(*lines)) as gateway, native_client(gateway) as client:
        await ask(client, "a", "A", session="s")
        await client.create("b", "B", session="s", **{"continue": True})
        await client.until("content.delta", "b")
        await client.send({"type": "turn.cancel", "turn": "b"})
        await client.ended("b")
        # The script has no line for this one.
        assert (await ask(client, "x", "X", session="s", **{"continue": True}))["type"] == "turn.error"
        usage = (await ask(client, "c", "C", session="s", **{"continue": True}))["usage"]
        # A, hi, B, one, C.
        assert usage["prompt_tokens"] == 5


@pytest.mark.parametrize(
    ("fields", "param"),
    [({"tools": [weather_tool("other")]}, "tools"), ({"model": "alias"}, "model")],
)
async def test_what_would_change_the_prompt_is_refused(fields, param):
    backend = scripted(ScriptLine("ok", repeat=True))
    async with running_gateway(backend, served_names=("m", "alias")) as gateway, native_client(gateway) as client:
        await ask(client, "a", "x", session="s", tools=[weather_tool()], model="m")
        error = (await ask(client, "b", "x", session="s", **{"continue": True}, **fields))["error"]
        assert (error["status"], error["param"]) == (400, param)
        ok = await ask(client, "c", "x", session="s", tools=[weather_tool()], **{"continue": True})
        assert ok["type"] == "turn.done"


async def test_continue_needs_a_session():
    async with running_gateway(scripted(ScriptLine("ok"))) as gateway, native_client(gateway) as client:
        error = (await ask(client, "t", "x", **{"continue": True}))["error"]
        assert (error["code"], error["param"]) == ("missing_required_parameter", "session")


# The store by itself


def turn(text: str) -> ChatTurn:
    return ChatTurn(None, (ChatMessage("user", text),), SamplingParams())


def run(store: SessionStore, session: str, text: str, *, is_continued: bool = False) -> ChatTurn:
    whole, recorder = store.begin("me", session, turn(text), is_continued)
    prompt = Prepared("t", SamplingParams(), 1, 1, "", None, "", None, (), prompt_ids=(1, 2))
    recorder.prepared(prompt)
    recorder.piece(TextPiece(0, "x", (3,), output_ids=(3, 4)))
    recorder.item(TurnEvent(0, ContentDelta("x")))
    recorder.done()
    return whole


def test_sessions_age_and_make_room():
    clock = FakeClock()
    store = SessionStore(2, 10_000, 60.0, clock)
    for name in ("a", "b", "c"):
        run(store, name, "hello")
        clock.now += 10
    assert len(store) == 2
    with pytest.raises(NotFound):
        store.begin("me", "a", turn("x"), True)
    assert len(run(store, "b", "more", is_continued=True).messages) == 3
    clock.now += 51
    with pytest.raises(NotFound):
        store.begin("me", "c", turn("x"), True)
    clock.now += 10
    with pytest.raises(NotFound):
        store.begin("me", "b", turn("x"), True)
    assert len(store) == 0


def test_large_sessions_push_others_out_and_one_too_large_is_not_kept():
    store = SessionStore(100, 1000, 60.0, FakeClock())
    run(store, "a", "x" * 400)
    run(store, "b", "x" * 400)
    run(store, "c", "x" * 400)
    assert len(store) == 2
    run(store, "d", "x" * 2000)
    assert len(store) == 0


def test_a_continuation_says_how_far_its_tokens_reach():
    store = SessionStore(2, 10_000, 60.0, FakeClock())
    run(store, "a", "hello")
    whole, recorder = store.begin("me", "a", turn("more"), True)
    past = whole.continues
    assert past is not None
    assert (past.token_ids, past.num_messages, past.is_closed) == ((1, 2, 3, 4), 2, True)
    with pytest.raises(Conflict):
        store.begin("me", "a", turn("x"), True)
    recorder.failed()
    store.begin("me", "a", turn("x"), True)


def test_a_turn_that_ended_before_its_prompt_was_made_changes_nothing():
    store = SessionStore(2, 10_000, 60.0, FakeClock())
    _, recorder = store.begin("me", "a", turn("x"), False)
    recorder.done()
    assert len(store) == 0
    run(store, "b", "x")
    with pytest.raises(InvalidRequest):
        store.begin("me", "b", ChatTurn("other", turn("x").messages, SamplingParams()), True)
