"""The engine process as the gateway sees it: a tiny model behind a real process boundary."""

import asyncio
import dataclasses
import os
import random
import re

import pytest

from inference.config import EngineConfig
from inference.engine_client import EngineClient, check
from inference.engine_launch import EngineProcess, process_environment
from inference.errors import ContextLengthExceeded, EngineUnavailable, InvalidTurn, ModelLoadError, QueueFull
from inference.runner.loader import load
from inference.types import EngineInfo, SamplingParams, TurnRequest
from tests.testkit.tiny_models import save_tiny_model

INFO = EngineInfo(
    model_name="tiny", architecture="Llama", device="cpu", dtype="fp32", attention_backend="torch", max_model_len=100,
    vocab_size=300, eos_token_ids=(2,), block_size=16, num_blocks=8, kv_bytes=1, num_parameters=1,
)


def turn(turn_id, prompt=(5, 6, 7), n=1, **params):
    options = {"temperature": 0.0, "ignore_eos": True, "max_tokens": 8} | params
    return TurnRequest(turn_id, tuple(prompt), SamplingParams(**options), n=n)


async def read(stream):
    tokens = {}
    async for chunk in stream:
        tokens.setdefault(chunk.choice, []).extend(chunk.token_ids)
    return tokens


async def until(condition, timeout_s=20.0):
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_tiny_model("llama", tmp_path_factory.mktemp("model") / "llama")


@pytest.fixture
async def client(folder):
    client = EngineClient(EngineConfig("tiny", folder, dtype="fp32", kv_bytes=4 << 20, max_rows=64, max_waiting=200))
    await client.start()
    yield client
    await client.close()


async def test_turns_run_cancel_and_survive_the_death_of_their_process(client):
    alone = await read(client.submit(turn("alone")))
    assert [len(tokens) for tokens in alone.values()] == [8]

    prompts = {f"t{i}": [3 + i] * (i % 7 + 1) for i in range(64)}
    together = await asyncio.gather(*(read(client.submit(turn(name, p))) for name, p in prompts.items()))
    again = [await read(client.submit(turn(name, p))) for name, p in list(prompts.items())[:6]]
    assert together[:6] == again, "a turn's tokens depend on nobody else"
    assert all(len(tokens[0]) == 8 for tokens in together)

    choices = await read(client.submit(turn("choices", n=3, temperature=1.0, seed=4)))
    assert sorted(choices) == [0, 1, 2]
    assert choices == await read(client.submit(turn("choices", n=3, temperature=1.0, seed=4)))

    await until(lambda: client.stats.num_blocks_in_use == 0)
    await _a_choice_that_is_cancelled_ends_alone(client)
    await _cancels_at_random_moments_leave_nothing(client)
    await _a_killed_process_fails_its_turns_and_comes_back(client)


async def _a_choice_that_is_cancelled_ends_alone(client):
    stream = client.submit(turn("forked", n=3, max_tokens=100))
    counts = {0: 0, 1: 0, 2: 0}
    async for chunk in stream:
        counts[chunk.choice] += 1
        if counts[1] == 2 and chunk.choice == 1:
            stream.cancel_choice(1)
            stream.cancel_choice(1)
    assert counts == {0: 100, 1: 2, 2: 100}
    stream.cancel_choice(0)

    alone = client.submit(turn("alone", max_tokens=400))
    await alone.__anext__()
    alone.cancel_choice(0)
    with pytest.raises(StopAsyncIteration):
        await alone.__anext__()
    await until(lambda: client.stats.num_blocks_in_use == 0)


async def _cancels_at_random_moments_leave_nothing(client):
    rng = random.Random(1)
    before = len(asyncio.all_tasks())

    async def start_and_cancel(number):
        stream = client.submit(turn(f"c{number}", [4] * rng.randint(1, 60), max_tokens=100))
        for _ in range(rng.randint(0, 4)):
            await stream.__anext__()
        await asyncio.sleep(rng.random() * 0.05)
        stream.cancel()
        stream.cancel()
        with pytest.raises(StopAsyncIteration):
            await stream.__anext__()

    await asyncio.gather(*(start_and_cancel(number) for number in range(200)))
    await until(lambda: client.stats.num_blocks_in_use == 0 and client.stats.num_running == 0)
    assert client.stats.num_waiting == 0
    assert len(asyncio.all_tasks()) <= before


async def _a_killed_process_fails_its_turns_and_comes_back(client):
    streams = [client.submit(turn(f"k{i}", max_tokens=200)) for i in range(3)]
    await streams[0].__anext__()
    client._process.kill()
    for stream in streams:
        with pytest.raises(EngineUnavailable, match="being restarted"):
            await read(stream)
    with pytest.raises(EngineUnavailable, match="restarting"):
        client.submit(turn("too early"))
    await until(lambda: client.state == "ready", 60)
    assert client.num_restarts == 1
    assert await read(client.submit(turn("after"))) == await read(client.submit(turn("after")))


