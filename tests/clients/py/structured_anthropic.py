"""anthropic: strict tools under every tool_choice, and typed answers. Usage: SCRIPT BASE_URL MODEL TEMPERATURE."""

import json
import sys
from typing import Literal

import anthropic
from pydantic import BaseModel, ConfigDict, Field

CHOICES = {
    "any": {"type": "any"},
    "tool": {"type": "tool", "name": "set_alarm"},
    "alone": {"type": "any", "disable_parallel_tool_use": True},
    "none": {"type": "none"},
}


class GetWeather(BaseModel):
    model_config = ConfigDict(extra="forbid")
    city: str = Field(max_length=20)
    unit: Literal["celsius", "fahrenheit"]
    days: int = Field(ge=1, le=14)


class SetAlarm(BaseModel):
    model_config = ConfigDict(extra="forbid")
    at: str = Field(pattern="^[0-2][0-9]:[0-5][0-9]$")
    volume: float = Field(ge=0, le=1)


class Person(BaseModel):
    name: str
    age: int
    likes: list[Literal["tea", "rain", "books"]]


class Mood(BaseModel):
    """No free text: the SDK takes bounds out of the schema, and at this heat a text would go on and on."""

    score: int
    words: list[Literal["calm", "glad", "sad"]]
    again: bool | None


MODELS = {"get_weather": GetWeather, "set_alarm": SetAlarm}
TOOLS = [
    {"name": name, "description": f"Does {name}.", "strict": True, "input_schema": model.model_json_schema()}
    for name, model in MODELS.items()
]
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 16},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "likes": {"type": "array", "items": {"enum": ["tea", "rain", "books"]}, "maxItems": 3},
    },
    "required": ["name", "age", "likes"],
    "additionalProperties": False,
}


def show(step: str, **values: object) -> None:
    print(json.dumps({"step": step, **values}), flush=True)


def blocks_of(message) -> dict:
    calls = [
        [block.name, MODELS[block.name].model_validate(block.input, strict=True).model_dump()]
        for block in message.content
        if block.type == "tool_use"
    ]
    text = "".join(block.text for block in message.content if block.type == "text")
    return {"calls": calls, "text": text, "stop": message.stop_reason}


def main(url: str, model: str, temperature: str) -> None:
    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    options = {"model": model, "extra_body": {"temperature": float(temperature)}}
    question = [{"role": "user", "content": "Weather in Oslo, and wake me at seven."}]
    for name, choice in CHOICES.items():
        limit = 3000 if name != "none" else 24  # up to 32 calls
        message = client.messages.create(
            messages=question, tools=TOOLS, tool_choice=choice, max_tokens=limit, **options
        )
        show(name, **blocks_of(message))
    with client.messages.stream(
        messages=question, tools=TOOLS, tool_choice={"type": "any"}, max_tokens=3000, **options
    ) as stream:
        show("streamed", **blocks_of(stream.get_final_message()))

    asked = [{"role": "user", "content": "Invent a person."}]
    config = {"format": {"type": "json_schema", "schema": PERSON}}
    message = client.messages.create(messages=asked, output_config=config, max_tokens=300, **options)
    show("format", person=Person.model_validate_json(message.content[-1].text, strict=True).model_dump())
    parsed = client.messages.parse(messages=asked, output_format=Mood, max_tokens=2000, **options)
    show("parsed", mood=parsed.parsed_output.model_dump(), stop=parsed.stop_reason)
    show("end")


main(*sys.argv[1:])
