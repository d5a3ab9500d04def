"""Responses on a socket, over a real server: lanes, what a connection remembers, limits, ends of every kind."""

import asyncio
import json
import re
import time
from contextlib import asynccontextmanager

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from gateway.app import GatewayApp
from gateway.peer import BarePeer
from gateway.responses_websocket import ResponsesConnection
from gateway.scripted import Match, ScriptLine
from inference.errors import QueueFull
from inference.types import TokenChunk
from tests.testkit.gateway_kit import (
    ByteTokenizer,
    FakeEngine,
    gateway_config,
    model_backend,
    running_gateway,
    scripted,
    token_chunks,
)
from tests.testkit.responses_order import TERMINAL, check_order

_QUESTION = re.compile(r"user\n(.*)<")
ENDS = (*TERMINAL, "error", "response.steer.failed")


class Client:
    """Sends creates and reads the answers of each lane apart."""

    def __init__(self, socket):
        self.socket = socket
        self.events = {}

    async def send(self, **body):
        await self.socket.send(json.dumps({"type": "response.create", **body}))

    async def recv(self):
        event = json.loads(await asyncio.wait_for(self.socket.recv(), 10))
        self.events.setdefault(event.get("stream_id"), []).append(event)
        return event

    async def answer(self, stream_id=None):
        """The events of the lane's next answer, which may lie here already."""
        while True:
            events = self.events.setdefault(stream_id, [])
            for i, event in enumerate(events):
                if event["type"] in ENDS:
                    self.events[stream_id] = events[i + 1 :]
                    return events[: i + 1]
            await self.recv()

    async def response(self, stream_id=None, **body):
        lane = {} if stream_id is None else {"stream_id": stream_id}
        await self.send(**lane, **body)
        return check_order(await self.answer(stream_id))

    async def error(self, stream_id=None):
        [event] = await self.answer(stream_id)
        assert event["type"] == "error", event
        assert event["error"]["code"]
        return event


def open_socket(gateway):
    # A client that pauses reading while the test looks elsewhere would not see the Close frame either.
    return connect(f"ws://127.0.0.1:{gateway.port}/v1/responses", proxy=None, max_queue=None)


@asynccontextmanager
async def connected(backend, **changes):
    async with running_gateway(backend, **changes) as gateway:
        async with open_socket(gateway) as socket:
            yield gateway, Client(socket)
        await gateway.settled()


def talking(text="Hello."):
    return scripted(ScriptLine(text, repeat=True))


def remembering():
    """An engine that says yes, and the prompts that it has seen."""
    tokenizer = ByteTokenizer()
    return model_backend(FakeEngine(lambda request: token_chunks(request, "Yes.")), tokenizer), tokenizer


def last_prompt(tokenizer):
    return [message["content"] for message in tokenizer.rendered[-1][0]]


async def until(condition):
    while not condition():
        await asyncio.sleep(0.002)


async def live_tokens(engine, number):
    """The engine's turns, by what their prompts say."""
    await until(lambda: len(engine.live) == number)
    return {_QUESTION.findall(bytes(t.request.prompt_token_ids).decode())[-1]: t for t in engine.live.values()}


def finish(tokens, text="Done."):
    for chunk in token_chunks(tokens.request, text):
        tokens.push(chunk)


# State


async def test_a_conversation_that_is_not_stored_lives_in_the_connection():
    backend, tokenizer = remembering()
    async with connected(backend) as (gateway, client):
        prepared = await client.response(input="A", store=False, generate=False)
        assert prepared["output"] == []
        first = await client.response(input="B", store=False, previous_response_id=prepared["id"])
        await client.response(input="C", store=False, previous_response_id=first["id"])
        assert last_prompt(tokenizer) == ["A", "B", "Yes.", "C"]
        assert len(gateway.app.responses) == 0
        await client.send(input="D", previous_response_id=first["id"])
        assert (await client.error())["error"]["code"] == "previous_response_not_found", "only the latest is kept"


async def test_a_lane_goes_on_from_another_lanes_response():
    backend, tokenizer = remembering()
    async with connected(backend) as (_, client):
        root = await client.response("main", input="A", store=False)
        for lane in ("left", "right", None):
            await client.response(lane, input=f"to {lane}", store=False, previous_response_id=root["id"])
            assert last_prompt(tokenizer) == ["A", "Yes.", f"to {lane}"]


