"""openai over Chat Completions: streams, a tool loop, models, errors. Usage: chat_openai.py BASE_URL KEY."""

import json
import sys

import openai

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def show(step: str, **values: object) -> None:
    print(json.dumps({"step": step, **values}), flush=True)


def complete(client: openai.OpenAI, messages: list, way: str):
    options = {"model": "script", "messages": messages, "tools": [TOOL]}
    if way == "whole":
        return client.chat.completions.create(**options)
    with client.chat.completions.stream(**options, stream_options={"include_usage": True}) as stream:
        kinds = sorted({event.type for event in stream})
        show("events", kinds=kinds)
        return stream.get_final_completion()


def tool_loop(client: openai.OpenAI, way: str) -> None:
    messages: list = [{"role": "user", "content": "Weather in Oslo?"}]
    while True:
        completion = complete(client, messages, way)
        [choice] = completion.choices
        calls = choice.message.tool_calls or []
        show(
            "message",
            text=choice.message.content,
            reasoning=getattr(choice.message, "reasoning_content", None),
            calls=[[call.function.name, json.loads(call.function.arguments)] for call in calls],
            finish=choice.finish_reason,
            tokens=completion.usage.prompt_tokens,
        )
        if not calls:
            return
        messages.append(choice.message.model_dump(exclude_none=True, exclude={"parsed"}))
        for call in calls:
            city = json.loads(call.function.arguments)["city"]
            messages.append({"role": "tool", "tool_call_id": call.id, "content": f"4 degrees in {city}"})


def main(url: str, key: str) -> None:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=key)
    chunks = client.chat.completions.create(model="script", stream=True, messages=[{"role": "user", "content": "Hi"}])
    show("text", text="".join(chunk.choices[0].delta.content or "" for chunk in chunks))
    for way in ("whole", "stream"):
        tool_loop(client, way)
    show("models", ids=[model.id for model in client.models.list()])
    try:
        client.chat.completions.create(model="no-such-model", messages=[{"role": "user", "content": "Hi"}])
    except openai.NotFoundError as error:
        show("not found", code=error.code, request_id=error.request_id)
    show("end")


main(*sys.argv[1:])
