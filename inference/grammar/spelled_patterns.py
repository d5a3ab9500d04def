"""A regex of texts as a regex of how a notation spells them: a character that needs an escape stands as its escape.

Works on expressions as `text_patterns` writes them (Rust's syntax, whole matches). Atoms that stand for one character
are cut along what needs no escape; all else stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from inference.grammar.text_sets import text_set

_ESCAPE = re.compile(r"\\(?:[xu]\{[0-9A-Fa-f]+\}|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|[pP](?:\{[^}]*\}|.)|.)", re.DOTALL)
_OPERATOR = re.compile(r"\((?:\?(?:P?<\w+>|[A-Za-z-]*[:)]))?|\{[0-9]*,?[0-9]*\}|[*+?|)^$]")
_ANY = "."  # line breaks too, where `text_patterns` has left it


@dataclass(frozen=True, slots=True)
class Spelling:
    """char: a regex of any one character, spelled. plain: of one that stands for itself, as a class. escapes: a regex
    of the spelling, by character."""

    char: str
    plain: str
    escapes: tuple[tuple[str, str], ...]


def spelled_pattern(expression: str, spelling: Spelling) -> str:
    return "".join(_spelled(text, spelling) if is_atom else text for text, is_atom in _pieces(expression))


def num_endless(expression: str) -> int:
    """How many parts of it repeat without an end."""
    return sum(not is_atom and _bounded(text, 1) != text for text, is_atom in _pieces(expression))


def bounded_pattern(expression: str, most: int) -> str:
    """What repeats without an end does so `most` times."""
    return "".join(text if is_atom else _bounded(text, most) for text, is_atom in _pieces(expression))


def _bounded(operator: str, most: int) -> str:
    if operator in ("*", "+"):
        return f"{{{int(operator == '+')},{most}}}"
    open_end = re.fullmatch(r"\{([0-9]+),\}", operator)
    return f"{{{open_end[1]},{max(int(open_end[1]), most)}}}" if open_end else operator


def escapes_of(named: Mapping[str, str], control: str) -> tuple[tuple[str, str], ...]:
    """named: spellings by character. control: how the other control characters are spelled, with their number."""
    numbered = {chr(code): control.format(code) for code in range(32)}
    return tuple({**numbered, **named}.items())


def _pieces(expression: str) -> Iterator[tuple[str, bool]]:
    """The expression cut into operators and atoms: (text, is it an atom)."""
    at = 0
    while at < len(expression):
        operator = _OPERATOR.match(expression, at)
        escape = _ESCAPE.match(expression, at)
        if operator:
            end = operator.end()
        elif escape:
            end = escape.end()
        else:
            end = _class_end(expression, at) if expression[at] == "[" else at + 1
        yield expression[at:end], operator is None
        at = end


def _class_end(expression: str, start: int) -> int:
    depth, at = 0, start
    while at < len(expression):
        char = expression[at]
        depth += (char == "[") - (char == "]")
        at += 2 if char == "\\" else 1
        if depth == 0:
            break
    return at


@lru_cache(maxsize=4096)
def _spelled(atom: str, spelling: Spelling) -> str:
    if atom == _ANY:
        return spelling.char
    held = [text for char, text in spelling.escapes if char in text_set(atom)]
    if not held:
        return atom
    plain = [] if text_set(atom, spelling.plain).is_empty else [f"[{atom}&&{spelling.plain}]"]
    return f"(?:{'|'.join([*plain, *held])})"
