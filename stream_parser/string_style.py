"""How a string is delimited and what its backslashes mean, as data, and the decoding of one escape.

Used by the string reader; knows nothing of the containers around a string.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from stream_parser.surrogates import REPLACEMENT

Escapes = Literal["json", "python", "none"]

# What a run of plain text may never hold: these need work before they can stand in a JSON string.
_SPECIAL = '"\\\\\x00-\x1f\ud800-\udfff'


@dataclass(frozen=True, slots=True)
class StringStyle:
    """`closers`: characters of which one ends the string, if what follows agrees. `delimiter`: what always ends it."""

    escapes: Escapes
    closers: str = ""
    delimiter: str = ""
    is_json: bool = False

    @property
    def plain_run(self) -> re.Pattern[str]:
        ends = self.closers or self.delimiter[0]
        return re.compile(f"[^{_SPECIAL}{re.escape(ends)}]*")


SMART_DOUBLE = "“”„‟＂«»"
SMART_SINGLE = "‘’‚‛"

JSON_STRING = StringStyle("json", closers='"', is_json=True)
ESCAPED_STYLES: dict[str, StringStyle] = {
    '"': JSON_STRING,
    "'": StringStyle("python", closers="'"),
    **dict.fromkeys(SMART_DOUBLE, StringStyle("json", closers=SMART_DOUBLE + '"')),
    **dict.fromkeys(SMART_SINGLE, StringStyle("json", closers=SMART_SINGLE + "'")),
}
PYTHON_STYLES: dict[str, StringStyle] = {**ESCAPED_STYLES, '"': StringStyle("python", closers='"')}
RAW_STYLES: dict[str, StringStyle] = {'"': StringStyle("none", closers='"'), "'": StringStyle("none", closers="'")}
TRIPLE_STYLES: dict[str, StringStyle] = {
    '"': StringStyle("python", delimiter='"""'),
    "'": StringStyle("python", delimiter="'''"),
}

OPENERS = frozenset(ESCAPED_STYLES)


@dataclass(frozen=True, slots=True)
class Escape:
    """`text` is what to emit for the first `length` characters; `is_repair`: JSON does not spell it so."""

    text: str
    length: int
    is_repair: bool = False


_JSON_SIMPLE = frozenset('"\\/bfnrt')
_PYTHON_CONTROL = {"a": "\\u0007", "v": "\\u000b"}
_HEX = re.compile("[0-9a-fA-F]*")
_OCTAL = re.compile("[0-7]{1,3}")
_LONG_ESCAPES = {"x": 2, "U": 8}


def read_escape(held: str, escapes: Escapes) -> Escape | None:
    """Decode the escape that `held`, the backslash and more, begins with. None: it takes more text to say, of which at
    most 12 characters are needed.
    """
    char = held[1]
    if char == "u":
        return _read_unicode(held)
    if escapes == "json":
        if char in _JSON_SIMPLE:
            return Escape(held[:2], 2)
        return Escape("'", 2, True) if char == "'" else Escape("\\\\", 1, True)
    return _read_python(held, char)


def _read_unicode(held: str) -> Escape | None:
    digits = _HEX.match(held, 2, 6)
    assert digits is not None
    if len(digits[0]) < 4:
        return Escape("\\\\", 1, True) if len(held) > digits.end() else None
    code = int(digits[0], 16)
    if not 0xD800 <= code <= 0xDFFF:
        return Escape(held[:6], 6)
    return _read_pair(held, code)


def _read_pair(held: str, code: int) -> Escape | None:
    lone = Escape("\\ufffd", 6, True)
    if code >= 0xDC00:
        return lone
    digits = _HEX.match(held, 8, 12)
    assert digits is not None
    if not "\\u".startswith(held[6:8]) or (len(held) > 8 and len(digits[0]) < min(4, len(held) - 8)):
        return lone
    if len(held) < 12:
        return None
    return Escape(held[:12], 12) if 0xDC00 <= int(digits[0], 16) <= 0xDFFF else lone


def _read_python(held: str, char: str) -> Escape | None:
    if char in '"\\bfnrt':
        return Escape(held[:2], 2)
    if char == "'":
        return Escape("'", 2)
    if char in _PYTHON_CONTROL:
        return Escape(_PYTHON_CONTROL[char], 2)
    if char in _LONG_ESCAPES:
        return _read_long(held, 2 + _LONG_ESCAPES[char])
    octal = _OCTAL.match(held, 1)
    if octal is None:
        return Escape("\\\\", 1)
    if len(octal[0]) < 3 and octal.end() == len(held):
        return None
    return Escape(f"\\u{int(octal[0], 8):04x}", octal.end())


def _read_long(held: str, length: int) -> Escape | None:
    digits = _HEX.match(held, 2, length)
    assert digits is not None
    if digits.end() < length:
        return Escape("\\\\", 1) if len(held) > digits.end() else None
    code = int(digits[0], 16)
    if code < 0x10000:
        return Escape("\\ufffd" if 0xD800 <= code <= 0xDFFF else f"\\u{code:04x}", length)
    return Escape(chr(code) if code <= 0x10FFFF else REPLACEMENT, length)
