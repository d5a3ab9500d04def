"""langchain-anthropic: streams, a bound tool whose result goes back, token counts. Usage: SCRIPT BASE_URL KEY."""

import json
import sys

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"4 degrees in {city}"


def gathered(model, messages):
    chunks = list(model.stream(messages))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole = whole + chunk
    return whole


def main(url: str, key: str) -> None:
    model = ChatAnthropic(
        model="script", base_url=url, api_key=key, max_tokens=2000, thinking={"type": "enabled", "budget_tokens": 1024}
    )
    with_tools = model.bind_tools([weather])
    for answer in (gathered, lambda model, messages: model.invoke(messages)):
        messages = [HumanMessage("Weather in Oslo?")]
        first = answer(with_tools, messages)
        messages += [first, *(weather.invoke(call) for call in first.tool_calls)]
        last = answer(with_tools, messages)
        calls = [{"name": call["name"], "args": call["args"]} for call in first.tool_calls]
        usage = [dict(message.usage_metadata) for message in (first, last)]
        print(json.dumps({"first": str(first.text), "calls": calls, "last": str(last.text), "usage": usage}))


main(*sys.argv[1:])
