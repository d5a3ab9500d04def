"""Drives value scanners over text that is cut in every way, and says whether text can be the beginning of JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from stream_parser.json_scanner import ValueScanner


@dataclass(frozen=True, slots=True)
class Scanned:
    """`rest`: the input behind the value."""

    text: str
    reasons: tuple[str, ...]
    rest: str = ""


def scan(make: Callable[[], ValueScanner], pieces: Iterable[str], complete: bool = True) -> Scanned:
    """Feed pieces as the parser does: what a scanner stops at is forced, since nothing here is a marker."""
    scanner = make()
    written: list[str] = []
    left = list(pieces)
    while left and not scanner.done:
        piece = left.pop(0)
        pos = scanner.feed(piece)
        written.append(scanner.take())
        while pos < len(piece) and not scanner.done:
            forced = scanner.force(piece, pos)
            assert forced > pos, "force has to read on"
            pos = forced
            written.append(scanner.take())
        left.insert(0, piece[pos:])
        if not piece[pos:]:
            left.pop(0)
    if not scanner.done:
        scanner.end(complete)
        written.append(scanner.take())
    return Scanned("".join(written), tuple(scanner.reasons), scanner.surplus + "".join(left))


def scan_all_ways(make: Callable[[], ValueScanner], text: str, complete: bool = True) -> Scanned:
    """The result for `text`, which is the same whole, by characters and in every two pieces."""
    whole = scan(make, [text], complete)
    for pieces in cuts(text):
        assert scan(make, pieces, complete) == whole, pieces
    return whole


def cuts(text: str) -> Iterator[list[str]]:
    yield list(text)
    for at in range(1, len(text)):
        yield [text[:at], text[at:]]


def begins_json(text: str) -> bool:
    """Could more text make it JSON, as far as brackets, strings and escapes go?"""
    open_brackets: list[str] = []
    in_string = in_escape = False
    for char in text:
        if in_escape:
            in_escape = False
        elif in_string:
            in_escape, in_string = char == "\\", char != '"'
        elif char == '"':
            in_string = True
        elif char in "{[":
            open_brackets.append("}" if char == "{" else "]")
        elif char in "}]" and (not open_brackets or open_brackets.pop() != char):
            return False
    return not in_escape