async def test_stored_responses_are_shared_with_http_and_other_connections():
    backend, tokenizer = remembering()
    async with connected(backend) as (gateway, client):
        first = await client.response(input="A")
        async with httpx.AsyncClient(base_url=gateway.url, trust_env=False) as http:
            assert (await http.get(f"/v1/responses/{first['id']}")).json() == first
            second = (await http.post("/v1/responses", json={"input": "B", "previous_response_id": first["id"]})).json()
        async with open_socket(gateway) as socket:
            await Client(socket).response(input="C", previous_response_id=second["id"])
        assert last_prompt(tokenizer) == ["A", "Yes.", "B", "Yes.", "C"]


async def test_a_cut_response_is_no_parent_and_leaves_the_one_before():
    async with connected(talking("one two three")) as (_, client):
        first = await client.response(input="A", store=False)
        for store in (False, True):
            cut = await client.response(input="B", store=store, max_output_tokens=1, previous_response_id=first["id"])
            assert cut["status"] == "incomplete"
            other = Client(client.socket)
            await other.send(input="C", stream_id=f"x{store}", previous_response_id=cut["id"])
            assert (await other.error(f"x{store}"))["error"]["code"] == "previous_response_not_found"
        await client.response(input="D", store=False, previous_response_id=first["id"])


async def test_an_error_makes_the_lane_forget():
    async with connected(talking()) as (_, client):
        first = await client.response("a", input="A", store=False)
        kept = await client.response("b", input="A", store=False)
        await client.send(stream_id="a", input="B", temperature=9, previous_response_id=first["id"])
        assert (await client.error("a"))["status"] == 400
        await client.send(stream_id="a", input="B", previous_response_id=first["id"])
        assert (await client.error("a"))["error"]["code"] == "previous_response_not_found"
        await client.response("b", input="B", previous_response_id=kept["id"])


async def test_a_compaction_replaces_what_it_stands_for():
    backend, tokenizer = remembering()
    async with connected(backend) as (_, client):
        first = await client.response(input="A", store=False)
        trigger = [{"type": "compaction_trigger"}]
        compacted = await client.response(input=trigger, store=False, previous_response_id=first["id"])
        assert [item["type"] for item in compacted["output"]] == ["compaction"]
        await client.response(input="B", store=False, previous_response_id=compacted["id"])
        assert last_prompt(tokenizer) == ["A", "Yes.", "B"]


async def test_preparing_does_not_fail_on_what_only_an_answer_would_need():
    class Strict(ByteTokenizer):
        def render_chat(self, messages, tools=None, **more):
            if messages[-1]["role"] != "user":
                raise LookupError("no user message")
            return super().render_chat(messages, tools, **more)

    engine = FakeEngine(lambda request: token_chunks(request, "Yes."))
    async with connected(model_backend(engine, Strict())) as (_, client):
        developer = [{"role": "developer", "content": "A"}]
        prepared = await client.response(input=developer, generate=False, store=False)
        assert (await client.response(input="B", previous_response_id=prepared["id"]))["status"] == "completed"
        await client.send(input=developer)
        assert (await client.error())["status"] == 400


# Lanes


async def test_a_lane_is_a_queue_and_lanes_run_side_by_side():
    engine = FakeEngine()
    async with connected(model_backend(engine)) as (_, client):
        for lane, text in (("a", "1"), ("a", "2"), ("b", "3")):
            await client.send(stream_id=lane, input=text)
        tokens = await live_tokens(engine, 2)
        assert set(tokens) == {"1", "3"}
        finish(tokens["3"], "three")
        assert check_order(await client.answer("b"))["output"][0]["content"][0]["text"] == "three"
        finish(tokens["1"], "one")
        assert check_order(await client.answer("a"))["output"][0]["content"][0]["text"] == "one"
        finish((await live_tokens(engine, 1))["2"], "two")
        assert check_order(await client.answer("a"))["output"][0]["content"][0]["text"] == "two"


