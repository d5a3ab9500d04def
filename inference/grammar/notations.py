"""How each notation spells values: JSON, Python literals, and Gemma's braces with delimited strings.

A notation is a table of words and three functions of text; `values` walks the nodes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from inference.grammar.raw_text import escaped, without
from inference.grammar.spelled_patterns import Spelling, escapes_of

KeySpelling: TypeAlias = Callable[[str], "str | None"]

_JSON_CHAR = r'(?:[^"\\\x00-\x1F]|\\["\\bfnrt]|\\u00[01][0-9A-Fa-f])'
_PYTHON_ESCAPE = r"""\\(?:[\\'"nrt]|x[0-9A-Fa-f]{2}|u(?:[0-9A-CE-Fa-ce-f][0-9A-Fa-f]{3}|[dD][0-7][0-9A-Fa-f]{2}))"""
_SHORT = {"\\": r"\\\\", "\n": r"\\n", "\r": r"\\r", "\t": r"\\t"}
_PYTHON_ESCAPES = escapes_of({**_SHORT, "'": r"\\'", '"': r"\\\""}, r"\\x(?i:{:02x})")
_JSON_SPELLING = Spelling(
    _JSON_CHAR,
    r'[^"\\\x00-\x1F]',
    escapes_of({**_SHORT, '"': r"\\\"", "\b": r"\\b", "\f": r"\\f"}, r"\\u00(?i:{:02x})"),
)
_LAX_KEY = re.compile(r"[^\W\d][\w.\-]{0,120}")
_PYTHON_KEY = re.compile(r"[A-Za-z_][\w\-]{0,120}")


@dataclass(frozen=True, slots=True)
class Quotes:
    """One way to quote a string. spelling: of the characters in it."""

    opens: str
    spelling: Spelling
    closes: str
    rest: str = ""  # a regex for what may stand before `closes`


@dataclass(frozen=True, slots=True)
class Notation:
    name: str
    words: Mapping[object, str]  # of true, false and null
    quotes: tuple[Quotes, ...]
    item_separator: str
    key: KeySpelling  # a key and what follows it, None for a key that cannot be written
    key_quotes: tuple[str, str]  # around keys that the schema does not list
    key_char: str
    key_end: str
    has_sliced_keys: bool = True  # slices of the vocabulary apply to `key_char` (docs/adr/0006)

    def literal(self, value: object) -> str | None:
        """The spelling of a decoded JSON value; None if it has none."""
        if value is None or isinstance(value, bool):
            return self.words[value]
        if isinstance(value, str):
            return self._quoted(value)
        if isinstance(value, Mapping):
            members = [(self.key(str(key)), self.literal(member)) for key, member in value.items()]
            spelled = [None if key is None or text is None else key + text for key, text in members]
            return self._joined("{", spelled, "}")
        if isinstance(value, list):
            return self._joined("[", [self.literal(item) for item in value], "]")
        return json.dumps(value)

    def _joined(self, opens: str, parts: list[str | None], closes: str) -> str | None:
        found = [part for part in parts if part is not None]
        return opens + self.item_separator.join(found) + closes if len(found) == len(parts) else None

    def _quoted(self, text: str) -> str | None:
        if self.name == "json":
            return json.dumps(text, ensure_ascii=False)
        if self.name == "python":
            return repr(text)
        delimiter = self.quotes[0].opens
        return None if delimiter in text else delimiter + text + delimiter


def json_notation(*, compact: bool) -> Notation:
    comma, colon = (",", ":") if compact else (", ", ": ")
    return Notation(
        name="json",
        words={True: "true", False: "false", None: "null"},
        quotes=(Quotes('"', _JSON_SPELLING, '"'),),
        item_separator=comma,
        key=lambda key: json.dumps(key, ensure_ascii=False) + colon,
        key_quotes=('"', '"'),
        key_char=r'[^"\\\x00-\x1F]',
        key_end=colon,
    )


PYTHON = Notation(
    name="python",
    words={True: "True", False: "False", None: "None"},
    quotes=(
        Quotes("'", Spelling(rf"(?:[^'\\\x00-\x1F]|{_PYTHON_ESCAPE})", r"[^'\\\x00-\x1F]", _PYTHON_ESCAPES), "'"),
        Quotes('"', Spelling(rf'(?:[^"\\\x00-\x1F]|{_PYTHON_ESCAPE})', r'[^"\\\x00-\x1F]', _PYTHON_ESCAPES), '"'),
    ),
    item_separator=", ",
    key=lambda key: repr(key) + ": ",
    key_quotes=("'", "'"),
    key_char=r"[^'\\\x00-\x1F]",
    key_end=": ",
)


def python_keyword(key: str) -> str | None:
    return f"{key}=" if _PYTHON_KEY.fullmatch(key) else None


def lax_notation(delimiter: str) -> Notation:
    marked = without([delimiter])
    return Notation(
        name="lax",
        words={True: "true", False: "false", None: "null"},
        quotes=(Quotes(delimiter, Spelling(marked.unit, f"[^{escaped(delimiter[0])}]", ()), delimiter, marked.rest),),
        item_separator=",",
        key=lambda key: f"{key}:" if _LAX_KEY.fullmatch(key) else None,
        key_quotes=("", ""),
        key_char=r"[A-Za-z_0-9]",
        key_end=":",
        has_sliced_keys=False,
    )
