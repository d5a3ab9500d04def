"""The compiled form of a dialect's key and value tags: what begins a parameter, and what ends a value.

A closing tag is an end only if the next parameter or the end of the call stands behind it. Where the dialect recovers
from a missing closer, so is the next parameter by itself, and the whole end of the call. Knows nothing of state.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from stream_parser import patterns as pat
from stream_parser.dialect import TaggedArguments
from stream_parser.grammar import CompiledCall

CDATA_OPEN, CDATA_CLOSE = "<![CDATA[", "]]>"


@dataclass(frozen=True, slots=True)
class TagPlan:
    """The compiled form of one dialect's tags."""

    param: re.Pattern[str]
    param_partial: re.Pattern[str]
    hint: re.Pattern[str]  # where something but a parameter's text can begin
    end: re.Pattern[str]
    end_partial: re.Pattern[str]
    end_of_turn: re.Pattern[str]
    stray: re.Pattern[str]  # a value's closer outside of a value
    cdata_end: re.Pattern[str]


@lru_cache(maxsize=256)
def plan_tags(tags: TaggedArguments, compiled: CompiledCall) -> TagPlan:
    call, ends = compiled.call, compiled.ends
    params = [_numbered(pat.template(p, lenient=True), n) for n, p in enumerate(tags.params)]
    param = pat.either(*params)
    trim = {"newline": pat.newlines(1), "strip": pat.space(), "none": None}[tags.trim]
    lead = [trim] if trim else []
    close = pat.either(*(pat.marker(c) for c in tags.closes))

    openers = [pat.tag_start(p) for p in tags.params]
    follow = pat.ahead_of(pat.either(*openers, ends.boundary_pattern))
    proper = pat.sequence(*lead, close, pat.space(), follow)

    alternatives = [proper]
    if "missing_value_close" in compiled.dialect.recovery:
        alternatives += _ends_without_closer(tags, compiled)
    wrapped = [_wrapped(p, group) for p, group in zip(alternatives, ("proper", "next", "tail"), strict=False)]
    end = pat.either(*wrapped)

    base = pat.trigger_regex(_without_blanks(end.heads)).pattern
    blanks = {"newline": r"\n{0,2}", "strip": r"\s*", "none": r"\n?"}[tags.trim]
    held = {"newline": r"\n{1,2}\Z", "strip": r"\s+\Z", "none": r"\n\Z"}[tags.trim]
    last = [*(pat.marker(t) for t in (*tags.closes, *call.tails, *call.closes))]
    any_last = "|".join(p.full for p in last)
    trim_full = trim.full if trim else ""
    return TagPlan(
        re.compile(param.full),
        re.compile(param.partial),
        re.compile(f"{blanks}(?:{base})|{held}"),
        re.compile(end.full),
        re.compile(end.partial),
        re.compile(rf"{trim_full}(?:{any_last})(?:\s*(?:{any_last}))*\s*\Z"),
        re.compile(close.full),
        re.compile(rf"{re.escape(CDATA_CLOSE)}\s*{close.full}"),
    )


def _ends_without_closer(tags: TaggedArguments, compiled: CompiledCall) -> list[pat.Pattern]:
    """The next parameter, or the whole end of the call with another call behind it, where the closer was forgotten.

    Line breaks that templates write around the closer go with it.
    """
    lead = [pat.space()] if tags.trim == "strip" else [pat.newlines(2 if tags.trim == "newline" else 1)]
    call, ends = compiled.call, compiled.ends
    params = pat.either(*(_anonymous(pat.template(p, lenient=True)) for p in tags.params))
    key = pat.either(*(_numbered(pat.template(p, lenient=True), n) for n, p in enumerate(tags.params)))
    following = pat.Pattern(f"(?={key.full})", params.partial, params.heads)
    found = [pat.sequence(*lead, following)]

    tail = [pat.either(*(pat.marker(t) for t in call.tails)), pat.space()] if call.tails else []
    closers = [pat.either(*(pat.marker(c) for c in call.closes)), pat.space()] if call.closes else []
    if tail and closers:
        tail = [pat.optional(pat.sequence(*tail))]
    if tail or closers:
        whole = pat.sequence(*tail, *closers, pat.ahead_of(ends.boundary_pattern))
        found.append(pat.sequence(*lead, pat.ahead_of(whole)))
    return found


def _without_blanks(heads: frozenset[str]) -> frozenset[str]:
    return frozenset(head for head in heads if not head.isspace())


def _wrapped(pattern: pat.Pattern, group: str) -> pat.Pattern:
    return pat.Pattern(f"(?P<{group}>{pattern.full})", pattern.partial, pattern.heads)


def _numbered(pattern: pat.Pattern, number: int) -> pat.Pattern:
    full = re.sub(r"\(\?P<(\w+)>", lambda m: f"(?P<{m[1]}{number}>", pattern.full)
    return pat.Pattern(full, pattern.partial, pattern.heads)


def _anonymous(pattern: pat.Pattern) -> pat.Pattern:
    return pat.Pattern(re.sub(r"\(\?P<\w+>", "(?:", pattern.full), pattern.partial, pattern.heads)
