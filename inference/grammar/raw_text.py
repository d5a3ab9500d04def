"""Regexes of text that contains none of certain markers, spelled so that the lexer's masks stay cheap.

A complement would say the same in a word, but with a length bound its mask costs 0.5 ms a token instead of 0.05, and
building it may take seconds (docs/adr/0006): the lexer's vocabulary slices see through character classes only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

_MAX_RUN = 15  # first characters of markers side by side (`<<<`)
# What the parser's typing rules take for another type than text, in either case, with blanks behind it.
_WORDS = ("true", "false", "null", "none", "nan", "inf", "infinity")
_BLANKS = frozenset(" \t\n\r\f\v\xa0")
_NO_TEXT = _BLANKS | set("{[\"'(-+.0123456789")
_Trie: TypeAlias = dict[str, "_Trie"]


def escaped(text: str) -> str:
    """A regex for the text itself."""
    return re.sub(r"[\\.+*?()|\[\]{}^$#&\-~/]", r"\\\g<0>", text)


@dataclass(frozen=True, slots=True)
class Marked:
    """`unit*rest` matches text in which no marker stands; a unit is a character, or a few of which the last one counts.

    heads: the characters with which markers begin. odd: units that begin with one of them.
    """

    unit: str
    odd: str
    rest: str
    heads: frozenset[str]

    def text(self, low: int, high: int) -> str:
        return f"{self.unit}{{{low},{high}}}{self.rest}"

    def plain_text(self, high: int) -> str:
        """Text that is no JSON and no other word of a type, and begins with no blank."""
        more = f"{self.unit}{{0,{high}}}{self.rest}"
        starts = [_none_of(self.heads | _NO_TEXT | {c for word in _WORDS for c in (word[0], word[0].upper())})]
        starts += [self.odd] if self.odd else []
        words: _Trie = {}
        for word in _WORDS:
            _insert(words, word)
        starts += _spelled(words, self.heads, _departures)
        short = "|".join(_spelled(words, self.heads, _shorter))
        return f"(?:(?:{'|'.join(starts)}){more}{'|' + short if short else ''})?"

    def text_after(self, start: Marked, high: int) -> str:
        """Text that begins as `start` allows it, which rules out more, and with no blank."""
        first = "|".join(filter(None, [_none_of(start.heads | _BLANKS), start.odd]))
        return f"(?:(?:{first}){self.unit}{{0,{high}}}{self.rest})?"


def without(markers: Iterable[str]) -> Marked:
    """A little more than the markers is ruled out.

    They are cut before a second character with which some marker begins, and behind a longer beginning of one (`</par`)
    the next does not follow at once.
    """
    listed = [marker for marker in markers if marker]
    heads = frozenset(marker[0] for marker in listed)
    cut = sorted({_cut(marker, heads) for marker in listed}, key=len)
    root: _Trie = {}
    for number, marker in enumerate(cut):
        # Longer markers that begin like a shorter one add nothing.
        if not marker.startswith(tuple(cut[:number])):
            _insert(root, marker)
    if not root:
        return Marked("(?s:.)", "", "", frozenset())
    run = "[" + "".join(escaped(char) for char, below in sorted(root.items()) if below) + "]"
    run = f"{run}{{0,{_MAX_RUN}}}" if any(root.values()) else ""
    mismatches = _mismatches(root, heads)
    odd = f"{run}(?:{mismatches})" if mismatches else ""
    unit = f"(?:{_none_of(heads)}|{odd})" if odd else _none_of(heads)
    beginnings = _beginnings(root)
    return Marked(unit, odd, f"{run}(?:{beginnings})?" if beginnings else "", heads)


def _cut(marker: str, heads: frozenset[str]) -> str:
    for index, char in enumerate(marker[1:], 1):
        if char in heads:
            return marker[:index]
    return marker


def _insert(node: _Trie, marker: str) -> None:
    for char in marker:
        node = node.setdefault(char, {})


def _none_of(chars: Iterable[str]) -> str:
    return "[^" + "".join(escaped(char) for char in sorted(chars)) + "]"


def _beginnings(node: _Trie) -> str:
    """A proper beginning of some marker: at least one character, and not all of it."""
    options = []
    for char, below in node.items():
        if below:
            inner = _beginnings(below)
            options.append(escaped(char) + (f"(?:{inner})?" if inner else ""))
    return "|".join(options)


def _mismatches(node: _Trie, heads: frozenset[str]) -> str:
    """A proper beginning, and then a character that neither goes on with it nor begins another."""
    options = []
    for char, below in node.items():
        if below:
            deeper = _mismatches(below, heads)
            ends = _none_of(heads | below.keys())
            options.append(f"{escaped(char)}(?:{ends}{'|' + deeper if deeper else ''})")
    return "|".join(options)


def _spelled(words: _Trie, heads: frozenset[str], rest: Callable[[_Trie, frozenset[str]], str]) -> list[str]:
    """Each first letter of `words`, in either case unless a marker begins with it, and what `rest` gives behind it."""
    options = []
    for char, below in words.items():
        cased = "".join(sorted({char, char.upper()} - heads))
        if cased:
            options.append(f"[{cased}](?:{rest(below, heads)})")
    return options


def _departures(node: _Trie, heads: frozenset[str]) -> str:
    """What leads away from the words below `node`; the last character is no blank."""
    if not node:
        return rf"\s{{0,15}}{_none_of(heads | {' ', chr(9), chr(10), chr(13)})}"
    going_on = {spelled for char in node for spelled in (char, char.upper())}
    return "|".join([_none_of(heads | going_on | {"\n", "\t", "\r"}), *_spelled(node, heads, _departures)])


def _shorter(node: _Trie, heads: frozenset[str]) -> str:
    """Ends before a word does."""
    return "|".join(["", *_spelled({char: below for char, below in node.items() if below}, heads, _shorter)])