async def test_sixteen_run_and_the_rest_wait_for_a_place():
    engine = FakeEngine()
    async with connected(model_backend(engine)) as (_, client):
        for i in range(20):
            await client.send(stream_id=f"lane-{i}", input="x")
        await until(lambda: len(engine.live) == 16)
        await asyncio.sleep(0.02)
        assert len(engine.requests) == 16
        finish(next(iter(engine.live.values())))
        await until(lambda: len(engine.requests) == 17)
        finished = set()
        while len(finished) < 19:
            for turn_id, tokens in tuple(engine.live.items()):
                if turn_id not in finished:
                    finished.add(turn_id)
                    finish(tokens)
            await asyncio.sleep(0.002)
        for i in range(20):
            check_order(await client.answer(f"lane-{i}"))


async def test_a_connection_has_thirty_two_named_lanes_for_good():
    async with connected(talking()) as (_, client):
        for i in range(32):
            await client.response(f"lane-{i}", input="x")
        await client.send(stream_id="one-more", input="x")
        assert (await client.error("one-more"))["error"]["param"] == "stream_id"
        await client.response("lane-0", input="x")
        await client.response(input="the default lane has no name")


async def test_errors_keep_their_place_in_the_lane():
    engine = FakeEngine()
    async with connected(model_backend(engine)) as (_, client):
        await client.send(input="1")
        for _ in range(200):
            await client.send(input=[{"type": "telepathy"}])
        await client.send(input="2")
        finish((await live_tokens(engine, 1))["1"])
        check_order(await client.answer())
        for _ in range(200):
            assert (await client.error())["error"]["param"] == "input[0].type"
        finish((await live_tokens(engine, 1))["2"])
        check_order(await client.answer())


async def test_more_responses_than_a_connection_may_hold_are_refused_in_the_order_of_their_lane():
    engine = FakeEngine()
    async with connected(model_backend(engine), max_connection_turns=2) as (_, client):
        for text in ("1", "2", "3"):
            await client.send(stream_id="l", input=text)
        await client.send(stream_id="idle", input="4")
        refused = await client.error("idle")
        assert (refused["status"], refused["error"]["code"]) == (429, "rate_limit_exceeded")
        assert refused["error"]["headers"]["retry-after"] == "1"
        for text in ("1", "2"):
            finish((await live_tokens(engine, 1))[text])
            check_order(await client.answer("l"))
        assert (await client.error("l"))["status"] == 429
        # What was refused counts no more.
        await client.send(stream_id="l", input="5")
        finish((await live_tokens(engine, 1))["5"])
        check_order(await client.answer("l"))


async def test_large_requests_do_not_pile_up_while_they_wait():
    engine = FakeEngine()
    async with connected(model_backend(engine), max_body_bytes=1000) as (_, client):
        for i in range(6):
            await client.send(stream_id="l", input=f"{i}" * 800)
        for i in range(4):
            finish((await live_tokens(engine, 1))[f"{i}" * 800])
            check_order(await client.answer("l"))
        assert [(await client.error("l"))["status"] for _ in range(2)] == [429, 429]


async def test_a_lane_that_is_refused_remembers_what_it_had():
    engine = FakeEngine()
    async with connected(model_backend(engine), max_connection_turns=1) as (_, client):
        await client.send(input="1", store=False)
        await client.send(input="2", store=False)
        finish((await live_tokens(engine, 1))["1"])
        first = check_order(await client.answer())
        assert (await client.error())["status"] == 429
        await client.send(input="2", store=False, previous_response_id=first["id"])
        finish((await live_tokens(engine, 1))["2"])
        check_order(await client.answer())


async def test_lanes_forget_the_oldest_when_they_remember_too_much():
    async with connected(talking(), max_body_bytes=1000) as (_, client):
        responses = [await client.response(f"l{i}", input="x" * 800, store=False) for i in range(12)]
        await client.send(stream_id="l0", input="y", previous_response_id=responses[0]["id"])
        assert (await client.error("l0"))["error"]["code"] == "previous_response_not_found"
        await client.response("l0", input="y", store=False, previous_response_id=responses[11]["id"])


# Frames


