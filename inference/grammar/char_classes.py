r"""Character classes of `pattern`, from JavaScript's spelling to Rust's, in which a class may hold others.

Of \d, \w and \s readers disagree: in Python they reach over Unicode, in JavaScript the first two are ASCII, and blanks
differ by a few. A class takes the characters that it has in every reading, so that what is written fits for all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

ANY_CHAR = r"[\s\S]"
# What stands for one character of a pattern: an escape, or a class, whose brackets and escapes are no operators.
ATOM = re.compile(
    r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|[xu]\{[0-9A-Fa-f]+\}|c[A-Za-z]|[pP]\{[^}]*\}|.)|\[\^?(?:\\.|[^\]\\])*\]|\.",
    re.DOTALL,
)
_UNIT = re.compile(ATOM.pattern.partition(r"|\[")[0] + "|.", re.DOTALL)
# In every reading, and in any: the latter is what a negated class leaves out.
_SURELY = {
    "d": "[0-9]", "w": "[0-9A-Za-z_]", "s": r"[\s&&[^\x85]]",
    "D": r"\D", "W": r"[^\w\p{N}]", "S": r"[^\s\x1c-\x1f\x{feff}]",
}  # fmt: skip
_MAYBE = {
    "d": r"\d", "w": r"[\w\p{N}]", "s": r"[\s\x1c-\x1f\x{feff}]",
    "D": "[^0-9]", "W": "[^0-9A-Za-z_]", "S": r"[\S\x85]",
}  # fmt: skip
_NO_LINE_BREAK = r"[^\n]"  # U+2028 and its like beside a complement cost the lexer more than a mask may take
_NOT_IN_CLASSES = "[]^-&~|"


def rust_atom(atom: str) -> str:
    """An escape, a class or a dot as Rust has it."""
    if atom == ".":
        return _NO_LINE_BREAK
    if atom == "[^]":
        return ANY_CHAR
    if atom[0] == "[":
        return _class(atom)
    return _SURELY.get(atom[1:]) or _escape(atom)


def _class(text: str) -> str:
    is_negated = text[1] == "^"
    sets = _MAYBE if is_negated else _SURELY
    units = [found[0] for found in _UNIT.finditer(text[2 if is_negated else 1 : -1])]
    named = {unit[1:] for unit in units if unit[0] == "\\"}
    if any({letter, letter.upper()} <= named for letter in "dws"):
        return r"[^\s\S]" if is_negated else ANY_CHAR
    return f"[{'^' if is_negated else ''}{''.join(_members(units, sets))}]"


def _members(units: list[str], sets: dict[str, str]) -> Iterator[str]:
    at = 0
    while at < len(units):
        low, high = units[at], units[at + 2] if at + 2 < len(units) and units[at + 1] == "-" else ""
        # Beside a set the minus is itself, as JavaScript and all but Python have it.
        if high and not {low[1:], high[1:]} & sets.keys():
            yield f"{_char(low)}-{_char(high)}"
            at += 3
        else:
            yield sets.get(low[1:]) or _char(low)
            at += 1


def _char(unit: str) -> str:
    if unit[0] == "\\":
        return r"\x08" if unit == r"\b" else _escape(unit)
    return f"\\{unit}" if unit in _NOT_IN_CLASSES else unit


def _escape(unit: str) -> str:
    number = re.fullmatch(r"\\[xu]\{?([0-9A-Fa-f]+)\}?", unit)
    if number:
        return rf"\x{{{number[1]}}}"
    if unit.startswith(r"\c") and len(unit) == 3:
        return rf"\x{ord(unit[2].upper()) - 64:02x}"
    return r"\x00" if unit == r"\0" else unit
