"""anthropic: streams, a tool loop with thinking sent back, whole answers, counting, models, errors.

Usage: anthropic_sdk.py BASE_URL KEY. Prints one JSON object a step.
"""

import json
import sys

import anthropic

MODEL = "script"
TOOL = {
    "name": "weather",
    "description": "The weather in a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def show(step: str, **values: object) -> None:
    print(json.dumps({"step": step, **values}), flush=True)


def dump(message) -> dict:
    return message.model_dump(mode="json", exclude_none=True)


def tool_loop(client: anthropic.Anthropic, *, streams: bool) -> None:
    messages = [{"role": "user", "content": "Weather in Oslo?"}]
    options = {"model": MODEL, "max_tokens": 500, "tools": [TOOL]}
    options["thinking"] = {"type": "enabled", "budget_tokens": 1024}
    while True:
        if streams:
            with client.messages.stream(messages=messages, **options) as stream:
                kinds = [event.type for event in stream]
                message = stream.get_final_message()
            show("events", kinds=sorted(set(kinds)))
        else:
            message = client.messages.create(messages=messages, **options)
        show("message", **dump(message))
        if message.stop_reason != "tool_use":
            return
        messages.append({"role": "assistant", "content": message.content})
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": f"4 degrees in {block.input['city']}"}
            for block in message.content
            if block.type == "tool_use"
        ]
        messages.append({"role": "user", "content": results})


def main(url: str, key: str) -> None:
    client = anthropic.Anthropic(base_url=url, auth_token=key, api_key=None)
    by_header = anthropic.Anthropic(base_url=url, api_key=key)
    with client.messages.stream(
        model=MODEL, max_tokens=100, messages=[{"role": "user", "content": "Hi"}]
    ) as stream:
        show("text", text="".join(stream.text_stream), request_id=stream.response.headers["request-id"])
    tool_loop(client, streams=True)
    tool_loop(by_header, streams=False)

    cut = client.messages.create(
        model=MODEL, max_tokens=100, stop_sequences=["there"], messages=[{"role": "user", "content": "Hi"}]
    )
    show("stop", **dump(cut))
    beta = client.beta.messages.create(
        model=MODEL, max_tokens=100, messages=[{"role": "user", "content": "Hi"}], betas=["effort-2025-11-24"]
    )
    show("beta", **dump(beta))
    count = client.messages.count_tokens(model=MODEL, messages=[{"role": "user", "content": "Hello there"}])
    show("count", tokens=count.input_tokens)
    show("models", ids=[model.id for model in client.models.list()], one=client.models.retrieve(MODEL).display_name)
    try:
        client.messages.create(model="no-such-model", max_tokens=1, messages=[{"role": "user", "content": "Hi"}])
    except anthropic.NotFoundError as error:
        show("not found", message=error.message, kind=error.body["error"]["type"], request_id=error.request_id)
    try:
        anthropic.Anthropic(base_url=url, api_key="wrong").models.list()
    except anthropic.AuthenticationError as error:
        show("wrong key", kind=error.body["error"]["type"])
    show("end")


main(*sys.argv[1:])