async def test_what_cannot_be_read_is_answered_in_the_order_of_the_default_lane():
    engine = FakeEngine()
    async with connected(model_backend(engine)) as (_, client):
        await client.send(input="1")
        tokens = await live_tokens(engine, 1)
        await client.socket.send("{")
        await client.send(stream_id="no lane!", input="2")
        await client.socket.send(json.dumps({"type": "response.steer", "previous_response_id": "x", "input": "y"}))
        before = await client.answer()
        assert before[-1]["type"] == "response.steer.failed"
        assert "error" not in {event["type"] for event in before}
        finish(tokens["1"])
        check_order([*before[:-1], *await client.answer()])
        assert [(await client.error())["error"]["param"] for _ in range(2)] == [None, "stream_id"]


async def test_a_frame_that_is_too_large_is_refused_as_over_http_and_in_its_lane():
    engine = FakeEngine()
    async with connected(model_backend(engine), max_body_bytes=1000) as (_, client):
        await client.send(stream_id="l", input="1")
        await client.send(stream_id="l", input="x" * 1001)
        finish((await live_tokens(engine, 1))["1"])
        check_order(await client.answer("l"))
        refused = await client.error("l")
        assert (refused["status"], refused["error"]["code"]) == (413, "request_too_large")


async def test_a_frame_that_is_none_gets_an_error_and_the_connection_goes_on():
    async with connected(talking(), max_body_bytes=1000) as (_, client):
        for frame in ("no json", "[]", "{}", '{"type":"response.cancel"}', b"\xff\xfe"):
            await client.socket.send(frame)
            assert (await client.error())["status"] == 400
            await client.response(input="Hi")
        # Binary frames are read as well.
        await client.socket.send(b'{"type":"response.create","input":"Hi"}')
        check_order(await client.answer())
        await client.send(input="x" * 1000)
        assert (await client.error())["error"]["code"] == "request_too_large"
        await client.response(input="Hi")


async def test_steering_is_refused_by_its_own_event():
    async with connected(talking()) as (_, client):
        steer = {"type": "response.steer", "previous_response_id": "resp_1", "input": "left"}
        await client.socket.send(json.dumps(steer))
        [event] = await client.answer()
        assert event["error"]["code"] == "steering_not_supported"


async def test_keepalives_come_while_the_model_is_silent():
    engine = FakeEngine()
    async with connected(model_backend(engine), keepalive_s=0.02) as (_, client):
        await client.send(stream_id="k", input="1")
        kinds = []
        while kinds.count("keepalive") < 3:
            kinds.append((await client.recv())["type"])
        assert kinds[:2] == ["response.created", "response.in_progress"]
        finish((await live_tokens(engine, 1))["1"])
        events = await client.answer("k")
        check_order(events)
        assert {event["stream_id"] for event in events} == {"k"}


async def test_keepalives_come_while_a_response_waits_for_its_place():
    """In its own lane, with the numbers before those of its events, which go on from there."""
    engine = FakeEngine()
    async with connected(model_backend(engine), keepalive_s=0.02) as (_, client):
        for i in range(16):
            await client.send(stream_id=f"l{i}", input=f"{i}")
        await live_tokens(engine, 16)
        await client.send(stream_id="late", input="late")
        await client.send(stream_id="late", input="later")
        late = client.events.setdefault("late", [])
        while len(late) < 3:
            await client.recv()
        assert [(event["type"], event["sequence_number"]) for event in late] == [("keepalive", i) for i in range(3)]
        assert len(engine.requests) == 16
        # A running one of another lane makes room.
        finish((await live_tokens(engine, 16))["0"])
        await until(lambda: len(engine.requests) == 17)
        finish((await live_tokens(engine, 16))["late"])
        events = await client.answer("late")
        check_order(events)
        assert [event["type"] for event in events[:3]] == ["keepalive"] * 3
        await until(lambda: len(engine.requests) == 18)
        finish((await live_tokens(engine, 16))["later"])
        check_order(await client.answer("late"))
        for i, tokens in enumerate(tuple(engine.live.values()), 1):
            finish(tokens)
            check_order(await client.answer(f"l{i}"))


async def test_a_lane_that_was_refused_or_answered_at_once_sends_no_keepalive_after_it():
    async with connected(talking(), keepalive_s=0.01) as (_, client):
        await client.send(input=[{"type": "telepathy"}])
        await client.error()
        await client.response(input="Hi", generate=False)
        await client.response(input="Hi")
        await asyncio.sleep(0.05)
        await client.socket.send("{}")
        assert (await client.recv())["type"] == "error"


