import asyncio
import time

import pytest

from gateway.admission import Admission
from gateway.errors import EngineDown, ShuttingDown
from gateway.metrics import Metrics
from gateway.outbox import Outbox
from gateway.protocols.completions import decode_completion
from gateway.protocols.openai_chat import decode_chat
from gateway.turn import LiveTurn, TurnRunner
from gateway.types import Turn, TurnDone, TurnEvent, TurnFailed, TurnItem, TurnStarted, TurnText, Usage
from inference.errors import EngineUnavailable, QueueFull
from inference.types import TokenChunk
from stream_parser.events import Finish
from tests.testkit.gateway_kit import FakeEngine, chat_body, gateway_config, model_backend, token_chunks


class Bench:
    """A runner over a fake engine, with the items of one turn."""

    def __init__(self, engine: FakeEngine, max_live_turns: int = 10, slow_reader_timeout_s: float = 10.0) -> None:
        self.engine = engine
        self.admission = Admission(max_live_turns)
        self.metrics = Metrics(time.monotonic, lambda: engine.stats)
        config = gateway_config(slow_reader_timeout_s=slow_reader_timeout_s, max_pending_chars=500)
        self.runner = TurnRunner(model_backend(engine), config, self.metrics, self.admission, lambda: 1700000000.9)
        self.outbox = Outbox(500, lambda: None)
        self.items: list[TurnItem] = []

    def start(self, turn: Turn | None = None) -> LiveTurn:
        turn = turn or decode_chat(chat_body())
        return self.runner.start(turn, self.runner.labels(turn, "turn_"), self.outbox)

    async def finish(self, live: LiveTurn) -> TurnItem:
        """The last item; checks that nothing is left."""
        await live.join()
        self.items += self.outbox.take()
        assert self.outbox.is_closed
        assert self.engine.live == {}
        assert (self.admission.num_live, self.metrics.num_live_turns) == (0, 0)
        return self.items[-1]


async def wait_for_submit(engine: FakeEngine) -> None:
    while not engine.live:
        await asyncio.sleep(0)


def test_labels_are_unique_and_carry_whole_seconds():
    bench = Bench(FakeEngine())
    labels = [bench.runner.labels(decode_chat(chat_body()), "turn_") for _ in range(3)]
    assert len({label.turn_id for label in labels}) == 3
    assert {(label.model, label.created_s) for label in labels} == {("test-model", 1700000000)}


async def test_a_turn_starts_speaks_and_ends():
    bench = Bench(FakeEngine(lambda request: token_chunks(request, "Hi")))
    last = await bench.finish(bench.start())
    assert bench.items[0] == TurnStarted(52)
    assert bench.items[-2] == TurnEvent(0, Finish("stop"))
    assert last == TurnDone(Usage(52, 3))


async def test_stopping_before_the_task_ran_still_ends_the_turn():
    bench = Bench(FakeEngine())
    live = bench.start()
    live.stop()
    assert await bench.finish(live) == TurnDone(Usage(0, 0))
    assert bench.engine.requests == []


async def test_stopping_while_queued_ends_every_choice_as_cancelled():
    bench = Bench(FakeEngine())
    live = bench.start(decode_chat(chat_body(n=2)))
    await wait_for_submit(bench.engine)
    live.stop()
    live.stop(EngineDown("too late: the first call counts"))
    assert isinstance(await bench.finish(live), TurnDone)
    assert bench.items[1:-1] == [TurnEvent(0, Finish("cancelled")), TurnEvent(1, Finish("cancelled"))]


async def test_stopping_with_an_error_fails_the_turn():
    bench = Bench(FakeEngine())
    live = bench.start()
    await wait_for_submit(bench.engine)
    error = ShuttingDown("bye")
    live.stop(error)
    assert await bench.finish(live) == TurnFailed(error)


async def test_stopping_after_the_end_changes_nothing():
    bench = Bench(FakeEngine(lambda request: token_chunks(request, "Hi")))
    live = bench.start()
    last = await bench.finish(live)
    live.stop(EngineDown("late"))
    assert bench.outbox.take() == []
    assert isinstance(last, TurnDone)


async def test_a_task_cancelled_by_others_still_tells_its_reader():
    bench = Bench(FakeEngine())
    live = bench.start()
    await wait_for_submit(bench.engine)
    (task,) = [task for task in asyncio.all_tasks() if task.get_name() == f"turn {live.labels.turn_id}"]
    task.cancel()
    last = await bench.finish(live)
    assert isinstance(last, TurnFailed)


async def test_a_refusal_of_the_engine_comes_before_anything_else():
    engine = FakeEngine()
    engine.refusal = QueueFull(1, 1, 2.0)
    bench = Bench(engine)
    last = await bench.finish(bench.start())
    assert bench.items == [last]
    assert isinstance(last, TurnFailed)
    assert last.error.status == 429


async def test_when_one_prompt_is_refused_those_before_it_are_cancelled():
    engine = FakeEngine()
    bench = Bench(engine)
    submit = engine.submit

    def second_is_refused(request):
        if engine.requests:
            raise QueueFull(1, 1, 2.0)
        return submit(request)

    engine.submit = second_is_refused
    last = await bench.finish(bench.start(decode_completion({"prompt": ["a", "b"]})))
    assert bench.items == [last]
    assert len(engine.requests) == 1


async def test_when_one_prompt_fails_the_turn_fails_and_the_others_are_cancelled():
    bench = Bench(FakeEngine())
    live = bench.start(decode_completion({"prompt": ["a", "b"]}))
    await wait_for_submit(bench.engine)
    next(iter(bench.engine.live.values())).push(EngineUnavailable("gone"))
    last = await bench.finish(live)
    assert isinstance(last, TurnFailed)
    assert last.error.code == "engine_unavailable"


