"""Imports a checkpoint's `response_template` (tokenizer_config.json, Transformers >= 5.13) as a declaration.

Such a template states, for each field of a message, what opens and closes it and how its content reads. Its patterns
are regular expressions; only the part of their language that markers need is understood, the rest is refused by name.
What is imported behaves like every other dialect: it streams, types values by schema, recovers as the usual set says.

Format: https://huggingface.co/docs/transformers/main/chat_response_parsing (2026-11).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence

from stream_parser.dialect import (
    Call,
    Dialect,
    JsonArguments,
    JsonCall,
    LaxArguments,
    PythonCalls,
    SimpleBody,
    Span,
    TaggedArguments,
)
from stream_parser.errors import UnsupportedTemplate

MAX_ALTERNATIVES = 16

_REASONING_FIELDS = ("thinking", "reasoning_content", "reasoning")
_GROUP = re.compile(r"\(\?P<(\w+)>")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]")
_QUANTIFIER = re.compile(r"(?:[*+?]|\{\d*,?\d*\})\??")
_BLANK = "\n"
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


def import_response_template(template: Mapping[str, object], name: str = "response_template") -> Dialect:
    """The declaration that `template` amounts to. Raises `UnsupportedTemplate` for what no declaration can say."""
    fields = template.get("fields")
    if not isinstance(fields, Mapping):
        raise UnsupportedTemplate("it has no fields")
    reasoning = [_span(fields[field]) for field in _REASONING_FIELDS if isinstance(fields.get(field), Mapping)]
    content = fields.get("content")
    answer = _span(content) if isinstance(content, Mapping) else Span()
    calls = fields.get("tool_calls")
    return Dialect(
        name=name,
        families=("imported from a checkpoint",),
        syntax="as the checkpoint's response_template says",
        reasoning=tuple(reasoning),
        answer=(answer,) if answer.opens else (),
        calls=tuple(_calls(calls)) if isinstance(calls, Mapping) else (),
        drop=() if answer.opens else tuple(close.strip() for close in answer.closes if close.strip()),
        turns=tuple(_anchors(template, "start_anchor", "start_anchor_pattern")),
    )


def _span(field: Mapping[str, object]) -> Span:
    opens = tuple(text.strip() for text in _anchors(field, "open", "open_pattern"))
    closes = tuple(text.strip() for text in _anchors(field, "close", "close_pattern"))
    return Span(opens=opens, closes=closes)


def _calls(field: Mapping[str, object]) -> list[Call]:
    opens = [text.strip() for text in _anchors(field, "open", "open_pattern")]
    closes = tuple(text.strip() for text in _anchors(field, "close", "close_pattern"))
    body = _body(field, names_itself=not any("{name}" in text for text in opens))
    tails = tuple(dict.fromkeys(close.split(_BLANK)[0] for close in closes if _BLANK in close))
    last = tuple(dict.fromkeys(close.split(_BLANK)[-1] for close in closes))
    call = Call(body, tails=tails, closes=last)
    headed = [text for text in opens if "{name}" in text]
    plain = tuple(text for text in opens if "{name}" not in text)
    found = []
    if headed:
        found.append(Call(body, heads=tuple(headed), tails=tails, closes=last))
    if plain:
        found.append(Call(body, opens=plain, tails=tails, closes=last))
    return found or [call]


def _body(field: Mapping[str, object], names_itself: bool) -> SimpleBody:
    content = field.get("content", "text")
    arguments = field.get("content_args")
    options: Mapping[str, object] = arguments if isinstance(arguments, Mapping) else {}
    if content == "json" and names_itself:
        return _json_call(field.get("transform"))
    if content == "json":
        delimiters = options.get("string_delims")
        if isinstance(delimiters, Sequence) and delimiters:
            return LaxArguments(str(delimiters[0][0]))
        return JsonArguments()
    if content == "xml-inline":
        return _tags(str(options.get("tag_pattern", "")))
    if content == "python-call-list":
        return PythonCalls()
    raise UnsupportedTemplate(f"tool calls whose content is {content!r}")


def _json_call(transform: object) -> JsonCall:
    """`{content.tool_name}` in a transform tells under which key the name is, the same for the arguments."""
    function = transform.get("function", transform) if isinstance(transform, Mapping) else None
    if not isinstance(function, Mapping):
        return JsonCall()

    def key(field: str, usual: tuple[str, ...]) -> tuple[str, ...]:
        path = re.fullmatch(r"\{content\.(\w+)\}", str(function.get(field, "")))
        return tuple(dict.fromkeys((path[1], *usual))) if path else usual

    return JsonCall(name_keys=key("name", ("name",)), argument_keys=key("arguments", ("arguments", "parameters")))


def _tags(pattern: str) -> TaggedArguments:
    params, closes = [], []
    for text in read_pattern(pattern):
        before, value, after = text.partition("{value}")
        if not value or "{key}" not in before:
            raise UnsupportedTemplate(f"tag_pattern {pattern!r} without a key before its value")
        params.append(before.rstrip(_BLANK))
        closes.append(after.strip(_BLANK))
    trims = re.search(r"\\s[*+?]*\(\?P<value>", pattern) is not None
    return TaggedArguments(
        params=tuple(dict.fromkeys(params)),
        closes=tuple(dict.fromkeys(closes)),
        trim="newline" if trims else "none",
    )


def _anchors(field: Mapping[str, object], literal: str, pattern: str) -> list[str]:
    if pattern in field:
        return read_pattern(str(field[pattern]))
    found = field.get(literal, ())
    return [found] if isinstance(found, str) else [str(text) for text in found] if isinstance(found, Iterable) else []


def read_pattern(pattern: str) -> list[str]:
    """The templates that a marker's regular expression stands for, one for each of its alternatives."""
    templates, end = _read_alternatives(pattern, 0)
    if end != len(pattern):
        raise UnsupportedTemplate(f"pattern {pattern!r} at {end}")
    return list(dict.fromkeys(templates))


