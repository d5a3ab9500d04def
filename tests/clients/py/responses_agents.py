"""openai-agents over Responses, as event stream and over the WebSocket: an agent with one tool.

Usage: responses_agents.py BASE_URL KEY. Prints one JSON object a run.
"""

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


async def ask(url: str, key: str, *, over_socket: bool) -> None:
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key=key)
    provider = OpenAIProvider(openai_client=client, use_responses=True, use_responses_websocket=over_socket)
    agent = Agent(name="Weather", instructions="Be brief.", model="script", tools=[weather])
    result = Runner.run_streamed(agent, "Weather in Oslo?", run_config=RunConfig(model_provider=provider))
    kinds = [event.data.type async for event in result.stream_events() if event.type == "raw_response_event"]
    tokens = result.context_wrapper.usage.total_tokens
    values = {"socket": over_socket, "text": result.final_output, "kinds": sorted(set(kinds)), "tokens": tokens}
    print(json.dumps(values))


async def main(url: str, key: str) -> None:
    set_tracing_disabled(True)
    for over_socket in (False, True):
        await ask(url, key, over_socket=over_socket)
    print(json.dumps({"cities": cities}))


asyncio.run(main(*sys.argv[1:]))
