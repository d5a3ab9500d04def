"""Writes what a model of a dialect writes, from the declaration alone: reasoning, an answer, calls.

The inverse of the parser, for property tests, scripted models and examples in the documentation. Knows the declaration
types only. Values that the dialect cannot express (a delimiter inside an undelimited text) come out ambiguous, not
escaped, because the dialects have no escapes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from stream_parser.dialect import (
    Body,
    ByFirstChar,
    Call,
    Dialect,
    ElementTree,
    JsonArguments,
    JsonCall,
    LaxArguments,
    NoArguments,
    PythonCalls,
    RawArgument,
    Route,
    Span,
    TaggedArguments,
)
from stream_parser.patterns import plain

Json: TypeAlias = bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"] | None
Arguments: TypeAlias = Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class WrittenCall:
    name: str
    arguments: Arguments
    id: str = ""


def render(dialect: Dialect, reasoning: str = "", content: str = "", calls: Sequence[WrittenCall] = ()) -> str:
    """The text of one answer, from the first character after the prompt to before the end-of-turn token."""
    if dialect.messages is not None:
        return _render_messages(dialect, reasoning, content, calls)
    parts = []
    if reasoning:
        parts.append(_wrap(dialect.reasoning[0], reasoning))
    if content:
        parts.append(_wrap(dialect.answer[0], content) if dialect.answer else content)
    if calls:
        parts.append(render_calls(dialect, calls))
    return "".join(parts)


def render_calls(dialect: Dialect, calls: Sequence[WrittenCall]) -> str:
    """All calls of one answer, in their section if the dialect has one."""
    call = dialect.calls[0]
    if call.own_section or _is_bare_json(call):
        body = _render_together(call, calls)
    else:
        body = _separator(call).join(_render_one(call, written, n) for n, written in enumerate(calls))
    if not dialect.sections:
        return body
    section = dialect.sections[0]
    return plain(section.opens[0]) + section.after_open + body + section.after_open + plain(section.closes[0])


def _is_bare_json(call: Call) -> bool:
    return not call.opens and isinstance(call.body, JsonCall | PythonCalls)


def _separator(call: Call) -> str:
    return "\n" if call.gap or not call.closes else ""


def _wrap(span: Span, text: str) -> str:
    opener = plain(span.opens[0]) if span.opens else span.bare_opens[0]
    closer = plain(span.closes[0]) if span.closes else ""
    return opener + span.after_open + text + span.before_close + closer + span.after_close


def _render_messages(dialect: Dialect, reasoning: str, content: str, calls: Sequence[WrittenCall]) -> str:
    messages = dialect.messages
    assert messages is not None
    parts: list[str] = []

    def add(route: Route, body: str, name: str = "", end: str = "") -> None:
        header = route.render.replace("{name}", name)
        parts.append(header + plain(messages.message) + body + (end or (messages.ends[0] if messages.ends else "")))

    routes = {route.to: route for route in reversed(messages.routes) if route.render or route.to != "reasoning"}
    if reasoning:
        add(routes.get("reasoning", messages.routes[0]), reasoning)
    if content:
        add(routes["content"], content)
    if calls and messages.body is not None:
        end = next((e for e in messages.ends if "call" in e), "")
        for n, written in enumerate(calls):
            add(routes["call"], _render_body(messages.body, Call(messages.body), written, n), written.name, end)
    elif calls:
        add(routes["calls"], render_calls(dialect, calls))
    first, rest = parts[:1], parts[1:]
    return "".join(first) + "".join(messages.starts[0] + part for part in rest)


def _render_together(call: Call, calls: Sequence[WrittenCall]) -> str:
    body = call.body
    match body:
        case JsonCall(shape=shape):
            objects = [_json_call(body, written) for written in calls]
            joined = "\n".join(objects) if shape != "array" else "[" + ", ".join(objects) + "]"
        case PythonCalls(brackets=brackets):
            lines = [f"{written.name}({_keywords(written.arguments)})" for written in calls]
            joined = "[" + ", ".join(lines) + "]" if brackets else "\n".join(lines)
        case _:
            raise AssertionError(f"{type(body).__name__} holds one call at a time")
    opener = plain(call.opens[0]) if call.opens else ""
    closer = plain(call.closes[0]) if call.closes else ""
    gap = "\n" if closer == "```" else call.gap if closer.startswith("<") else ""
    return opener + call.gap + joined + gap + closer


def _render_one(call: Call, written: WrittenCall, number: int) -> str:
    opener = plain(call.opens[0]) + call.gap if call.opens else ""
    head = _fill(call.heads[0], written, number) if call.heads else ""
    after_head = call.gap if head and isinstance(call.body, TaggedArguments) else ""
    tail = plain(call.tails[0]) if call.tails else ""
    closer = call.gap + plain(call.closes[0]) if call.closes else ""
    return opener + head + after_head + _render_body(call.body, call, written, number) + tail + closer


def _fill(template: str, written: WrittenCall, number: int) -> str:
    values = {
        "name": written.name,
        "id": written.id or f"functions.{written.name}:{number}",
        "skip": "tools",
        "index": str(number + 1),
    }
    for field, value in values.items():
        template = template.replace("{" + field + "}", value)
    return plain(template)


def _render_body(body: Body, call: Call, written: WrittenCall, number: int) -> str:
    arguments = written.arguments
    match body:
        case JsonCall():
            return _json_call(body, written)
        case JsonArguments(fence=fence):
            text = json.dumps(arguments, ensure_ascii=False)
            return f"```json\n{text}\n```" if fence else text
        case TaggedArguments():
            return "".join(_tagged(body, key, value) for key, value in arguments.items())
        case ElementTree(prefix=prefix):
            return "".join(_element(prefix, key, value) for key, value in arguments.items())
        case LaxArguments(delimiter=delimiter):
            return _lax(arguments, delimiter)
        case PythonCalls():
            return f"{written.name}({_keywords(arguments)})"
        case RawArgument(argument=argument):
            return str(arguments[argument])
        case NoArguments():
            return ""
        case ByFirstChar(choices=choices):
            return _render_body(choices[0][1], call, written, number)
        case _:
            assert_never(body)


def _json_call(body: JsonCall, written: WrittenCall) -> str:
    if body.name_is_key:
        return json.dumps({written.name: written.arguments}, ensure_ascii=False)
    value: dict[str, object] = {body.id_key: written.id} if written.id else {}
    value[body.name_keys[0]] = written.name
    value[body.argument_keys[0]] = written.arguments
    return json.dumps(value, ensure_ascii=False)


def _tagged(body: TaggedArguments, key: str, value: Json) -> str:
    text = value if isinstance(value, str) else _python(value) if body.typing == "python" else _json(value)
    if body.unescape_keys:
        key = key.replace("&", "&amp;").replace('"', "&quot;")
    opener = plain(body.params[-1] if "{type}" in body.params[-1] else body.params[0])
    opener = opener.replace("{key}", key).replace("{type}", _type_name(body, value))
    edge = "\n" if body.trim == "newline" else ""
    return opener + edge + text + edge + plain(body.closes[0]) + body.separator


def _type_name(body: TaggedArguments, value: Json) -> str:
    if body.text_types[0] == "true":
        return "true" if isinstance(value, str) else "false"
    match value:
        case str():
            return "string"
        case bool():
            return "boolean"
        case None:
            return "null"
        case int() | float():
            return "number"
        case Mapping():
            return "object"
        case _:
            return "array"


def _element(prefix: str, key: str, value: Json) -> str:
    match value:
        case str():
            inner = value
        case Mapping():
            inner = "".join(_element(prefix, name, member) for name, member in value.items())
        case list() | tuple():
            inner = "".join(_element(prefix, "item", member) for member in value)
        case _:
            inner = _json(value)
    return f"{prefix}<{key}>{inner}{prefix}</{key}>"


def _lax(value: Json, delimiter: str) -> str:
    match value:
        case str():
            return delimiter + value + delimiter
        case Mapping():
            return "{" + ",".join(f"{key}:{_lax(member, delimiter)}" for key, member in value.items()) + "}"
        case list() | tuple():
            return "[" + ",".join(_lax(member, delimiter) for member in value) + "]"
        case _:
            return _json(value)


def _keywords(arguments: Arguments) -> str:
    return ", ".join(f"{key}={_python(value)}" for key, value in arguments.items())


def _python(value: Json) -> str:
    return repr(value)


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)
