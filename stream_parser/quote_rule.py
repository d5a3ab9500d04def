"""Does a quote character end its string, or is it text that should have been escaped?

Only what follows can tell. Valid JSON must never be misread, so a quote closes at once where what follows is what JSON
wants there; otherwise the rule reads on, at most `MAX_LOOKAHEAD` characters, and it never changes its mind: the answer
for a text is the answer for every longer one. That makes it independent of how the text is cut.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal

from stream_parser.string_style import OPENERS

MAX_LOOKAHEAD = 160

Place = Literal["key", "member", "item", "keyword_argument", "argument", "alone"]


class Role(Enum):
    CLOSE = auto()
    INNER = auto()  # text
    JOIN = auto()  # an adjacent literal follows, as in Python: 'a' 'b'
    TRIPLE = auto()  # the string opened with three quotes
    STOP = auto()  # the next character may begin a marker: its owner has to say


@dataclass(frozen=True, slots=True)
class QuoteContext:
    """Where the string stands. `closers`: those of the containers around it. `fresh`: nothing of its body came yet."""

    place: Place
    closers: str
    stops: str
    fresh: bool = False


_BLANK = re.compile(r"[ \t\r\n]*")
_NAME = re.compile(r"[\w$][\w.$-]*")
_WORD = re.compile(r"\w+")
_LITERALS = ("true", "false", "null", "True", "False", "None", "NaN", "Infinity")
_DIGITS = "0123456789-+"
_VALUE_STARTS = "{[" + _DIGITS


def quote_role(held: str, context: QuoteContext) -> Role | None:
    """`held` begins with the quote; None: more text is needed. Not asked where a string stands alone."""
    start = _blank_end(held, 1)
    if start == len(held):
        return None
    char = held[start]
    if context.fresh and start == 1 and char == held[0]:
        return Role.TRIPLE
    if char in "/#" and start > 1 and context.place in ("key", "member", "item"):
        return _before_comment(held, start)
    if context.place == "key":
        return _after_key(held, start, context)
    return _after_value(held, start, context)


def comma_role(held: str, context: QuoteContext) -> Role | None:
    """`held` begins with a comma behind a bare word: CLOSE where the next member follows, INNER where text goes on."""
    return _after_comma(held, 1, context)


def settle(held: str, context: QuoteContext) -> Role:
    """The answer where no more text will help: the end of the input, or too long a wait."""
    rest = held[1:].strip(" \t\r\n")
    if rest[:1] != ",":
        return Role.INNER if rest.strip(")] \t\r\n") else Role.CLOSE
    rest = rest[1:].lstrip(" \t\r\n")
    if context.place == "item":
        return Role.CLOSE if any(literal.startswith(rest) for literal in _LITERALS) else Role.INNER
    is_key = context.place == "member" and rest[:1] in ("'", '"')
    return Role.CLOSE if is_key or not rest.strip(")] \t\r\n") else Role.INNER


def _blank_end(text: str, pos: int) -> int:
    blank = _BLANK.match(text, pos)
    assert blank is not None
    return blank.end()


def _string_end(held: str, start: int) -> int:
    """The index behind the string that begins at `start`, or behind all text if that is not enough."""
    pos = start + 1
    while pos < len(held) and held[pos] != held[start]:
        pos += 2 if held[pos] == "\\" else 1
    return min(pos + 1, len(held))


def _before_comment(held: str, start: int) -> Role | None:
    if held[start] == "#":
        return Role.CLOSE if "\n" in held[:start] else Role.INNER
    if start + 1 == len(held):
        return None
    return Role.CLOSE if held[start + 1] in "/*" else Role.INNER


def _stop(char: str, context: QuoteContext) -> Role:
    return Role.STOP if char in context.stops else Role.INNER


def _after_key(held: str, start: int, context: QuoteContext) -> Role:
    char = held[start]
    if char in ":=,}" or char in OPENERS or (start > 1 and char in _VALUE_STARTS):
        return Role.CLOSE
    if char == "]" and "]" in context.closers:
        return Role.CLOSE
    return _stop(char, context)


def _after_value(held: str, start: int, context: QuoteContext) -> Role | None:
    char = held[start]
    if char == ",":
        return _after_comma(held, start + 1, context)
    if char in ")]" and context.place in ("keyword_argument", "argument"):
        return _after_call(held, start, context)
    if char in context.closers:
        return Role.CLOSE
    if char == "]" and context.place == "member":
        return _after_stray_bracket(held, start)
    if char in OPENERS:
        return _before_string(held, start, context)
    if context.place == "member" and "\n" in held[:start] and _NAME.match(held, start):
        return _named(held, start, ":", context)
    return _stop(char, context)


def _after_comma(held: str, pos: int, context: QuoteContext) -> Role | None:
    start = _blank_end(held, pos)
    if start == len(held):
        return None
    char = held[start]
    if context.place == "keyword_argument":
        return Role.CLOSE if char in ")*" else _named(held, start, "=", context)
    if char in "\"'" and context.place == "member":
        return _before_key(held, start)
    if char in OPENERS or char in context.closers or char in ",#":
        return Role.CLOSE
    if char == "/":
        return _before_comment(held, start)
    if context.place == "member":
        return _named(held, start, ":", context)
    if char in "[{(" or char in _DIGITS:
        return Role.CLOSE
    named = _named(held, start, "=", context) if context.place == "argument" else Role.INNER
    return _literal(held, start, context) if named is Role.INNER else named


def _before_key(held: str, start: int) -> Role | None:
    """Is the string behind the comma a key? In `print("a", "b")` it is none."""
    end = _string_end(held, start)
    after = _blank_end(held, end)
    if after == len(held):
        return None
    char = held[after]
    is_value = after > end and (char in _VALUE_STARTS or char in OPENERS)
    return Role.CLOSE if char in ":=" or is_value else Role.INNER


def _named(held: str, start: int, separator: str, context: QuoteContext) -> Role | None:
    """Does a name with its separator follow, as a key or a keyword argument begins?"""
    name = _NAME.match(held, start)
    if name is None:
        return _stop(held[start], context)
    end = _blank_end(held, name.end())
    if end == len(held):
        return None
    return Role.CLOSE if held[end] == separator else Role.INNER


def _literal(held: str, start: int, context: QuoteContext) -> Role | None:
    word = _WORD.match(held, start)
    if word is None:
        return _stop(held[start], context)
    if word.end() < len(held):
        return Role.CLOSE if word[0] in _LITERALS else Role.INNER
    return None if any(literal.startswith(word[0]) for literal in _LITERALS) else Role.INNER


def _after_call(held: str, start: int, context: QuoteContext) -> Role | None:
    """A closing parenthesis or bracket: does the list of calls go on or end behind it?"""
    end = _blank_end(held, start + 1)
    if "\n" in held[start:end]:
        return Role.CLOSE
    if end == len(held):
        return None
    return Role.CLOSE if held[end] in "]),;" or held[end] in context.stops else Role.INNER


def _after_stray_bracket(held: str, start: int) -> Role | None:
    end = _blank_end(held, start + 1)
    if end == len(held):
        return None
    return Role.CLOSE if held[end] == "}" else Role.INNER


def _before_string(held: str, start: int, context: QuoteContext) -> Role | None:
    """Another quote follows: a missing comma, an adjacent literal, or quotes inside the text?"""
    adjacent = start == 1
    ends = "," + context.closers + (")" if context.place in ("keyword_argument", "argument") else "")
    if adjacent:
        after = _blank_end(held, 2)
        if after == len(held):
            return None
        if held[after] in ends:
            return Role.INNER
    after = _blank_end(held, _string_end(held, start))
    if after == len(held):
        return None
    char = held[after]
    if char == ":" and context.place == "member":
        return Role.CLOSE
    is_chain = not adjacent and char == held[0] == held[start] and (context.place == "item" or char == "'")
    if char not in ends and not is_chain:
        return Role.INNER
    if context.place == "item" and held[0] != "'":
        return Role.CLOSE
    return Role.INNER if adjacent else Role.JOIN
