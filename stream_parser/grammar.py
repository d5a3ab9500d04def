"""Compiles a declaration into the tables with which text is read: which marker may stand where, and what ends a body.

Knows the declaration types and patterns; knows nothing of events or of a parser's state. Compiled once a dialect.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import lru_cache
from typing import assert_never

from stream_parser import patterns as pat
from stream_parser.dialect import (
    Body,
    ByFirstChar,
    Call,
    Dialect,
    ElementTree,
    JsonArguments,
    JsonCall,
    LaxArguments,
    Messages,
    NoArguments,
    PythonCalls,
    RawArgument,
    TaggedArguments,
)
from stream_parser.patterns import Pattern

MAX_HEADER = 120


class Role(Enum):
    REASONING_OPEN = auto()
    REASONING_CLOSE = auto()
    ANSWER_OPEN = auto()
    ANSWER_CLOSE = auto()
    STRAY = auto()  # closers of sections and calls, met outside of one
    TURN_END = auto()
    CALL = auto()
    HEADER = auto()
    MESSAGE_END = auto()


_FENCE = (pat.optional(pat.sequence(pat.lit("```"), pat.optional(pat.lit("json")), pat.space())),)
_CALL = frozenset({Role.CALL})


@dataclass(frozen=True, slots=True)
class Ends:
    """What may stand behind a body, and what ends one that was not closed."""

    tail: re.Pattern[str]
    close: re.Pattern[str]
    partial: re.Pattern[str]  # some text that may still become a tail or a close
    boundary: re.Pattern[str]
    boundary_partial: re.Pattern[str]
    stops: str  # first characters of `boundary`
    has_tail: bool
    has_close: bool
    boundary_pattern: Pattern


@dataclass(frozen=True, slots=True)
class CompiledCall:
    call: Call
    body: Body
    ends: Ends
    dialect: Dialect


@dataclass(frozen=True, slots=True)
class Entry:
    roles: frozenset[Role]
    pattern: Pattern
    special: bool = False
    opened: re.Pattern[str] | None = None  # the first marker of a header, complete
    call: CompiledCall | None = None
    known_name: bool = False
    loose: bool = False  # the opener before the head is missing
    first_only: bool = False
    line_only: bool = False  # counts at the start of a line
    ends_reasoning: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    trigger: re.Pattern[str]
    full: re.Pattern[str]
    partial: re.Pattern[str]
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Grammar:
    dialect: Dialect
    plain: Table  # where no call counts
    plain_edge: Table  # the same right behind markup, where more can begin
    reasoning: Table
    content: Table
    content_edge: Table
    message_call: CompiledCall | None


@lru_cache(maxsize=256)
def compile_dialect(dialect: Dialect) -> Grammar:
    markers = _marker_entries(dialect)
    headers, message_call = _header_entries(dialect)
    marked: list[Entry] = []
    unmarked: list[Entry] = []  # nobody could tell them from thoughts about calls
    at_edge: list[Entry] = []
    for call in dialect.calls:
        compiled = CompiledCall(call, call.body, _ends(dialect, call), dialect)
        if call.anchor == "anywhere":
            found = marked if call.opens or call.heads else unmarked
            found += _call_entries(dialect, compiled)
            continue
        at_edge += _call_entries(dialect, compiled, separator=True)
        if call.anchor == "line":
            unmarked += (replace(entry, line_only=True) for entry in _call_entries(dialect, compiled, fenced=False))

    edge_headers = [e for e in headers if e.first_only]
    inner_headers = [e for e in headers if not e.first_only]
    return Grammar(
        dialect,
        plain=_table([*inner_headers, *markers]),
        plain_edge=_table([*headers, *markers]),
        reasoning=_table([*marked, *inner_headers, *markers]),
        content=_table([*marked, *unmarked, *inner_headers, *markers]),
        content_edge=_table([*marked, *unmarked, *at_edge, *inner_headers, *edge_headers, *markers]),
        message_call=message_call,
    )


def _marker_entries(dialect: Dialect) -> list[Entry]:
    roles: dict[str, set[Role]] = {}
    bare: set[str] = set()
    enders: set[str] = set()

    def add(role: Role, literals: Iterable[str]) -> None:
        for literal in literals:
            roles.setdefault(literal, set()).add(role)

    for span in dialect.reasoning:
        add(Role.REASONING_OPEN, (*span.opens, *span.bare_opens))
        bare.update(span.bare_opens)
        add(Role.REASONING_CLOSE, span.closes)
    for span in dialect.answer:
        add(Role.ANSWER_OPEN, (*span.opens, *span.bare_opens))
        bare.update(span.bare_opens)
        add(Role.ANSWER_CLOSE, span.closes)
        if span.ends_reasoning:
            enders.update(span.opens)
    for section in dialect.sections:
        add(Role.STRAY, section.closes)
    for call in dialect.calls:
        add(Role.STRAY, (*call.closes, *call.tails))
    if dialect.messages:
        add(Role.MESSAGE_END, dialect.messages.ends)
    add(Role.STRAY, dialect.noise)
    add(Role.TURN_END, dialect.drop)

    return [
        Entry(
            frozenset(roles[literal]),
            pat.marker(literal),
            special=_is_special(dialect, literal),
            first_only=literal in bare,
            ends_reasoning=literal in enders or _is_special(dialect, literal),
        )
        for literal in sorted(roles, key=len, reverse=True)
    ]


def _is_special(dialect: Dialect, literal: str) -> bool:
    """It is a special token, or begins with one."""
    return any(literal.startswith(token) for token in dialect.special)


def _call_entries(
    dialect: Dialect, compiled: CompiledCall, *, separator: bool = False, fenced: bool = True
) -> list[Entry]:
    """The ways in which a call can begin.

    With `separator` a comma or semicolon may part it from the one before; with `fenced` JSON may be in a code fence.
    """
    call = compiled.call
    sections = tuple(opener for section in dialect.sections for opener in section.opens)
    starts = (*sections, *(call.opens or [pat.first_literal(h) for h in call.heads if pat.first_literal(h)]))
    special = any(_is_special(dialect, start) for start in starts)
    opened = re.compile(_any(starts).full) if starts else None

    section = [_any(sections), pat.space()] if sections else []
    tolerant = "missing_section_open" in dialect.recovery
    if section and call.opens and tolerant:
        section = [pat.optional(pat.sequence(*section))]
    lead = [*section, _any(call.opens), pat.space()] if call.opens else section
    if separator:
        lead = [pat.one_of_chars(";,"), pat.space(), *lead]
    entries = []
    for head in call.heads or ("",):
        rest = [*_head(head), *_body_start(compiled, fenced)]
        pattern = pat.sequence(*lead, *rest)
        entries.append(Entry(_CALL, pattern, special, opened, compiled, call.known_name))
        if head and (_may_lack_opener(dialect, call) or (section and tolerant and not call.opens)):
            bare = re.compile(pat.marker(pat.first_literal(head)).full)
            entries.append(Entry(_CALL, pat.sequence(*rest), False, bare, compiled, known_name=True, loose=True))
    return entries


def _may_lack_opener(dialect: Dialect, call: Call) -> bool:
    return bool(call.opens) and "missing_call_open" in dialect.recovery


def _head(head: str) -> list[Pattern]:
    return [pat.template(head, lenient=True), pat.space()] if head else []


def _body_start(compiled: CompiledCall, fenced: bool) -> list[Pattern]:
    """What must be seen of the body before the header counts: prose that names a marker does not go on like that."""
    call, body = compiled.call, compiled.body
    closers = (*call.tails, *call.closes)
    match body:
        case JsonCall():
            return [*(_FENCE if fenced else ()), pat.ahead("[{")]
        case JsonArguments():
            follow = [pat.ahead('{"'), *(pat.ahead_of(pat.marker(c)) for c in closers)]
            return [*_FENCE, pat.either(*follow)]
        case TaggedArguments(params=params, closes=closes):
            starts = [pat.tag_start(p) for p in params]
            return [pat.ahead_of(pat.either(*starts, *(pat.marker(c) for c in (*closers, *closes))))]
        case ElementTree(prefix=prefix):
            return [pat.ahead_of(pat.lit(prefix))]
        case LaxArguments():
            return [pat.ahead("{(")]
        case PythonCalls() if call.heads:
            return []
        case PythonCalls(brackets=brackets):
            bracket = pat.sequence(pat.lit("["), pat.space())
            lead = [bracket] if brackets and not call.opens else [pat.optional(bracket), pat.optional(bracket)]
            name = pat.capture("name", r"[\w.\-]")
            return [*lead, name, pat.space(), pat.lit("(")]
        case ByFirstChar():
            return [pat.Pattern(r"(?=\S)", r"\Z", frozenset())]
        case RawArgument():
            return [pat.space(), pat.ahead_negative(r"[\s{\[]")]
        case NoArguments():
            return []
        case _:
            assert_never(body)


def _header_entries(dialect: Dialect) -> tuple[list[Entry], CompiledCall | None]:
    messages = dialect.messages
    if messages is None:
        return [], None

    special = _is_special(dialect, messages.starts[0])
    header = _header_pattern(messages)
    role = frozenset({Role.HEADER})
    started = pat.sequence(_any(messages.starts), header)
    entries = [Entry(role, started, special, re.compile(_any(messages.starts).full))]
    for opening in messages.openings:
        bare = pat.sequence(pat.ahead_of(pat.lit(opening)), header)
        bare = Pattern(bare.full, bare.partial, frozenset({opening[:2]}))
        opened = re.compile(pat.lit(opening).full)
        entries.append(Entry(role, bare, special, opened, first_only=not _is_special(dialect, opening)))

    compiled = None
    if messages.body is not None:
        call = Call(messages.body, closes=messages.ends)
        compiled = CompiledCall(call, messages.body, _ends(dialect, call), dialect)
    return entries, compiled


def _header_pattern(messages: Messages) -> Pattern:
    token = pat.either(*(pat.lit(t) for t in messages.tokens)) if messages.tokens else None
    unit = f"(?:{token.full}|{messages.header_chars})" if token else messages.header_chars
    message = pat.marker(messages.message)
    rest = f"(?:{token.partial}|{message.partial})" if token else message.partial
    return Pattern(
        f"(?P<header>{unit}{{0,{MAX_HEADER}}}?){message.full}",
        rf"{unit}{{0,{MAX_HEADER}}}{rest}",
        frozenset(),
    )


def _ends(dialect: Dialect, call: Call) -> Ends:
    tail = _any(call.tails) if call.tails else None
    close = _any(call.closes) if call.closes else None
    own = [p for p in (tail, close) if p]

    outer: list[str] = [c for s in dialect.sections for c in (*s.closes, *s.opens)]
    outer += [o for c in dialect.calls for o in c.opens]
    outer += [pat.first_literal(h) for c in dialect.calls if not c.opens for h in c.heads]
    outer += [*dialect.drop]
    if dialect.messages:
        outer += [*dialect.messages.ends, *dialect.messages.starts]
    bounds = [*own, *(pat.marker(o) for o in sorted(set(outer), key=len, reverse=True) if o)]
    boundary = pat.either(*bounds) if bounds else pat.Pattern(r"(?!)", r"(?!)", frozenset())
    return Ends(
        re.compile(tail.full if tail else r"(?!)"),
        re.compile(close.full if close else r"(?!)"),
        re.compile("|".join(p.partial for p in own) or r"(?!)"),
        re.compile(boundary.full),
        re.compile(boundary.partial),
        "".join(sorted({h[0] for h in boundary.heads})),
        tail is not None,
        close is not None,
        boundary,
    )


def _any(literals: tuple[str, ...]) -> Pattern:
    return pat.either(*(pat.marker(text) for text in sorted(literals, key=len, reverse=True)))


def _table(entries: list[Entry]) -> Table:
    full = []
    for number, entry in enumerate(entries):
        named = re.sub(r"\(\?P<(\w+)>", lambda m, n=number: f"(?P<{m[1]}{n}>", entry.pattern.full)  # type: ignore[misc]
        full.append(f"(?P<e{number}>{named})")
    heads: frozenset[str] = frozenset().union(*(e.pattern.heads for e in entries)) if entries else frozenset()
    trigger = pat.trigger_regex(heads)
    return Table(
        trigger,
        re.compile("|".join(full) or r"(?!)"),
        re.compile("|".join(e.pattern.partial for e in entries) or r"(?!)"),
        tuple(entries),
    )
