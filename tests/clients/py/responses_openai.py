"""openai over Responses: raw events, the stream helper, whole answers, stored and background responses, the WebSocket.

Usage: responses_openai.py BASE_URL KEY. Prints one JSON object a step.
"""

import asyncio
import json
import sys

import openai

MODEL = "script"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "name": "weather", "description": "The weather.", "parameters": SCHEMA, "strict": False}


def show(step: str, **values: object) -> None:
    print(json.dumps({"step": step, **values}), flush=True)


def results(response) -> list[dict]:
    calls = [item for item in response.output if item.type == "function_call"]
    cities = [json.loads(call.arguments)["city"] for call in calls]
    return [
        {"type": "function_call_output", "call_id": call.call_id, "output": f"4 degrees in {city}"}
        for call, city in zip(calls, cities, strict=True)
    ]


def tool_loop(client: openai.OpenAI, how: str) -> None:
    """The whole history again each turn with `raw`, previous_response_id with the others."""
    items: list = [{"role": "user", "content": "Weather in Oslo?"}]
    previous = None
    kinds: list[str] = []
    while True:
        body = {"model": MODEL, "input": items, "tools": [TOOL], "previous_response_id": previous}
        if how == "whole":
            response = client.responses.create(**body)
        elif how == "raw":
            events = list(client.responses.create(**body, stream=True))
            kinds += [event.type for event in events]
            response = events[-1].response
        else:
            with client.responses.stream(**body) as stream:
                kinds += [event.type for event in stream]
                response = stream.get_final_response()
        outputs = results(response)
        if not outputs:
            break
        if how == "raw":
            items = [*items, *(item.model_dump(exclude_none=True) for item in response.output), *outputs]
        else:
            items, previous = outputs, response.id
    usage = response.usage
    show(how, text=response.output_text, kinds=sorted(set(kinds)), status=response.status, tokens=usage.total_tokens)


def stored(client: openai.OpenAI) -> None:
    response = client.responses.create(model=MODEL, input="Hi")
    fetched = client.responses.retrieve(response.id)
    items = client.responses.input_items.list(response.id)
    client.responses.delete(response.id)
    try:
        client.responses.retrieve(response.id)
    except openai.NotFoundError as error:
        show("stored", same=fetched.output_text == response.output_text, items=len(list(items)), gone=error.code)


def background(client: openai.OpenAI) -> None:
    events = list(client.responses.create(model=MODEL, input="Hi", background=True, stream=True))
    response = events[-1].response
    rest = list(client.responses.retrieve(response.id, stream=True, starting_after=3))
    with client.responses.stream(response_id=response.id, starting_after=0) as stream:
        helped = [event.sequence_number for event in stream]
    same = [event.sequence_number for event in events[4:]] == [event.sequence_number for event in rest]
    cancelled = client.responses.cancel(response.id)
    show("background", same=same, helped=helped[:2], status=cancelled.status)


def others(client: openai.OpenAI) -> None:
    count = client.responses.input_tokens.count(model=MODEL, input="Hello there")
    compacted = client.responses.compact(model=MODEL, input=[{"role": "user", "content": "Hi"}])
    items = [item.model_dump(exclude_none=True) for item in compacted.output]
    after = client.responses.create(model=MODEL, input=[*items, {"role": "user", "content": "Hi"}])
    show("others", tokens=count.input_tokens, types=[item["type"] for item in items], text=after.output_text)
    try:
        client.responses.create(model="no-such-model", input="Hi")
    except openai.NotFoundError as error:
        show("not found", code=error.code, request_id=error.request_id)


async def socket(url: str, key: str) -> None:
    client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key)
    items: list = [{"role": "user", "content": "Weather in Oslo?"}]
    previous = None
    kinds: list[str] = []
    async with client.responses.connect() as connection:
        while True:
            body = {"model": MODEL, "input": items, "tools": [TOOL], "store": False, "stream_id": "lane-1"}
            await connection.response.create(**body, **({"previous_response_id": previous} if previous else {}))
            async for event in connection:
                kinds.append(event.type)
                if event.type == "response.completed":
                    break
            outputs = results(event.response)
            if not outputs:
                break
            items, previous = outputs, event.response.id
        text = event.response.output_text
        await connection.response.create(model=MODEL, input="Hi", previous_response_id="resp_gone")
        error = await connection.recv()
    show("socket", text=text, lane=event.stream_id, kinds=sorted(set(kinds)), error=error.error.code)


def main(url: str, key: str) -> None:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=key)
    for how in ("raw", "helper", "whole"):
        tool_loop(client, how)
    stored(client)
    background(client)
    others(client)
    asyncio.run(socket(url, key))


main(*sys.argv[1:])
