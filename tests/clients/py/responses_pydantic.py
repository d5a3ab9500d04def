"""pydantic-ai over Responses, as event stream and over the WebSocket: an agent with one tool. Usage: SCRIPT URL KEY."""

import asyncio
import json
import sys

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIResponsesModel, OpenAIResponsesModelSettings
from pydantic_ai.providers.openai import OpenAIProvider


async def main(url: str, key: str) -> None:
    model = OpenAIResponsesModel("script", provider=OpenAIProvider(base_url=f"{url}/v1", api_key=key))
    agent = Agent(model)
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

    for transport in ("sse", "websocket"):
        settings = OpenAIResponsesModelSettings(openai_transport=transport)
        result = await agent.run("Weather in Oslo?", model_settings=settings, event_stream_handler=watch)
        parts = [part.part_kind for message in result.all_messages() for part in message.parts]
        tokens = result.usage.output_tokens
        print(json.dumps({"transport": transport, "text": result.output, "parts": parts, "tokens": tokens}))
    result = await agent.run("Weather in Oslo?")
    print(json.dumps({"whole": result.output, "cities": cities}))


asyncio.run(main(*sys.argv[1:]))
