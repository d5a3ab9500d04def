"""pydantic-ai: typed outputs, as a tool and in the model's own format. Usage: SCRIPT BASE_URL MODEL TEMPERATURE.

No second attempts: what the model writes must fit at once.
"""

import asyncio
import json
import sys
from typing import Literal

from pydantic import BaseModel, Field
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider


class Trip(BaseModel):
    city: str = Field(max_length=20)
    days: int = Field(ge=1, le=14)
    by: Literal["train", "boat"]
    stops: list[str] = Field(max_length=0)


async def main(url: str, model: str, temperature: str) -> None:
    provider = OpenAIProvider(base_url=f"{url}/v1", api_key="none")
    settings = {"temperature": float(temperature), "max_tokens": 300}
    for api, kind in (("chat", OpenAIChatModel), ("responses", OpenAIResponsesModel)):
        for mode, output in (("tool", ToolOutput(Trip)), ("native", NativeOutput(Trip))):
            agent = Agent(kind(model, provider=provider), output_type=output, retries=0, model_settings=settings)
            result = await agent.run("Plan a trip.")
            print(json.dumps({"step": f"{api} {mode}", "trip": result.output.model_dump()}), flush=True)
            async with agent.run_stream("Plan a trip.") as stream:
                trip = await stream.get_output()
            print(json.dumps({"step": f"{api} {mode} streamed", "trip": trip.model_dump()}), flush=True)


asyncio.run(main(*sys.argv[1:]))
