"""openai-agents: a typed output and a demanded call over Responses and Chat Completions.

Usage: structured_agents.py BASE_URL MODEL TEMPERATURE.
"""

import asyncio
import json
import sys
from typing import Literal

from openai import AsyncOpenAI
from pydantic import BaseModel, Field

from agents import Agent, ModelSettings, OpenAIProvider, RunConfig, Runner, function_tool, set_tracing_disabled

cities = []


class Trip(BaseModel):
    city: str = Field(max_length=20)
    days: int = Field(ge=1, le=14)
    by: Literal["train", "boat"]


@function_tool
def book(city: Literal["Oslo", "Rome"], nights: int) -> str:
    """Books a room."""
    cities.append([city, nights])
    return "booked"


async def main(url: str, model: str, temperature: str) -> None:
    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none")
    settings = ModelSettings(temperature=float(temperature), max_tokens=300)
    calling = ModelSettings(temperature=float(temperature), max_tokens=300, tool_choice="required")
    for api in ("responses", "chat"):
        config = RunConfig(model_provider=OpenAIProvider(openai_client=client, use_responses=api == "responses"))
        agent = Agent(name="Trips", model=model, output_type=Trip, model_settings=settings)
        result = await Runner.run(agent, "Plan a trip.", run_config=config)
        print(json.dumps({"step": f"{api} typed", "trip": result.final_output.model_dump()}), flush=True)
        # A small model would go on calling for ever.
        agent = Agent(
            name="Rooms", model=model, tools=[book], model_settings=calling, tool_use_behavior="stop_on_first_tool"
        )
        result = await Runner.run(agent, "Book a room.", run_config=config, max_turns=1)
        print(json.dumps({"step": f"{api} tool", "output": result.final_output}), flush=True)
    print(json.dumps({"step": "end", "cities": cities}))


asyncio.run(main(*sys.argv[1:]))
