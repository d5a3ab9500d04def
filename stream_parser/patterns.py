"""Patterns that can say "not yet": the way every marker, header and closer of a dialect is recognised.

A `Pattern` is a pair of regular expressions over the same small language. `full` matches the whole construct; `partial`
matches exactly when everything from the position to the end of the text is a proper prefix of it, so the text has to
wait. If neither matches, the text is something else and is released. Repetitions are bounded, hence what waits is
bounded too, and matching it again with the next token costs a constant.

Knows nothing of roles or events. `partial` is only asked at positions where some character is left.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

MAX_SPACE = 64
MAX_NAME = 256

# A name ends before anything that markup, JSON or prose puts behind it; `{name}` in a template stands for this class.
NAME_CHARS = r"""[^\s<>{}()\[\]"'`=,;|｜\\]"""
# Keys of tagged parameters come from schemas: blanks inside are rare but legal.
KEY_CHARS = r"""[^<>"'\n=|]"""

# Fields of templates: the group they fill, and of which characters.
_FIELDS = {
    "name": ("name", NAME_CHARS),
    "word": ("name", r"\w"),
    "id": ("id", NAME_CHARS),
    "skip": ("skip", r"[^\n<>{}｜]"),
    "index": ("index", r"[0-9]"),
    "key": ("key", KEY_CHARS),
    "type": ("type", r"""[\w\[\], |]"""),
}
_TOKEN = re.compile(r"\{(?P<field>\w+)\}|\s+|[^\s{]+|\{")
_LENIENT_TOKEN = re.compile(r"""\{(?P<field>\w+)\}|\s+|[^\s{"=<>]+|.""")


@dataclass(frozen=True, slots=True)
class Pattern:
    full: str
    partial: str
    heads: frozenset[str]  # the one or two characters with which a match can begin; "" for any that is no blank
    nullable: bool = False


# A checkpoint may add its own suffix to every tag (`<think:opensource>`); it never matters which.
_SUFFIX = Pattern(r"(?::[\w.-]{1,32})?", r"(?::[\w.-]{0,32})?\Z", frozenset({":"}), nullable=True)


def lit(text: str) -> Pattern:
    partial = ""
    for char in reversed(text[:-1]):
        partial = rf"(?:\Z|{re.escape(char)}{partial})" if partial else rf"(?:\Z|{re.escape(char)}\Z)"
    return Pattern(re.escape(text), partial or r"\Z", frozenset({text[:2]}))


def space() -> Pattern:
    """Blanks or none, also a line break that the model spelled with backslash and n."""
    blank = rf"(?:\s|\\n){{0,{MAX_SPACE}}}"
    return Pattern(f"{blank}+", rf"{blank}\\?\Z", frozenset(), nullable=True)


def newlines(limit: int) -> Pattern:
    """Up to `limit` line breaks."""
    return Pattern(rf"\n{{0,{limit}}}", rf"\n{{0,{limit}}}\Z", frozenset({"\n"}), nullable=True)


def optional(pattern: Pattern) -> Pattern:
    return Pattern(f"(?:{pattern.full})?", pattern.partial, pattern.heads, nullable=True)


def one_of_chars(chars: str) -> Pattern:
    """An optional single character, e.g. a quote that some models leave out."""
    escaped = f"[{re.escape(chars)}]?"
    return Pattern(escaped, r"\Z", frozenset(chars), nullable=True)


def either(*patterns: Pattern) -> Pattern:
    """The first that matches wins, so put the longer of two with a common beginning first."""
    assert patterns
    if len(patterns) == 1:
        return patterns[0]
    return Pattern(
        f"(?:{'|'.join(p.full for p in patterns)})",
        f"(?:{'|'.join(p.partial for p in patterns)})",
        frozenset().union(*(p.heads for p in patterns)),
        any(p.nullable for p in patterns),
    )


def capture(group: str, chars: str, limit: int = MAX_NAME) -> Pattern:
    """As many `chars` as there are; they are never given back to what follows."""
    return Pattern(f"(?P<{group}>{chars}{{1,{limit}}}+)", rf"{chars}{{0,{limit}}}\Z", frozenset({""}))


def ahead(chars: str) -> Pattern:
    """The next character, not consumed, is one of `chars`."""
    return Pattern(f"(?=[{re.escape(chars)}])", r"\Z", frozenset(chars))


def ahead_of(pattern: Pattern) -> Pattern:
    return Pattern(f"(?={pattern.full})", pattern.partial, pattern.heads)


def ahead_negative(regex: str) -> Pattern:
    """The next character exists and does not match `regex`."""
    return Pattern(rf"(?!{regex}|\Z)", r"\Z", frozenset(), nullable=True)


def sequence(*patterns: Pattern) -> Pattern:
    assert patterns
    full = "".join(p.full for p in patterns)
    partial = patterns[-1].partial
    for pattern in reversed(patterns[:-1]):
        partial = f"(?:{pattern.partial}|{_anonymous(pattern.full)}{partial})"

    heads: frozenset[str] = frozenset()
    for pattern in patterns:
        heads |= pattern.heads
        if not pattern.nullable:
            break
    return Pattern(full, partial, heads, all(p.nullable for p in patterns))


def _anonymous(regex: str) -> str:
    """Group names may occur once in a regex; in `partial` nobody reads them."""
    return re.sub(r"\(\?P<\w+>", "(?:", regex)


def template(text: str, *, lenient: bool = False) -> Pattern:
    """Compile a header template such as `<function={name}>`.

    Blanks in it match any blanks or none: templates print line breaks that models leave out, and the reverse. With
    `lenient`, quotes may be of either kind or missing, and in a tag with `=` blanks may stand around its parts.
    """
    in_tag = lenient and "=" in text
    parts: list[Pattern] = []
    tokens = list((_LENIENT_TOKEN if lenient else _TOKEN).finditer(text))
    for token, following in itertools.zip_longest(tokens, tokens[1:]):
        stop = following[0][0] if following and not following["field"] else ""
        parts += _compile_token(token, stop, lenient, in_tag)
    return sequence(*parts)


def _compile_token(token: re.Match[str], stop: str, lenient: bool, in_tag: bool) -> list[Pattern]:
    """`stop` is the character behind it: a field ends there, even if it might go on."""
    field, piece = token["field"], token[0]
    if field == "suffix":
        return [_SUFFIX]
    if field == "ws" or piece.isspace():
        return [space()]
    if field:
        group, chars = _FIELDS[field]
        ends = stop and not stop.isspace() and re.fullmatch(chars, stop)
        return [capture(group, f"(?:(?!{re.escape(stop)}){chars})" if ends else chars)]
    if lenient and piece == '"':
        return [one_of_chars("\"'")]
    if in_tag and piece == "=":
        return [space(), lit("="), space()]
    if in_tag and piece == "<":
        return [lit("<"), space()]
    if in_tag and piece == ">":
        return [space(), lit(">")]
    return [lit(piece)]


def first_literal(text: str) -> str:
    """The marker with which a template begins: what is before its first captured field, blank or quote."""
    return re.split(r"\{(?!ws\}|suffix\})\w+\}|[\s\"=]", text, maxsplit=1)[0]


def tag_start(text: str) -> Pattern:
    """The beginning of a lenient template, up to its first field or blank."""
    start = first_literal(text)
    if "=" in text and start.startswith("<") and len(start) > 1:
        return sequence(lit("<"), space(), marker(start[1:]))
    return marker(start)


def marker(text: str) -> Pattern:
    """Compile a marker: verbatim, but for `{suffix}` and `{ws}` (blanks or none)."""
    parts = []
    for piece in re.split(r"(\{suffix\}|\{ws\})", text):
        if piece == "{suffix}":
            parts.append(_SUFFIX)
        elif piece == "{ws}":
            parts.append(space())
        elif piece:
            parts.append(lit(piece))
    return sequence(*parts)


def plain(marker_text: str) -> str:
    """A marker as models write it, without the placeholders for what may vary."""
    return marker_text.replace("{ws}", "").replace("{suffix}", "")


def trigger_regex(heads: frozenset[str]) -> re.Pattern[str]:
    """Finds the next position at which any of `heads` begins, or may begin at the end of the text."""
    if "" in heads:
        return re.compile(r"\S")
    by_first: dict[str, set[str]] = {}
    for head in heads:
        by_first.setdefault(head[0], set()).add(head[1:])
    alternatives = []
    for first, seconds in sorted(by_first.items()):
        if "" in seconds:
            alternatives.append(re.escape(first))
        else:
            chars = "".join(re.escape(c) for c in sorted(seconds))
            alternatives.append(rf"{re.escape(first)}(?:[{chars}]|\Z)")
    return re.compile("|".join(alternatives) if alternatives else r"(?!)")
