"""pydantic-ai over Messages: an agent with one tool, whole and streamed. Usage: SCRIPT BASE_URL KEY."""

import asyncio
import json
import sys

from anthropic import AsyncAnthropic
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider


async def main(url: str, key: str) -> None:
    client = AsyncAnthropic(base_url=url, auth_token=key, api_key=None)
    model = AnthropicModel("script", provider=AnthropicProvider(anthropic_client=client))
    agent = Agent(model)
    cities = []

    @agent.tool_plain
    def weather(city: str) -> str:
        """The weather in a city."""
        cities.append(city)
        return f"4 degrees in {city}"

    result = await agent.run("Weather in Oslo?")
    parts = [part.part_kind for message in result.all_messages() for part in message.parts]
    print(json.dumps({"output": result.output, "parts": parts, "cities": cities}), flush=True)

    kinds = set()

    async def watch(_, events) -> None:
        # With a handler, the agent streams its requests.
        async for event in events:
            kinds.add(event.event_kind)

    result = await agent.run("Weather in Oslo?", event_stream_handler=watch)
    usage = result.usage
    print(json.dumps({"output": result.output, "kinds": sorted(kinds), "tokens": usage.input_tokens}), flush=True)


asyncio.run(main(*sys.argv[1:]))
