"""Reads one bare word: a number, a literal, or a string whose quotes are missing.

What it means is known at its end only, so a word is held until then. Words of several parts ("New York", "f(x, y)")
stay together; after a number or literal nothing but a separator is accepted.
"""

from __future__ import annotations

import re
from functools import cache

from stream_parser.json_text import read_scalar
from stream_parser.quote_rule import MAX_LOOKAHEAD, QuoteContext, Role, comma_role
from stream_parser.string_style import OPENERS

_OPENING, _CLOSING = "([{", ")]}"
STRING_PREFIXES = frozenset({"r", "b", "u", "f", "br", "rb", "fr", "rf"})
# Where a comma is followed by a name, so that a comma without one can be told to be text.
_NAMED_PLACES = ("member", "keyword_argument")
_ENDS = ",\n/#" + _OPENING + _CLOSING + "".join(sorted(OPENERS))


@cache
def _word_run(stops: str) -> re.Pattern[str]:
    return re.compile(f"[^{re.escape(_ENDS + stops)}]*")


class WordReader:
    """`open`, then `feed` until `closed`; the end is not consumed, but `rest` may be text read beyond it."""

    __slots__ = ("_comma", "_context", "_depth", "_is_text", "_pieces", "_run", "closed", "rest", "stopped")

    def __init__(self) -> None:
        self.closed = False
        self.stopped = False
        self.rest = ""

    def open(self, context: QuoteContext) -> None:
        self._context = context
        self._run = _word_run(context.stops)
        self._pieces: list[str] = []
        self._depth = 0
        self._comma = ""
        self._is_text = False  # holds a character that no number or literal has
        self.closed = False
        self.stopped = False
        self.rest = ""

    def begin(self, first: str) -> None:
        """The word's first characters, whatever they are."""
        self._pieces.append(first)

    @property
    def text(self) -> str:
        return "".join(self._pieces).strip()

    @property
    def blank(self) -> str:
        """The white space behind the word."""
        word = "".join(self._pieces)
        return word[len(word.rstrip()) :]

    def feed(self, text: str, pos: int) -> int:
        self.stopped = False
        while pos < len(text) and not self.closed and not self.stopped:
            if self._comma:
                pos = self._read_comma(text, pos)
                continue
            run = self._run.match(text, pos)
            assert run is not None
            if run[0]:
                self._pieces.append(run[0])
            pos = run.end()
            if pos < len(text):
                pos = self._read_special(text, pos)
        return pos

    def force(self, char: str) -> None:
        """The character that stopped us belongs to the word."""
        if self._comma:
            self._keep_comma()
        self._append_special(char)

    def end(self) -> None:
        """No more text."""
        if self._comma.strip(", \t\r\n"):
            self._keep_comma()
        self.rest, self._comma = self._comma + self.rest, ""
        self.closed = True

    def _read_special(self, text: str, pos: int) -> int:
        """The character at `pos` is no plain part of a word: is it one here? Returns the index to go on from."""
        char = text[pos]
        if self._depth or char in _OPENING:
            if char in self._context.stops:
                self.stopped = True
                return pos
            self._depth += (char in _OPENING) - (char in _CLOSING)
        elif char == "," and self._context.place in _NAMED_PLACES and not self._is_scalar():
            self._comma = char
            return pos + 1
        elif self._ends_at(char):
            self.closed = True
            return pos
        elif char in self._context.stops:
            self.stopped = True
            return pos
        self._append_special(char)
        return pos + 1

    def _append_special(self, text: str) -> None:
        self._pieces.append(text)
        self._is_text = True

    def _ends_at(self, char: str) -> bool:
        if char == ",":
            return True
        if char == "\n":
            return self._context.place not in ("keyword_argument", "argument")
        if char in _CLOSING:
            return char in self._context.closers or self._context.place not in ("member", "item") or self._is_scalar()
        if char in OPENERS:
            return self._is_prefix() or (self._follows_blank() and self._is_scalar())
        return char in "/#" and self._follows_blank() and self._is_scalar()

    def _is_scalar(self) -> bool:
        return not self._is_text and read_scalar(self.text) is not None

    def _is_prefix(self) -> bool:
        """A Python string prefix such as the r of r"..."."""
        return "".join(self._pieces[:3]).lower() in STRING_PREFIXES

    def _follows_blank(self) -> bool:
        return bool(self._pieces) and self._pieces[-1][-1:].isspace()

    def _read_comma(self, text: str, pos: int) -> int:
        """A comma may be text: what follows has to look like the next member's key."""
        longer = self._comma + text[pos]
        role = Role.CLOSE if len(longer) > MAX_LOOKAHEAD else comma_role(longer, self._context)
        if role is Role.STOP:
            self.stopped = True
            return pos
        self._comma = longer
        if role is Role.CLOSE:
            self.rest, self._comma = longer, ""
            self.closed = True
        elif role is Role.INNER:
            self._keep_comma()
        return pos + 1

    def _keep_comma(self) -> None:
        """The comma is text, and what was read behind it is read again."""
        rest, self._comma = self._comma[1:], ""
        self._append_special(",")
        self.rest = rest[self.feed(rest, 0) :] + self.rest