# Ends


async def test_an_engine_that_dies_fails_what_runs_and_the_connection_goes_on():
    engine = FakeEngine()
    async with connected(model_backend(engine)) as (_, client):
        for lane in ("a", "b"):
            await client.send(stream_id=lane, input="1", store=False)
        await until(lambda: len(engine.live) == 2)
        for tokens in engine.live.values():
            tokens.push(TokenChunk(tokens.request.turn_id, 0, tuple(b"Half")))
        engine.die()
        for lane in ("a", "b"):
            failed = check_order(await client.answer(lane))
            assert (failed["status"], failed["error"]["code"]) == ("failed", "server_error")
        await client.send(stream_id="a", input="2")
        assert (await client.error("a"))["status"] == 503
        engine.state = "ready"
        await client.send(stream_id="a", input="3")
        finish((await live_tokens(engine, 1))["3"])
        check_order(await client.answer("a"))


async def test_refusals_of_the_engine_are_error_frames_with_a_status():
    engine = FakeEngine()
    engine.refusal = QueueFull(10, 10, 1.5)
    async with connected(model_backend(engine)) as (_, client):
        await client.send(input="Hi")
        refused = await client.error()
        assert (refused["status"], refused["error"]["headers"]["retry-after-ms"]) == (429, "1500")


async def test_closing_the_socket_cancels_everything():
    engine = FakeEngine()
    async with running_gateway(model_backend(engine)) as gateway:
        for is_clean in (True, False):
            socket = await open_socket(gateway)
            for i in range(20):
                await Client(socket).send(stream_id=f"l{i % 10}", input="1")
            await until(lambda: len(engine.live) == 10)
            if is_clean:
                await socket.close()
            else:
                socket.transport.abort()
            await until(lambda: not engine.live)
            await gateway.settled()
        assert len(engine.requests) == 20, "what waited in a lane never ran"


async def test_an_old_connection_takes_no_new_responses_and_says_so_when_nothing_runs():
    engine = FakeEngine()
    async with connected(model_backend(engine), responses_socket_age_s=0.2, keepalive_s=0.04) as (_, client):
        await client.send(stream_id="a", input="1")
        tokens = await live_tokens(engine, 1)
        await asyncio.sleep(0.25)
        for lane in ("a", "b", "c"):
            await client.send(stream_id=lane, input="2")
        while not {"b", "c"} <= client.events.keys():
            await client.recv()
        assert {event["type"] for lane in ("b", "c") for event in client.events[lane]} == {"keepalive"}
        finish(tokens["1"])
        check_order(await client.answer("a"))
        for lane in ("a", "b", "c"):
            *waiting, error = await client.answer(lane)
            assert {event["type"] for event in waiting} <= {"keepalive"}
            assert (error["type"], error["error"]["code"]) == ("error", "websocket_connection_limit_reached")
        assert len(engine.requests) == 1


async def test_what_waits_when_the_server_stops_is_refused_when_nothing_runs():
    engine = FakeEngine()
    async with connected(model_backend(engine), drain_s=5) as (gateway, client):
        for lane, text in (("a", "1"), ("a", "2"), ("b", "3"), ("c", "4"), ("c", "5")):
            await client.send(stream_id=lane, input=text)
        tokens = await live_tokens(engine, 3)
        gateway.server.should_exit = True
        await until(lambda: gateway.app.admission.is_draining)
        await client.send(stream_id="b", input="6")
        await client.send(stream_id="d", input="7")
        for text in ("1", "3", "4"):
            finish(tokens[text])
        order = []
        while len(order) < 7:
            event = await client.recv()
            if event["type"] in ENDS:
                order.append((event["type"], event["stream_id"]))
        assert order[:3] == [("response.completed", lane) for lane in "abc"]
        assert sorted(order[3:]) == [("error", lane) for lane in "abcd"]


