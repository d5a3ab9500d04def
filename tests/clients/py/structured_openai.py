"""openai: strict tools under every tool_choice, and typed answers, over Chat Completions and Responses.

Usage: structured_openai.py BASE_URL MODEL TEMPERATURE. Prints one JSON object a step.
"""

import json
import sys
from typing import Literal

import openai
from pydantic import BaseModel, ConfigDict, Field

CHOICES = {
    "required": "required",
    "named": {"type": "function", "function": {"name": "set_alarm"}},
    "allowed": {
        "type": "allowed_tools",
        "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "get_weather"}}]},
    },
    "none": "none",
}
RESPONSES_CHOICES = {
    "required": "required",
    "named": {"type": "function", "name": "set_alarm"},
    "allowed": {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "get_weather"}]},
    "none": "none",
}


class GetWeather(BaseModel):
    model_config = ConfigDict(extra="forbid")
    city: str = Field(max_length=20)
    unit: Literal["celsius", "fahrenheit"]
    days: int = Field(ge=1, le=14)


class SetAlarm(BaseModel):
    model_config = ConfigDict(extra="forbid")
    at: str = Field(pattern="^[0-2][0-9]:[0-5][0-9]$")
    label: str | None = Field(max_length=16)


class Author(BaseModel):
    name: str = Field(max_length=16)
    born: int = Field(ge=1000, le=2100)


class Book(BaseModel):
    title: str = Field(max_length=24)
    authors: list[Author] = Field(min_length=1, max_length=2)
    kind: Literal["novel", "poems"]


MODELS = {"get_weather": GetWeather, "set_alarm": SetAlarm}
TOOLS = [openai.pydantic_function_tool(model, name=name) for name, model in MODELS.items()]
RESPONSES_TOOLS = [{"type": "function", **tool["function"]} for tool in TOOLS]
QUESTION = "Weather in Oslo, and wake me at seven."


def show(step: str, **values: object) -> None:
    print(json.dumps({"step": step, **values}), flush=True)


def checked(name: str, arguments: str) -> list[object]:
    """Raises ValidationError unless the arguments are what was asked for."""
    return [name, MODELS[name].model_validate_json(arguments, strict=True).model_dump()]


def chat(client: openai.OpenAI, options: dict) -> None:
    question = [{"role": "user", "content": QUESTION}]
    for name, choice in CHOICES.items():
        completion = client.chat.completions.create(
            messages=question, tools=TOOLS, tool_choice=choice, max_tokens=3000 if name != "none" else 24, **options
        )
        [answer] = completion.choices
        calls = answer.message.tool_calls or []
        done = [checked(call.function.name, call.function.arguments) for call in calls]
        show(f"chat {name}", calls=done, text=answer.message.content or "", finish=answer.finish_reason)

    completion = client.chat.completions.parse(
        messages=question, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, max_tokens=300, **options
    )
    [call] = completion.choices[0].message.tool_calls
    show("chat parsed call", name=call.function.name, type=type(call.function.parsed_arguments).__name__)
    completion = client.chat.completions.parse(
        messages=[{"role": "user", "content": "Name a book."}], response_format=Book, max_tokens=300, **options
    )
    show("chat parsed", book=completion.choices[0].message.parsed.model_dump())


def streamed_chat(client: openai.OpenAI, options: dict) -> None:
    asked = {"messages": [{"role": "user", "content": "Name a book."}], "max_tokens": 3000, **options}
    with client.chat.completions.stream(response_format=Book, **asked) as stream:
        show("chat streamed", book=stream.get_final_completion().choices[0].message.parsed.model_dump())
    with client.chat.completions.stream(tools=TOOLS, tool_choice="required", **asked) as stream:
        calls = stream.get_final_completion().choices[0].message.tool_calls
    show("chat streamed call", calls=[checked(call.function.name, call.function.arguments) for call in calls])


def responses(client: openai.OpenAI, options: dict) -> None:
    for name, choice in RESPONSES_CHOICES.items():
        response = client.responses.create(
            input=QUESTION, tools=RESPONSES_TOOLS, tool_choice=choice,
            max_output_tokens=3000 if name != "none" else 24, **options,
        )  # fmt: skip
        done = [checked(item.name, item.arguments) for item in response.output if item.type == "function_call"]
        show(f"responses {name}", calls=done, text=response.output_text, finish=response.status)
    response = client.responses.parse(input="Name a book.", text_format=Book, max_output_tokens=300, **options)
    show("responses parsed", book=response.output_parsed.model_dump())
    with client.responses.stream(input="Name a book.", text_format=Book, max_output_tokens=300, **options) as stream:
        show("responses streamed", book=stream.get_final_response().output_parsed.model_dump())


def main(url: str, model: str, temperature: str) -> None:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    options = {"model": model, "temperature": float(temperature)}
    chat(client, options)
    streamed_chat(client, options)
    responses(client, options)
    unusable = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(?!x)"}}, "required": ["a"]}
    try:
        client.chat.completions.create(
            messages=[{"role": "user", "content": "Hi"}],
            response_format={"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": unusable}},
            **options,
        )
    except openai.BadRequestError as error:
        show("refused", message=error.message, param=error.param)
    show("end")


main(*sys.argv[1:])
