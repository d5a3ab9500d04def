"""JSON text made from what is not JSON yet: strings, numbers and bare words.

Numbers pass as text and never through a float, so that 1e400 and integers beyond 2**53 keep their digits.
"""

from __future__ import annotations

import json.encoder
import re
from dataclasses import dataclass

from stream_parser import repair
from stream_parser.surrogates import mend

# The C encoder leaves non-ASCII text as it is and escapes what JSON demands; other interpreters have the Python one.
_encode = getattr(json.encoder, "c_encode_basestring", None) or json.encoder.py_encode_basestring

_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_LAX_NUMBER = re.compile(r"([+-]?)0*([0-9]*)(\.[0-9]*)?([eE][+-]?[0-9]+)?")
_MANTISSA = re.compile(r"[+-]?\.?[0-9]")
_BASED_NUMBER = re.compile(r"([+-]?)0(?:x([0-9a-f]+)|o([0-7]+)|b([01]+))", re.IGNORECASE)
_DIGIT_GAPS = re.compile(r"(?<=[0-9a-fA-F])_(?=[0-9a-fA-F])")

_JSON_WORDS = ("true", "false", "null")
_WORDS = {
    "True": "true", "TRUE": "true", "False": "false", "FALSE": "false",
    "None": "null", "NULL": "null", "Null": "null", "nil": "null", "undefined": "null",
}  # fmt: skip
_NOT_A_NUMBER = frozenset({"nan", "inf", "infinity"})
# A decimal digit run that int() may convert without the interpreter's digit limit.
_MAX_BASED_DIGITS = 1000


@dataclass(frozen=True, slots=True)
class Scalar:
    """A word read as a JSON scalar; `reason` is "" where the word was JSON already."""

    text: str
    reason: str


def quoted(text: str) -> str:
    """`text` as a JSON string with its quotes."""
    return str(_encode(mend(text)))


def escaped(text: str) -> str:
    """`text` as it stands inside a JSON string."""
    return quoted(text)[1:-1]


def is_number(word: str) -> bool:
    return _JSON_NUMBER.fullmatch(word) is not None


def read_scalar(word: str) -> Scalar | None:
    """The JSON scalar that `word` (no outer white space) spells in JSON, Python or JavaScript; None for other text."""
    if word in _JSON_WORDS or _JSON_NUMBER.fullmatch(word):
        return Scalar(word, "")
    if word in _WORDS:
        return Scalar(_WORDS[word], repair.PYTHON_LITERAL)
    if word.lstrip("+-").lower() in _NOT_A_NUMBER:
        return Scalar("null", repair.NOT_A_NUMBER)
    number = _read_number(_DIGIT_GAPS.sub("", word))
    return None if number is None else Scalar(number, repair.NUMBER)


def _read_number(word: str) -> str | None:
    based = _BASED_NUMBER.fullmatch(word)
    if based and len(word) <= _MAX_BASED_DIGITS:
        sign, hexadecimal, octal, binary = based.groups()
        value = int(hexadecimal or octal or binary, 16 if hexadecimal else 8 if octal else 2)
        return f"{'-' if sign == '-' and value else ''}{value}"
    lax = _LAX_NUMBER.fullmatch(word)
    if lax is None or not _MANTISSA.match(word):
        return None
    sign, whole, fraction, exponent = lax.groups()
    if fraction == ".":
        fraction = ".0"
    return f"{'-' if sign == '-' else ''}{whole or '0'}{fraction or ''}{exponent or ''}"