def _read_alternatives(pattern: str, pos: int) -> tuple[list[str], int]:
    found: list[str] = []
    while True:
        sequence, pos = _read_sequence(pattern, pos)
        found += sequence
        if pos >= len(pattern) or pattern[pos] != "|":
            return found, pos
        pos += 1


def _read_sequence(pattern: str, pos: int) -> tuple[list[str], int]:
    texts = [""]
    while pos < len(pattern) and pattern[pos] not in "|)":
        choices, pos = _read_atom(pattern, pos)
        quantifier = _QUANTIFIER.match(pattern, pos)
        if quantifier:
            pos = quantifier.end()
            if quantifier[0][0] in "*?" and choices != [_BLANK]:
                choices = [*choices, ""]
        texts = [left + right for left, right in itertools.product(texts, choices)]
        if len(texts) > MAX_ALTERNATIVES:
            raise UnsupportedTemplate(f"pattern {pattern!r} with more than {MAX_ALTERNATIVES} alternatives")
    return texts, pos


def _read_atom(pattern: str, pos: int) -> tuple[list[str], int]:
    char = pattern[pos]
    if char == "\\":
        return _read_escape(pattern, pos)
    group = _GROUP.match(pattern, pos)
    if group:
        return [f"{{{group[1]}}}"], _group_end(pattern, pos)
    if pattern.startswith("(?:", pos):
        choices, end = _read_alternatives(pattern, pos + 3)
        return choices, end + 1
    if char == "(":
        raise UnsupportedTemplate(f"pattern {pattern!r} with a group at {pos}")
    char_class = _CLASS.match(pattern, pos)
    if char_class:
        return ["{skip}"], char_class.end()
    return ["{skip}"] if char == "." else [char], pos + 1


def _read_escape(pattern: str, pos: int) -> tuple[list[str], int]:
    char = pattern[pos + 1 : pos + 2]
    if char == "s":
        return [_BLANK], pos + 2
    if char in ("w", "d", "S"):
        return ["{skip}"], pos + 2
    if char in ("b", "Z", "A"):
        return [""], pos + 2
    return [_ESCAPES.get(char, char)], pos + 2


def _group_end(pattern: str, pos: int) -> int:
    depth = 0
    while pos < len(pattern):
        char = pattern[pos]
        char_class = _CLASS.match(pattern, pos) if char == "[" else None
        if char == "\\":
            pos += 1
        elif char_class:
            pos = char_class.end() - 1
        else:
            depth += (char == "(") - (char == ")")
            if depth == 0:
                return pos + 1
        pos += 1
    raise UnsupportedTemplate(f"pattern {pattern!r} with an open group")
