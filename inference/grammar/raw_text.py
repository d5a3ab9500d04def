"""Regexes of text that contains none of certain markers, spelled so that the lexer's masks stay cheap.

A complement would say the same in a word, but with a length bound its mask costs 0.5 ms a token instead of 0.05, and
building it may take seconds (docs/adr/0006): the lexer's vocabulary slices see through character classes only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

_MAX_RUN = 15  # first characters of markers side by side (`<<<`)
# What the parser's typing rules take for another type than text, in either case, with blanks behind it.
_WORDS = ("true", "false", "null", "none", "nan", "inf", "infinity")
_BLANKS = frozenset(char for char in map(chr, range(0x3001)) if char.isspace())  # what `str.strip` takes away
_LINE_BLANKS = frozenset("\n\t\r")
_NO_TEXT = _BLANKS | set("{[\"'(-+.0123456789")
_Trie: TypeAlias = dict[str, "_Trie"]
# A regex for how a text may begin, and how many characters that takes.
Start: TypeAlias = tuple[str, int]


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

    def text_of_any_length(self) -> str:
        return f"{self.unit}*{self.rest}"

    def plain_text(self, high: int) -> str:
        """Text that is no JSON and no other word of a type, and begins with no blank."""
        more = f"{self.unit}{{0,{high}}}{self.rest}"
        starts = [_none_of(self.heads | _NO_TEXT | {c for word in _WORDS for c in (word[0], word[0].upper())})]
        starts += [self.odd] if self.odd else []
        words = _trie(_WORDS)
        starts += _spelled(words, self.heads, _departures)
        short = "|".join(_spelled(words, self.heads, _shorter))
        return f"(?:(?:{'|'.join(starts)}){more}{'|' + short if short else ''})?"

    def plain_starts(self) -> list[Start]:
        """How plain text begins, but for what is hardly written."""
        return list(_departing(_trie(_WORDS), self.heads, _NO_TEXT))

    def starts_after(self, start: Marked) -> list[Start]:
        """How `text_after` begins, but for what is hardly written."""
        return [(_none_of(start.heads | _BLANKS), 1)]

    def simple_text(self, starts: Sequence[Start], low: int, high: int) -> str:
        """Of text behind any of `starts`, or anything: what holds no head and has `low` to `high` characters, and at
        least one; "" if none has. Each option ends in a repetition of one class: slices apply to nothing else.
        """
        char = _none_of(self.heads)
        lengths = [(start, max(low - size, 1 - size, 0), high - size) for start, size in starts or [("", 0)]]
        return "|".join(f"{start}{char}{{{least},{most}}}" for start, least, most in lengths if least <= most)

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
    # Longer markers that begin like a shorter one add nothing.
    root = _trie(marker for number, marker in enumerate(cut) if not marker.startswith(tuple(cut[:number])))
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


def _trie(texts: Iterable[str]) -> _Trie:
    root: _Trie = {}
    for text in texts:
        node = root
        for char in text:
            node = node.setdefault(char, {})
    return root


def _none_of(chars: Iterable[str]) -> str:
    listed = "".join(escaped(char) for char in sorted(chars))
    return f"[^{listed}]" if listed else "(?s:.)"


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
    return [f"{cased}(?:{rest(below, heads)})" for cased, below in _cased(words, heads)]


def _cased(words: _Trie, heads: frozenset[str]) -> Iterator[tuple[str, _Trie]]:
    for char, below in words.items():
        spelled = "".join(sorted({char, char.upper()} - heads))
        if spelled:
            yield f"[{spelled}]", below


def _departures(node: _Trie, heads: frozenset[str]) -> str:
    """What leads away from the words below `node`; the last character is no blank."""
    if not node:
        return rf"\s{{0,15}}{_none_of(heads | _BLANKS)}"
    return "|".join([_none_of(heads | _going_on(node) | _LINE_BLANKS), *_spelled(node, heads, _departures)])


def _departing(words: _Trie, heads: frozenset[str], others: frozenset[str]) -> Iterator[Start]:
    """Those of `_departures` that are within a word, one by one, and that are none of `others`."""
    yield _none_of(heads | _going_on(words) | others), 1
    for cased, below in _cased(words, heads):
        for rest, size in _departing(below, heads, _LINE_BLANKS) if below else ():
            yield cased + rest, size + 1


def _going_on(words: _Trie) -> set[str]:
    return {spelled for char in words for spelled in (char, char.upper())}


def _shorter(node: _Trie, heads: frozenset[str]) -> str:
    """Ends before a word does."""
    return "|".join(["", *_spelled({char: below for char, below in node.items() if below}, heads, _shorter)])
