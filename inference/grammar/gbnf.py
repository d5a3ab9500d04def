"""GBNF, llama.cpp's grammar notation (grammars/README.md of ggml-org/llama.cpp), as Lark rules.

GBNF is about characters, and every character becomes a lexeme of its own: the lexer takes the longest that it can, so
of two lexemes that begin alike the shorter would be out of reach. Line breaks part no rules, as in xgrammar's notation:
a rule goes on until the next name before `::=`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKENS = re.compile(
    r"""(?P<blank>[ \t\r\n]+|\#[^\n]*)
    |(?P<rule>[\w-]+)[ \t\r\n]*::=
    |(?P<name>[\w-]+)
    |(?P<text>"(?:\\.|[^"\\\n])*")
    |(?P<chars>\[(?:\\.|[^\]\\])*\])
    |(?P<times>\{[ ]*[0-9]{1,7}[ ]*(?:,[ ]*(?:[0-9]{1,7})?[ ]*)?\})
    |(?P<sign>[|()*+?.])""",
    re.VERBOSE | re.DOTALL,
)
_CHAR = re.compile(r"\\x([0-9A-Fa-f]{2})|\\u([0-9A-Fa-f]{4})|\\U([0-9A-Fa-f]{8})|\\(.)|(.)", re.DOTALL)
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t"}
_ROOT = "root"
_NOTHING = '""'
_MAX_GROUPS = 64  # within each other: the library's own reader of Lark goes down one by one
_MAX_CODE_POINT = 0x10FFFF


class GbnfError(ValueError):
    """What is wrong, and in which line."""


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    line: int


def gbnf_to_lark(text: str) -> str:
    """The rules, beginning at `start`. Raises GbnfError. O(len(text))."""
    return _Writer().rules(_tokens(text))


def is_gbnf(text: str) -> bool:
    """By its definition sign; Lark has another."""
    return any(token.kind == "rule" for token in _tokens(text, to_the_end=False))


def _tokens(text: str, *, to_the_end: bool = True) -> Iterator[_Token]:
    at, line = 0, 1
    while at < len(text):
        found = _TOKENS.match(text, at)
        if found is None:
            if to_the_end:
                raise GbnfError(f"line {line}: {text[at : at + 20]!r} is nothing that may stand here")
            at += 1
            continue
        kind = found.lastgroup
        assert kind is not None
        if kind != "blank":
            yield _Token(kind, found[kind], line)
        line += found[0].count("\n")
        at = found.end()


class _Writer:
    """Names of one's own for rules, in the order in which they are met: theirs may differ in case alone."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._used: dict[str, int] = {}
        self._lexemes: dict[str, str] = {}

    def rules(self, tokens: Iterator[_Token]) -> str:
        bodies: dict[str, list[str]] = {}
        body: list[str] | None = None
        num_open = 0
        for token in tokens:
            if token.kind == "rule":
                _check_closed(num_open, token.line)
                if token.text in bodies:
                    raise GbnfError(f"line {token.line}: rule {token.text!r:.60} stands here a second time")
                body = bodies[token.text] = []
                continue
            if body is None:
                raise GbnfError(f"line {token.line}: {token.text!r:.60} stands before the first rule")
            num_open += {"(": 1, ")": -1}.get(token.text, 0) if token.kind == "sign" else 0
            if num_open < 0 or num_open > _MAX_GROUPS:
                fault = "closes no group" if num_open < 0 else f"opens more than {_MAX_GROUPS} groups"
                raise GbnfError(f"line {token.line}: {token.text!r} {fault}")
            body.append(self._piece(token, body))
        _check_closed(num_open, 0)
        return self._joined(bodies)

    def _joined(self, bodies: dict[str, list[str]]) -> str:
        for name, line in self._used.items():
            if name not in bodies:
                raise GbnfError(f"line {line}: there is no rule {name!r:.60}")
        if _ROOT not in bodies:
            raise GbnfError(f"there is no rule {_ROOT!r}, with which a text begins")
        lines = [f"start: {self._name(_ROOT)}"]
        lines += [f"{self._name(name)}: {' '.join(body) or _NOTHING}" for name, body in bodies.items()]
        return "\n".join([*lines, *(f"{name}: {regex}" for regex, name in self._lexemes.items())])

    def _piece(self, token: _Token, before: list[str]) -> str:
        match token.kind:
            case "name":
                self._used.setdefault(token.text, token.line)
                return self._name(token.text)
            case "text":
                chars = [self._lexeme(_spelled(code)) for code in _code_points(token.text[1:-1], token.line)]
                return f"({' '.join(chars)})" if chars else _NOTHING
            case "chars":
                return self._lexeme(_char_class(token))
            case "times":
                _check_repeated(before, token)
                return token.text.replace(" ", "")
            case _:
                if token.text in "*+?":
                    _check_repeated(before, token)
                is_empty = token.text in "|)" and _begins(before)
                sign = self._lexeme("(?s:.)") if token.text == "." else token.text
                return f"{_NOTHING} {sign}" if is_empty else sign

    def _name(self, name: str) -> str:
        return self._names.setdefault(name, f"g{len(self._names)}")

    def _lexeme(self, regex: str) -> str:
        return self._lexemes.setdefault(f"/{regex}/", f"C{len(self._lexemes)}")


def _check_closed(num_open: int, line: int) -> None:
    if num_open:
        raise GbnfError((f"line {line}: " if line else "") + "a group before is not closed")


def _begins(before: list[str]) -> bool:
    """Does an alternative begin here?"""
    return not before or before[-1].endswith(("|", "("))


def _check_repeated(before: list[str], token: _Token) -> None:
    if _begins(before):
        raise GbnfError(f"line {token.line}: {token.text!r} stands behind nothing that it could repeat")


def _code_points(text: str, line: int) -> list[int]:
    found = []
    for match in _CHAR.finditer(text):
        code = int(match[1] or match[2] or match[3] or "0", 16)
        if match[4]:
            if match[4] in "xuU" or (match[4].isalnum() and match[4] not in _CONTROLS):
                raise GbnfError(f"line {line}: {text[match.start() : match.start() + 10]!r} is no escape")
            code = ord(_CONTROLS.get(match[4], match[4]))
        elif match[5]:
            code = ord(match[5])
        if code > _MAX_CODE_POINT or 0xD800 <= code <= 0xDFFF:
            raise GbnfError(f"line {line}: {match[0]!r} is no character")
        found.append(code)
    return found


def _char_class(token: _Token) -> str:
    inner = token.text[1:-1]
    is_negated = inner.startswith("^")
    ranges = []
    # A minus between two characters is a range; escaped, first or last it is itself.
    units = [match[0] for match in _CHAR.finditer(inner[1:] if is_negated else inner)]
    at = 0
    while at < len(units):
        is_range = at + 2 < len(units) and units[at + 1] == "-"
        low, *_, high = _code_points(units[at] + (units[at + 2] if is_range else units[at]), token.line)
        if low > high:
            raise GbnfError(f"line {token.line}: {token.text!r:.60} has a range that ends before it begins")
        ranges.append(_spelled(low) + (f"-{_spelled(high)}" if high > low else ""))
        at += 3 if is_range else 1
    if not ranges and not is_negated:
        raise GbnfError(f"line {token.line}: {token.text!r} holds no character")
    return f"[{'^' if is_negated else ''}{''.join(ranges)}]" if ranges else "(?s:.)"


def _spelled(code: int) -> str:
    return rf"\x{{{code:x}}}"
