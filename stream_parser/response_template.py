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
from stream_parser.patterns import first_literal
from stream_parser.patterns import template as compile_template

MAX_ALTERNATIVES = 16

_REASONING_FIELDS = ("thinking", "reasoning_content", "reasoning")
_GROUP = re.compile(r"\(\?P<(\w+)>")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]")
_QUANTIFIER = re.compile(r"(?:[*+?]|\{\d*,?\d*\})[?+]?")
_FIELD = re.compile(r"\{(\w+)\}")
_BLANK = "\n"
_SKIP = "{skip}"
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


def import_response_template(template: Mapping[str, object], name: str = "response_template") -> Dialect:
    """The declaration that `template` amounts to. Raises `UnsupportedTemplate` for what no declaration can say."""
    if template.get("version", 1) != 1:
        raise UnsupportedTemplate(f"its version is {template['version']!r}")
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
        drop=() if answer.opens else answer.closes,
        turns=tuple(_anchors(template, "start_anchor", "start_anchor_pattern")),
    )


def _span(field: Mapping[str, object]) -> Span:
    return Span(
        opens=tuple(_marker(text) for text in _anchors(field, "open", "open_pattern")),
        closes=tuple(_marker(text) for text in _anchors(field, "close", "close_pattern")),
    )


def _marker(text: str) -> str:
    if _FIELD.search(text):
        raise UnsupportedTemplate(f"a marker of which a part varies: {text!r}")
    return text.replace(_BLANK, "{ws}")


def _calls(field: Mapping[str, object]) -> list[Call]:
    transform = field.get("transform")
    opens = [_rename(text, transform) for text in _anchors(field, "open", "open_pattern")]
    heads = tuple(_distinct(text) for text in opens if "{name}" in text)
    plain = tuple(_marker(text) for text in opens if "{name}" not in text)
    body = _body(field, names_itself=not heads)
    if isinstance(body, JsonArguments | LaxArguments | TaggedArguments) and (plain or not heads):
        raise UnsupportedTemplate("tool calls whose opening has no name")

    closes = [close.partition(_BLANK) for close in _anchors(field, "close", "close_pattern")]
    tails = tuple(dict.fromkeys(_marker(first) for first, blank, _ in closes if blank))
    if isinstance(body, TaggedArguments):
        tails = tails or _inner_closes(heads)
    ends = tuple(dict.fromkeys(_marker(rest if blank else first) for first, blank, rest in closes))
    ends = tuple(end for end in ends if end not in tails)
    found = []
    if heads:
        found.append(Call(body, heads=heads, tails=tails, closes=ends))
    if plain:
        found.append(Call(body, opens=plain, tails=tails, closes=ends))
    return found or [Call(body, tails=tails, closes=ends)]


def _inner_closes(heads: tuple[str, ...]) -> tuple[str, ...]:
    """A template may read `</function>` over as text between parameters, and state but the outermost closer."""
    tags = (re.search(r"<(\w[\w:.-]*)[^<>]*\{name\}[^<>]*>\Z", head) for head in heads)
    return tuple(dict.fromkeys(f"</{tag[1]}>" for tag in tags if tag))


def _rename(text: str, transform: object) -> str:
    """The groups that a transform puts in as name and id get these names; of others nothing is kept."""
    outer = transform if isinstance(transform, Mapping) else {}
    inner = outer.get("function", outer)
    named = {"name": inner.get("name") if isinstance(inner, Mapping) else None, "id": outer.get("id")}
    groups = {str(source)[1:-1]: field for field, source in named.items() if source}
    groups = groups if "name" in groups.values() else {"name": "name", **groups}
    return _FIELD.sub(lambda found: f"{{{groups.get(found[1], 'skip')}}}", text)


def _distinct(text: str) -> str:
    """`text`, if it begins with a literal and its fields end where what follows begins."""
    try:
        pattern = re.compile(compile_template(text, lenient=True).full)
    except re.error as error:
        raise UnsupportedTemplate(f"too many groups in {text!r}") from error
    if not (first_literal(text) and pattern.fullmatch(_FIELD.sub("x", text))):
        raise UnsupportedTemplate(f"the parts of {text!r} cannot be told apart")
    return text


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
        params.append(_distinct(before.rstrip(_BLANK)))
        closes.append(_marker(after.strip(_BLANK)))
    trims = re.search(r"\\s[*+?]*\(\?P<value>", pattern) is not None
    return TaggedArguments(
        params=tuple(dict.fromkeys(params)),
        closes=tuple(dict.fromkeys(closes)),
        trim="newline" if trims else "none",
    )


def _anchors(field: Mapping[str, object], literal: str, pattern: str) -> list[str]:
    if pattern in field:
        texts = read_pattern(str(field[pattern]))
        if pattern == "open_pattern" and not all(text.strip() for text in texts):
            raise UnsupportedTemplate(f"an opening that may be empty: {field[pattern]!r}")
    else:
        found = field.get(literal, ())
        texts = [found] if isinstance(found, str) else [str(t) for t in found] if isinstance(found, Iterable) else []
    return list(dict.fromkeys(text.strip() for text in texts if text.strip()))


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
            choices = _repeat(choices, quantifier[0], pattern)
        texts = [left + right for left, right in itertools.product(texts, choices)]
        if len(texts) > MAX_ALTERNATIVES:
            raise UnsupportedTemplate(f"pattern {pattern!r} with more than {MAX_ALTERNATIVES} alternatives")
    return texts, pos


def _repeat(choices: list[str], quantifier: str, pattern: str) -> list[str]:
    """A template's blanks stand for any blanks, and its fields for any number of characters."""
    if choices == [_BLANK]:
        return choices
    if quantifier[0] == "?" or (quantifier[0] == "*" and choices == [_SKIP]):
        return [*choices, ""]
    if choices == [_SKIP]:
        return choices
    raise UnsupportedTemplate(f"pattern {pattern!r} that repeats {choices[0]!r}")


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
    if pattern.startswith("(?=", pos):
        end = _group_end(pattern, pos)
        if end == len(pattern) or pattern[end] in "|)":
            return [""], end  # what may follow a marker, the machine knows from the body or the next opening
    if char == "(":
        raise UnsupportedTemplate(f"pattern {pattern!r} with a group at {pos}")
    char_class = _CLASS.match(pattern, pos)
    if char_class:
        return [_SKIP], char_class.end()
    if char in "^$":
        return [""], pos + 1
    return [_SKIP] if char == "." else [char], pos + 1


def _read_escape(pattern: str, pos: int) -> tuple[list[str], int]:
    char = pattern[pos + 1 : pos + 2]
    if char == "s":
        return [_BLANK], pos + 2
    if char in ("w", "d", "S"):
        return [_SKIP], pos + 2
    if char in ("b", "Z", "A"):
        return [""], pos + 2
    if char.isalnum() and char not in _ESCAPES:
        raise UnsupportedTemplate(f"pattern {pattern!r} with \\{char}")
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
