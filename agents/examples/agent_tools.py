"""An agent with two tools; what happens is printed as it happens.

Run a server first, with a model that calls tools (`make serve SERVE="--model qwen2.5-coder-0.5b"`; the default model is
too small for that), then `python agents/examples/agent_tools.py [PROMPT]`.
"""

import asyncio
import sys
from typing import Literal

from headrace import Agent, AgentDone, AsyncClient, ContentDelta, ToolCallEnd, ToolResult, tool


@tool
async def weather(city: str, unit: Literal["celsius", "fahrenheit"] = "celsius") -> dict[str, object]:
    """Tell the weather in a city right now.

    Args:
        city: The city's English name.
        unit: The unit of the temperature.
    """
    await asyncio.sleep(0.5)  # as a real service would take
    return {"city": city, "temperature": 7 if unit == "celsius" else 45, "unit": unit, "sky": "clear"}


@tool
def add(numbers: list[float]) -> float:
    """Add numbers up.

    Args:
        numbers: What to add, in any order.
    """
    return sum(numbers)


async def main() -> None:
    prompt = " ".join(sys.argv[1:]) or "What is the weather in Oslo, and what is 17.5 + 24?"
    async with AsyncClient() as client:
        agent = Agent(client, [weather, add], system="Use the tools.", max_turns=6, temperature=0.0, max_tokens=300)
        async for event in agent.run_stream(prompt):
            match event:
                case ContentDelta(text=text):
                    print(text, end="", flush=True)
                case ToolCallEnd(arguments=arguments, outcome=outcome):
                    print(f"\n-> call ({outcome}): {arguments}")
                case ToolResult(name=name, content=content):
                    print(f"<- {name}: {content}")
                case AgentDone(result=result):
                    print(f"\n--- {result.num_turns} turn(s), {result.usage}")


if __name__ == "__main__":
    asyncio.run(main())