async def test_an_engine_that_ends_a_turn_without_a_reason_is_an_error():
    bench = Bench(FakeEngine(lambda request: token_chunks(request, "Hi")[:1]))
    live = bench.start()
    await wait_for_submit(bench.engine)
    (tokens,) = bench.engine.live.values()
    while not tokens.chunks.empty():
        await asyncio.sleep(0)
    tokens._open.clear()
    tokens.push(TokenChunk("turn", 0, (65,)))
    last = await bench.finish(live)
    assert isinstance(last, TurnFailed)
    assert last.error.code == "internal_error"


async def test_a_choice_that_met_its_stop_string_writes_no_further_while_its_siblings_do():
    bench = Bench(FakeEngine())
    live = bench.start(decode_chat(chat_body(n=3, stop=["END"])))
    await wait_for_submit(bench.engine)
    (tokens,) = bench.engine.live.values()
    for chunk in token_chunks(tokens.request, "END b", choice=1)[:-1]:
        tokens.push(chunk)
    while not tokens.cancelled_choices:
        await asyncio.sleep(0)
    for choice in (0, 2):
        for chunk in token_chunks(tokens.request, "x", choice=choice):
            tokens.push(chunk)
    last = await bench.finish(live)
    assert tokens.cancelled_choices == [1], "not those that ended by themselves"
    assert isinstance(last, TurnDone)
    assert last.usage.completion_tokens == len("END") + 2 * len("x.")
    finishes = [item.choice for item in bench.items if isinstance(item, TurnEvent) and item.event == Finish("stop")]
    assert sorted(finishes) == [0, 1, 2]


async def test_a_prompt_that_is_answered_holds_nothing_while_the_turns_other_prompts_go_on():
    bench = Bench(FakeEngine())
    live = bench.start(decode_completion({"prompt": ["a", "b"], "stop": "END", "max_tokens": 50}))
    while len(bench.engine.live) < 2:
        await asyncio.sleep(0)
    first, second = bench.engine.live.values()
    for chunk in token_chunks(first.request, "END b")[:-1]:
        first.push(chunk)
    while first.request.turn_id in bench.engine.live:
        await asyncio.sleep(0)
    assert (first.is_cancelled, list(bench.engine.live)) == (True, [second.request.turn_id])
    for chunk in token_chunks(second.request, "ok"):
        second.push(chunk)
    assert isinstance(await bench.finish(live), TurnDone)


async def test_echo_gives_each_choice_its_prompt_and_no_tokens_need_no_engine():
    bench = Bench(FakeEngine())
    turn = decode_completion({"prompt": ["a", "b"], "n": 2, "echo": True, "max_tokens": 0})
    last = await bench.finish(bench.start(turn))
    assert bench.items[1:-1] == [TurnText(i, "aabb"[i], "length") for i in range(4)]
    assert last == TurnDone(Usage(2, 0))
    assert bench.engine.requests == []


async def test_a_reader_that_never_takes_ends_its_turn_and_frees_the_engine():
    bench = Bench(FakeEngine(lambda request: token_chunks(request, "x" * 5000)), slow_reader_timeout_s=0.05)
    last = await bench.finish(bench.start())
    assert isinstance(last, TurnFailed)
    assert (last.error.status, last.error.code) == (503, "slow_reader")
    text = sum(len(item.event.text) for item in bench.items if isinstance(item, TurnEvent))
    assert text < 600


async def test_a_reader_that_takes_again_gets_everything():
    bench = Bench(FakeEngine(lambda request: token_chunks(request, "x" * 5000)))
    live = bench.start()
    while not bench.outbox.is_closed:
        bench.items += bench.outbox.take()
        await asyncio.sleep(0)
    assert isinstance(await bench.finish(live), TurnDone)
    assert (
        sum(len(item.event.text) for item in bench.items if hasattr(item, "event") and hasattr(item.event, "text"))
        == 5000
    )


async def test_a_drain_lets_turns_end_that_end_in_time():
    bench = Bench(FakeEngine())
    live = bench.start()
    await wait_for_submit(bench.engine)
    draining = asyncio.create_task(bench.runner.drain(5, ShuttingDown("bye")))
    await asyncio.sleep(0.01)
    (tokens,) = bench.engine.live.values()
    for chunk in token_chunks(tokens.request, "Hi"):
        tokens.push(chunk)
    await draining
    assert isinstance(await bench.finish(live), TurnDone)


async def test_a_drain_ends_turns_that_do_not_and_admits_no_new_ones():
    bench = Bench(FakeEngine())
    live = bench.start()
    await wait_for_submit(bench.engine)
    error = ShuttingDown("bye")
    await bench.runner.drain(0.01, error)
    assert await bench.finish(live) == TurnFailed(error)
    other = Outbox(500, lambda: None)
    turn = decode_chat(chat_body())
    late = bench.runner.start(turn, bench.runner.labels(turn, "turn_"), other)
    await late.join()
    (refused,) = other.take()
    assert isinstance(refused, TurnFailed)
    assert refused.error.code == "server_shutting_down"


@pytest.mark.parametrize("reason", ["stop", "length"])
async def test_metrics_count_choices_by_reason_and_tokens(reason):
    bench = Bench(
        FakeEngine(lambda request: [TokenChunk(request.turn_id, 0, (65, 66), (), reason, num_cached_tokens=16)])
    )
    await bench.finish(bench.start())
    assert bench.metrics.num_choices_by_reason == {reason: 1}
    assert (bench.metrics.num_prompt_tokens, bench.metrics.num_cached_prompt_tokens) == (52, 16)
    assert bench.metrics.num_generation_tokens == 2
