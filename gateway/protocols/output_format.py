"""What an answer is to look like, as the APIs spell it (references of 2026-11): `response_format` of Chat Completions,
`text.format` of Responses, `output_config.format` of Messages. Checked here; knows nothing of who keeps to it.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from gateway.errors import InvalidRequest
from gateway.protocols.fields import Fields, missing

FormatKind: TypeAlias = Literal["text", "json_object", "json_schema"]
_OPENAI: tuple[FormatKind, ...] = ("text", "json_object", "json_schema")
_ANTHROPIC: tuple[FormatKind, ...] = ("json_schema",)
_MAX_NAME_CHARS = 64


def chat_format(fields: Fields) -> FormatKind:
    """Raises InvalidRequest. The schema is one level down, under `json_schema`."""
    given = fields.object("response_format")
    kind = _kind(given, _OPENAI)
    if given is not None and kind == "json_schema":
        holder = given.object("json_schema")
        if holder is None:
            raise missing(given.path("json_schema"), "an object with name and schema")
        _check_schema(holder)
    return kind


def responses_format(fields: Fields) -> FormatKind:
    """Raises InvalidRequest. The schema is beside the type."""
    text = fields.object("text")
    given = text.object("format") if text is not None else None
    kind = _kind(given, _OPENAI)
    if given is not None and kind == "json_schema":
        _check_schema(given)
    return kind


def messages_format(fields: Fields, name: str) -> FormatKind:
    """Raises InvalidRequest. `name`: of the field in `fields`."""
    given = fields.object(name)
    kind = _kind(given, _ANTHROPIC)
    if given is not None:
        _check_schema(given)
    return kind


def _kind(given: Fields | None, allowed: tuple[FormatKind, ...]) -> FormatKind:
    if given is None:
        return "text"
    kind = given.choice("type", allowed)
    if kind is None:
        raise missing(given.path("type"), "one of " + ", ".join(map(repr, allowed)))
    return kind


def _check_schema(holder: Fields) -> None:
    name = holder.string("name", max_chars=_MAX_NAME_CHARS)
    if name == "":
        raise InvalidRequest(holder.path("name"), f"{holder.path('name')} must not be empty.")
    holder.string("description")
    holder.boolean("strict")
    if holder.object("schema") is None:
        raise missing(holder.path("schema"), "the JSON Schema that the answer is to follow")
