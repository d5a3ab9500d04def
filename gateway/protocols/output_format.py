"""What an answer is to look like, as the APIs spell it (references of 2026-11): `response_format` of Chat Completions,
`text.format` of Responses, `output_config.format` of Messages, and vLLM's `structured_outputs` on all of OpenAI's.

Knows nothing of who keeps to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import orjson

from gateway.errors import InvalidRequest
from gateway.protocols.fields import Fields, missing, named, wrong_type
from gateway.types import FREE_TEXT, Choice, JsonObject, JsonSchema, OutputFormat, Regex, TextGrammar

_Kind: TypeAlias = Literal["text", "json_object", "json_schema"]
_OPENAI: tuple[_Kind, ...] = ("text", "json_object", "json_schema")
_ANTHROPIC: tuple[_Kind, ...] = ("json_schema",)
_MAX_NAME_CHARS = 64
_MAX_CHOICES = 10_000
# vLLM's names until 0.11, and what became of them.
_GUIDED = {"guided_json": "json", "guided_regex": "regex", "guided_choice": "choice", "guided_grammar": "grammar"}


def chat_format(fields: Fields) -> tuple[OutputFormat, str]:
    """The format and the field that asks for it. Raises InvalidRequest."""
    given = fields.object("response_format")
    holder = None
    if given is not None and given.get("type") == "json_schema":
        # The schema is one level down.
        holder = given.object("json_schema")
        if holder is None:
            raise missing(given.path("json_schema"), "an object with name and schema")
    output = _format(given, holder, _OPENAI)
    # The schema of "json_object" is beside the type.
    inside = given is not None and holder is None and isinstance(output, JsonSchema)
    return _one_of(fields, output, fields.path("response_format.schema" if inside else "response_format"))


def responses_format(fields: Fields) -> tuple[OutputFormat, str]:
    """Raises InvalidRequest. The schema is beside the type."""
    text = fields.object("text")
    given = text.object("format") if text is not None else None
    return _one_of(fields, _format(given, given, _OPENAI), "text.format")


def messages_format(fields: Fields) -> tuple[OutputFormat, str]:
    """Raises InvalidRequest. `output_format` is the older name."""
    config = fields.object("output_config") or Fields({}, "output_config")
    found = []
    for holder, name in ((config, "format"), (fields, "output_format")):
        given = holder.object(name)
        if given is not None:
            found.append((_format(given, given, _ANTHROPIC), holder.path(name)))
    if len(found) == 2 and found[0][0] != found[1][0]:
        raise InvalidRequest(found[1][1], f"{found[1][1]} and {found[0][1]} differ: send one.")
    return found[0] if found else (FREE_TEXT, "output_config.format")


def structured_format(fields: Fields) -> tuple[OutputFormat, str]:
    """vLLM's extension alone. Raises InvalidRequest."""
    given = fields.object("structured_outputs") or Fields({}, fields.path("structured_outputs"))
    found = [(given.path(name), given, name, name) for name in _STRUCTURED if given.get(name) not in (None, False)]
    found += [(fields.path(old), fields, old, new) for old, new in _GUIDED.items() if fields.get(old) is not None]
    if given.get("structural_tag") is not None:
        path = given.path("structural_tag")
        raise InvalidRequest(path, f"{path} is not supported: send tools, and tool_choice or strict.")
    if len(found) > 1:
        names = " and ".join(path for path, *_ in found)
        raise InvalidRequest(found[1][0], f"{names} exclude each other: send one.")
    for path, holder, name, kind in found:
        return _STRUCTURED[kind](holder, name), path
    unknown = [name for name, value in given.raw.items() if name not in _STRUCTURED and value is not None]
    if unknown:
        path = given.path(unknown[0])
        names = ", ".join(map(repr, _STRUCTURED))
        raise InvalidRequest(path, f"{named(path)} demands nothing: send one of {names} in {given.path('')[:-1]}.")
    return FREE_TEXT, fields.path("structured_outputs")


def schema_path(field: str) -> str:
    """Where the schema of a format stands. `field`: what asks for the format."""
    return _SCHEMA_PATHS.get(field, field)


def _one_of(fields: Fields, output: OutputFormat, field: str) -> tuple[OutputFormat, str]:
    structured, structured_field = structured_format(fields)
    if structured == FREE_TEXT:
        return output, field
    if output != FREE_TEXT:
        raise InvalidRequest(structured_field, f"{field} and {structured_field} exclude each other: send one.")
    return structured, structured_field


def _format(given: Fields | None, holder: Fields | None, allowed: tuple[_Kind, ...]) -> OutputFormat:
    if given is None:
        return FREE_TEXT
    kind = given.choice("type", allowed)
    if kind is None:
        raise missing(given.path("type"), "one of " + ", ".join(map(repr, allowed)))
    if kind == "json_schema":
        assert holder is not None
        return JsonSchema(_schema(holder))
    if kind == "json_object" and given.get("schema") is not None:
        # As llama.cpp, Together and Fireworks have it: an object under a schema.
        return JsonSchema(_schema(given))
    return JsonObject() if kind == "json_object" else FREE_TEXT


def _schema(holder: Fields) -> dict[str, Any]:
    name = holder.string("name", max_chars=_MAX_NAME_CHARS)
    if name == "":
        raise InvalidRequest(holder.path("name"), f"{holder.path('name')} must not be empty.")
    holder.string("description")
    holder.boolean("strict")
    schema = holder.object("schema")
    if schema is None:
        raise missing(holder.path("schema"), "the JSON Schema that the answer is to follow")
    return dict(schema.raw)


def _json(holder: Fields, name: str) -> OutputFormat:
    """A schema, maybe as text."""
    value = holder.get(name)
    if isinstance(value, str):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError as error:
            raise InvalidRequest(holder.path(name), f"{holder.path(name)} is not valid JSON: {error}.") from None
    if not isinstance(value, dict):
        raise wrong_type(holder.path(name), "a JSON Schema", value)
    return JsonSchema(value)


def _choice(holder: Fields, name: str) -> OutputFormat:
    options = holder.array(name) or []
    path = holder.path(name)
    if not options or not all(isinstance(option, str) and option for option in options):
        raise InvalidRequest(path, f"{path} must be an array of texts, at least one, none empty.")
    if len(options) > _MAX_CHOICES:
        raise InvalidRequest(path, f"{path} may have {_MAX_CHOICES} entries at most, got {len(options)}.")
    return Choice(tuple(options))


_SCHEMA_PATHS = {
    "response_format": "response_format.json_schema.schema",
    "text.format": "text.format.schema",
    "output_config.format": "output_config.format.schema",
    "output_format": "output_format.schema",
}

_STRUCTURED: dict[str, Callable[[Fields, str], OutputFormat]] = {
    "json": _json,
    "regex": lambda holder, name: Regex(holder.required_string(name)),
    "choice": _choice,
    "grammar": lambda holder, name: TextGrammar(holder.required_string(name)),
    "json_object": lambda holder, name: JsonObject() if holder.boolean(name) else FREE_TEXT,
}
