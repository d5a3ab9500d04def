"""openai-agents over Chat Completions: an agent with one tool, streamed and whole. Usage: SCRIPT BASE_URL KEY."""

import asyncio
import json
import sys

from openai import AsyncOpenAI

from agents import Agent, OpenAIProvider, RunConfig, Runner, function_tool, set_tracing_disabled

cities = []


@function_tool
def weather(city: str) -> str:
    """The weather in a city."""
    cities.append(city)
    return f"4 degrees in {city}"


async def main(url: str, key: str) -> None:
    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key=key)
    config = RunConfig(model_provider=OpenAIProvider(openai_client=client, use_responses=False))
    agent = Agent(name="Weather", instructions="Be brief.", model="script", tools=[weather])
    streamed = Runner.run_streamed(agent, "Weather in Oslo?", run_config=config)
    async for _ in streamed.stream_events():
        pass
    print(json.dumps({"text": streamed.final_output}))
    whole = await Runner.run(agent, "Weather in Oslo?", run_config=config)
    print(json.dumps({"text": whole.final_output, "tokens": whole.context_wrapper.usage.total_tokens}))
    print(json.dumps({"cities": cities}))


asyncio.run(main(*sys.argv[1:]))
