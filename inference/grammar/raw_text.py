"""Regexes of text that contains none of certain markers, spelled so that the lexer's masks stay cheap.

A complement would say the same in a word, but with a length bound its mask costs 0.5 ms a token instead of 0.05 (see
docs/adr/0006): the lexer's vocabulary slices see through character classes only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeAlias

_Trie: TypeAlias = dict[str, "_Trie"]


def escaped(text: str) -> str:
    """A regex for the text itself."""
    return re.sub(r"[\\.+*?()|\[\]{}^$#&\-~/]", r"\\\g<0>", text)


def without(markers: Iterable[str]) -> tuple[str, str]:
    """(unit, rest): `unit*rest` matches text in which no marker stands; a unit is a character or a few.

    Markers are cut before a second character with which some marker begins, so a little more than them is ruled out.
    """
    listed = [marker for marker in markers if marker]
    heads = {marker[0] for marker in listed}
    cut = sorted({_cut(marker, heads) for marker in listed}, key=len)
    root: _Trie = {}
    for number, marker in enumerate(cut):
        # Longer markers that begin like a shorter one add nothing.
        if not marker.startswith(tuple(cut[:number])):
            _insert(root, marker)
    if not root:
        return "(?s:.)", ""
    outside = _none_of(heads)
    beginnings = _beginnings(root)
    return f"(?:{outside}|(?:{beginnings})*(?:{_mismatches(root, heads)}))", f"(?:{beginnings})*"


def _cut(marker: str, heads: set[str]) -> str:
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


def _mismatches(node: _Trie, heads: set[str]) -> str:
    """A proper beginning, and then a character that neither goes on with it nor begins another."""
    options = []
    for char, below in node.items():
        if below:
            deeper = _mismatches(below, heads)
            ends = _none_of(heads | below.keys())
            options.append(f"{escaped(char)}(?:{ends}{'|' + deeper if deeper else ''})")
    return "|".join(options)
