"""OpenAI's own Python client against the gateway: text, a whole tool loop, and many of them at once."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import openai
import pytest
from openai import AsyncOpenAI

from gateway.scripted import Match, ScriptLine
from tests.testkit.gateway_kit import MODEL, running_gateway, scripted, weather_tool

NUM_LOOPS = 32


def loop_lines(number: int) -> list[ScriptLine]:
    """Two turns of one agent: two calls at once, then an answer from their results."""
    calls = "".join(
        f'<tool_call>\n{{"name": "weather", "arguments": {{"city": "{city}-{number}"}}}}\n</tool_call>\n'
        for city in ("Oslo", "Rome")
    )
    mine = f"[{number}]"
    return [
        ScriptLine(f"<think>agent {number}</think>" + calls, match=Match("user", mine), delay_s=0.001),
        ScriptLine(f"Agent {number}: 4° and 20°.", match=Match("tool", mine), delay_s=0.001),
    ]


@asynccontextmanager
async def openai_client(*lines: ScriptLine) -> AsyncIterator[AsyncOpenAI]:
    async with running_gateway(scripted(*lines), api_keys=("secret",)) as gateway:
        async with AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="secret", max_retries=0) as client:
            yield client
        await gateway.settled()


async def run_loop(client: AsyncOpenAI, number: int, *, stream: bool) -> str:
    messages: list = [{"role": "user", "content": f"[{number}] Where is it warmer?"}]
    for _ in range(2):
        answer = await ask(client, messages, stream=stream)
        if not answer.tool_calls:
            return answer.content
        messages.append(answer.model_dump(exclude_none=True))
        for call in answer.tool_calls:
            city = json.loads(call.function.arguments)["city"]
            assert city.endswith(f"-{number}")
            messages.append({"role": "tool", "tool_call_id": call.id, "content": f"{city}: 4"})
    raise AssertionError("the agent never answered")


async def ask(client: AsyncOpenAI, messages: list, *, stream: bool):
    if not stream:
        answer = await client.chat.completions.create(model=MODEL, messages=messages, tools=[weather_tool()])
        return answer.choices[0].message
    async with client.chat.completions.stream(model=MODEL, messages=messages, tools=[weather_tool()]) as events:
        async for _ in events:
            pass
        return (await events.get_final_completion()).choices[0].message


@pytest.mark.parametrize("stream", [False, True])
async def test_tool_loops_side_by_side_each_get_their_own_calls_and_answers(stream):
    lines = [line for number in range(NUM_LOOPS) for line in loop_lines(number)]
    async with openai_client(*lines) as client:
        answers = await asyncio.gather(*(run_loop(client, number, stream=stream) for number in range(NUM_LOOPS)))
    assert answers == [f"Agent {number}: 4° and 20°." for number in range(NUM_LOOPS)]


async def test_text_reasoning_and_usage_stream():
    async with openai_client(ScriptLine("<think>Hm.</think>Hello there.")) as client:
        stream = await client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "Hi"}],
            stream=True,
            stream_options={"include_usage": True},
        )
        content = reasoning = ""
        usage = None
        async for chunk in stream:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                content += choice.delta.content or ""
                reasoning += getattr(choice.delta, "reasoning_content", None) or ""
    assert (content, reasoning) == ("Hello there.", "Hm.")
    assert usage is not None
    assert usage.completion_tokens_details.reasoning_tokens > 0


async def test_completions_and_models():
    async with openai_client(ScriptLine("once upon a time", repeat=True)) as client:
        completion = await client.completions.create(model=MODEL, prompt="Tell", max_tokens=2, logprobs=1)
        assert completion.choices[0].text == "once upon"
        assert completion.choices[0].logprobs.tokens == ["once", " upon"]
        assert [model.id async for model in client.models.list()] == [MODEL]


async def test_errors_become_the_sdks_own_exceptions():
    async with openai_client(ScriptLine("x")) as client:
        with pytest.raises(openai.NotFoundError) as missing:
            await client.chat.completions.create(model="other", messages=[{"role": "user", "content": "Hi"}])
        assert missing.value.code == "model_not_found"
        with pytest.raises(openai.BadRequestError) as bad:
            await client.chat.completions.create(model=MODEL, messages=[])
        assert bad.value.param == "messages"
        with pytest.raises(openai.AuthenticationError):
            await client.with_options(api_key="wrong").models.list()
