"""langchain-openai over Chat Completions: streams, a bound tool whose result goes back. Usage: SCRIPT BASE_URL KEY."""

import json
import sys

from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


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
    model = ChatOpenAI(model="script", base_url=f"{url}/v1", api_key=key, use_responses_api=False, stream_usage=True)
    with_tools = model.bind_tools([weather])
    for answer in (gathered, lambda model, messages: model.invoke(messages)):
        messages = [HumanMessage("Weather in Oslo?")]
        first = answer(with_tools, messages)
        messages += [first, *(weather.invoke(call) for call in first.tool_calls)]
        last = answer(with_tools, messages)
        calls = [{"name": call["name"], "args": call["args"]} for call in first.tool_calls]
        tokens = [message.usage_metadata["input_tokens"] for message in (first, last)]
        print(json.dumps({"first": str(first.text), "calls": calls, "last": str(last.text), "tokens": tokens}))


main(*sys.argv[1:])
