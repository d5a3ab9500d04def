"""pydantic-ai over Chat Completions: an agent with one tool, whole and streamed. Usage: SCRIPT BASE_URL KEY."""

import asyncio
import json
import sys

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


async def main(url: str, key: str) -> None:
    agent = Agent(OpenAIChatModel("script", provider=OpenAIProvider(base_url=f"{url}/v1", api_key=key)))
    cities = []

    @agent.tool_plain
    def weather(city: str) -> str:
        """The weather in a city."""
        cities.append(city)
        return f"4 degrees in {city}"

    async def watch(_, events) -> None:
        # With a handler, the agent streams its requests.
        async for _event in events:
            pass

    for handler in (None, watch):
        result = await agent.run("Weather in Oslo?", event_stream_handler=handler)
        parts = [part.part_kind for message in result.all_messages() for part in message.parts]
        print(json.dumps({"text": result.output, "parts": parts, "tokens": result.usage.input_tokens}), flush=True)
    print(json.dumps({"cities": cities}))


asyncio.run(main(*sys.argv[1:]))