async def test_a_full_queue_is_refused_with_a_time_to_come_back(folder):
    config = EngineConfig("tiny", folder, dtype="fp32", kv_bytes=1 << 20, max_rows=1, max_waiting=2)
    started = EngineProcess("cpu")
    client = EngineClient(config, started)
    await client.start()
    assert client._process is started, "an engine's process may be there before its client"
    streams = [client.submit(turn(f"t{i}", max_tokens=50)) for i in range(3)]
    with pytest.raises(QueueFull, match="2 turns wait and the queue holds 2") as refused:
        client.submit(turn("t3"))
    assert refused.value.retry_after_s > 0
    with pytest.raises(InvalidTurn, match="already running"):
        client.submit(turn("t0"))
    for stream in streams:
        stream.cancel()
    await client.close()
    with pytest.raises(EngineUnavailable, match="closed"):
        client.submit(turn("late"))


async def test_closing_ends_streams_and_the_process_quickly(folder, capfd):
    client = EngineClient(EngineConfig("tiny", folder, dtype="fp32", kv_bytes=1 << 20))
    await client.start()
    stream = client.submit(turn("t", max_tokens=400))
    await stream.__anext__()
    pid = client._process.pid
    phases = "python|torch|transformers|engine|gateway|weights|runner"
    assert re.search(rf"ready in [\d.]+ s: (({phases}) [\d.]+(, |\n)){{7}}", capfd.readouterr().err)
    async with asyncio.timeout(2):
        await client.close()
    with pytest.raises(EngineUnavailable, match="shutting down"):
        await read(stream)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_model_len": 100_000}, "context ends at 512"),
        ({"kv_bytes": 20_000, "max_model_len": 400}, "Raise --kv-memory or lower --max-model-len"),
        ({"device": "cuda"}, "--device cpu"),
    ],
)
def test_a_model_that_cannot_be_served_says_why(folder, options, says):
    with pytest.raises(ModelLoadError, match=says):
        load(EngineConfig("tiny", folder, **({"dtype": "fp32"} | options)))


async def test_what_the_process_refuses_reaches_its_client(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    client = EngineClient(EngineConfig("t5", tmp_path))
    with pytest.raises(ModelLoadError, match="'t5' is not supported: it is an encoder-decoder"):
        await client.start()


@pytest.mark.parametrize(
    ("request_", "field", "says"),
    [
        (turn("t", []), "prompt", "no tokens"),
        (turn("t", [5, 300]), "prompt", "Token id 300"),
        (turn("t", [-1]), "prompt", "Token id -1"),
        (turn("t", logit_bias=((999, 1.0),)), "logit_bias", "ids are 0 to 299"),
        (turn("t", stop_token_ids=(300,)), "stop_token_ids", "Token id 300"),
        (turn("t", max_tokens=0), "max_tokens", "at least 1, got 0"),
        (turn("t", n=0), "n", "from 1 to 8, got 0"),
        (turn("t", n=9), "n", "from 1 to 8, got 9"),
    ],
)
def test_what_can_never_run_is_refused_by_field(request_, field, says):
    with pytest.raises(InvalidTurn, match=says) as refused:
        check(request_, INFO, max_rows=8)
    assert refused.value.field == field


def test_a_prompt_past_the_context_names_both_numbers_and_both_phrases():
    with pytest.raises(ContextLengthExceeded) as refused:
        check(turn("t", [1] * 100), INFO, max_rows=8)
    text = str(refused.value)
    assert "maximum context length is 100 tokens" in text
    assert "exceeds the context window" in text
    assert (refused.value.num_prompt_tokens, refused.value.max_model_len) == (100, 100)
    check(turn("t", [1] * 99), INFO, max_rows=8)


@pytest.mark.parametrize(
    ("options", "length", "bound", "remedy"),
    [
        ({}, 512, "model", "the model itself reaches no further"),
        ({"max_model_len": 512}, 512, "model", "the model itself reaches no further"),
        ({"max_model_len": 100}, 100, "option", "with a larger --max-model-len"),
        ({"kv_bytes": 65_536}, 144, "memory", "with a larger --kv-memory"),
        ({"kv_bytes": 65_536, "max_model_len": 100}, 100, "option", "with a larger --max-model-len"),
    ],
)
def test_the_remedy_for_a_context_too_short_is_the_one_that_helps(folder, options, length, bound, remedy):
    model = load(EngineConfig("tiny", folder, **{"dtype": "fp32", "kv_bytes": 4 << 20, "block_size": 16, **options}))
    model.runner.close()
    assert (model.max_model_len, model.context_bound) == (length, bound)
    info = dataclasses.replace(INFO, max_model_len=model.max_model_len, context_bound=model.context_bound)
    with pytest.raises(ContextLengthExceeded) as refused:
        check(turn("t", [1] * length), info, max_rows=8)
    assert remedy in str(refused.value)
    assert re.findall("--[a-z-]+", str(refused.value)) == re.findall("--[a-z-]+", remedy)


def test_the_users_environment_wins(monkeypatch):
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    environment = process_environment("cpu")
    assert environment["GOMP_SPINCOUNT"] == "7"
    assert environment["HF_HUB_OFFLINE"] == "1"