async def test_a_server_that_shuts_down_fails_what_runs_and_sends_clients_elsewhere():
    engine = FakeEngine()
    async with running_gateway(model_backend(engine), drain_s=0.3) as gateway:
        socket = await open_socket(gateway)
        client = Client(socket)
        await client.send(stream_id="a", input="1")
        await client.send(stream_id="a", input="2")
        await until(lambda: engine.live)
        gateway.server.should_exit = True
        await until(lambda: gateway.app.admission.is_draining)
        await client.send(stream_id="b", input="3")
        assert (await client.error("b"))["error"]["code"] == "websocket_connection_limit_reached"
        assert check_order(await client.answer("a"))["status"] == "failed"
        assert (await client.error("a"))["error"]["code"] == "websocket_connection_limit_reached"
        with pytest.raises(ConnectionClosed):
            await socket.recv()
        assert socket.close_code == 1012


async def test_a_response_that_has_not_begun_when_the_server_stops_is_sent_elsewhere():
    class Slow(ByteTokenizer):
        def render_chat(self, messages, tools=None, **more):
            # Long prompts are rendered in a thread.
            time.sleep(0.3)
            return super().render_chat(messages, tools, **more)

    async with running_gateway(model_backend(FakeEngine(), Slow()), drain_s=0.05) as gateway:
        client = Client(await open_socket(gateway))
        await client.send(input="x" * 5000)
        await until(lambda: gateway.app.admission.num_live)
        gateway.server.should_exit = True
        assert (await client.error())["error"]["code"] == "websocket_connection_limit_reached"


async def test_switched_off_it_answers_426_and_http_still_works():
    async with running_gateway(talking(), serves_responses_socket=False) as gateway:
        with pytest.raises(InvalidStatus) as refused:
            await open_socket(gateway)
        assert refused.value.response.status_code == 426
        async with httpx.AsyncClient(base_url=gateway.url, trust_env=False) as http:
            assert (await http.post("/v1/responses", json={"input": "Hi"})).status_code == 200


async def test_a_wrong_key_is_refused_before_the_upgrade():
    async with running_gateway(talking(), api_keys=("k",)) as gateway:
        with pytest.raises(InvalidStatus) as refused:
            await open_socket(gateway)
        assert refused.value.response.status_code == 401


async def test_a_client_that_stops_reading_loses_its_connection_and_holds_up_nobody():
    backend = scripted(ScriptLine("x" * 20_000_000, chunk=200_000, match=Match(contains="big")), "Small.")
    async with running_gateway(backend, slow_reader_timeout_s=0.3) as gateway:
        stuck = await connect(f"ws://127.0.0.1:{gateway.port}/v1/responses", proxy=None, max_queue=1)
        await Client(stuck).send(input="big")
        async with open_socket(gateway) as socket:
            assert (await Client(socket).response(input="Hi"))["status"] == "completed"
        await gateway.settled()
        with pytest.raises(ConnectionClosed):
            await asyncio.wait_for(read_everything(stuck), 10)


async def read_everything(socket):
    while True:
        await socket.recv()


class StuckSocket(BarePeer):
    """A client that has stopped reading."""

    def __init__(self, error=None):
        self.error = error
        self.is_aborted = False
        self.closed_with = None

    async def send_frames(self, payloads, is_text):
        if self.error is not None:
            raise self.error
        await asyncio.Event().wait()

    async def close(self, code):
        self.closed_with = code

    def abort(self):
        self.is_aborted = True


@pytest.mark.parametrize(
    ("error", "is_aborted", "closed_with"), [(None, True, None), (OSError(), False, None), (ValueError(), False, 1011)]
)
async def test_a_socket_that_cannot_be_written_ends_its_connection(error, is_aborted, closed_with):
    app = GatewayApp(talking(), gateway_config(slow_reader_timeout_s=0.05))
    inbox = asyncio.Queue()
    socket = StuckSocket(error)
    connection = ResponsesConnection(app._service, "", socket, inbox.get)
    running = asyncio.create_task(connection.run())
    # More errors than may wait for the client: it is not read any more until the connection ends.
    for _ in range(8000):
        inbox.put_nowait({"type": "websocket.receive", "text": "{}"})
    inbox.put_nowait({"type": "websocket.receive", "text": '{"type":"response.create","input":"Hi"}'})
    inbox.put_nowait({"type": "websocket.disconnect", "code": 1006})
    await asyncio.wait_for(running, 10)
    assert (socket.is_aborted, socket.closed_with) == (is_aborted, closed_with)
    assert app.admission.num_live == 0
