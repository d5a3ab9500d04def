"""The one rule set that gives raw text of dialects without JSON arguments its type: the schema decides.

1. A string stays as it is, white space included. 2. Where no string is allowed: JSON, then Python's spelling, else a
string after all. 3. Where a string is allowed beside others: another type only if the whole text is JSON of it.
4. Where nothing is declared: the wire's own word if it has one, else JSON if it looks like no string. Numbers pass as
text.
"""

from __future__ import annotations

import re
from typing import Literal

from stream_parser import repair
from stream_parser.coercion import fit
from stream_parser.json_text import quoted, read_scalar
from stream_parser.json_value import JsonError, parse, type_name
from stream_parser.literals import read_literal
from stream_parser.schema_types import TypeSet

# What the wire says: nothing; nothing, but it writes Python; this is a string; this is JSON.
TypingRules = Literal["schema", "python", "attr_string", "attr_json"]

_WHOLE_NUMBER = re.compile(r"(-?[0-9]+)\.0+")
_NO_STRING = '{["-0123456789'


def type_value(raw: str, types: TypeSet | None, rules: TypingRules = "schema") -> str:
    """JSON text for `raw`. O(len(raw)); never raises."""
    if rules == "attr_string":
        return quoted(raw)
    if rules == "attr_json" and raw.strip()[:1] == '"' and _as_json(raw.strip()):
        return raw.strip()
    if types is not None and types.is_string_only:
        return quoted(raw)
    if types is None or types.is_unknown:
        return _undeclared(raw, rules)
    if "string" in types.types:
        return raw if _is_json_of_another_type(raw, types) else quoted(raw)
    text = _spelled(raw)
    if text is None:
        return quoted(raw)
    whole = _WHOLE_NUMBER.fullmatch(text)
    return whole[1] if whole and "number" not in types.types else fit(text, types, read_literal)


def _undeclared(raw: str, rules: TypingRules) -> str:
    word = raw.strip()
    if rules == "python" or rules == "attr_json":
        text = _spelled(raw)
        return quoted(raw) if text is None else text
    if word in ("true", "false", "null") or (word[:1] and word[0] in _NO_STRING and word[0] != '"'):
        text = _as_json(word)
        return quoted(raw) if text is None else text
    return quoted(raw)


def _is_json_of_another_type(raw: str, types: TypeSet) -> bool:
    if raw != raw.strip() or raw[:1] == '"' or _as_json(raw) is None:
        return False
    return types.allows(type_name(parse(raw)))


def _spelled(raw: str) -> str | None:
    """What `raw` spells as JSON or Python, None if it is just text."""
    word = raw.strip()
    if not word:
        return None
    text = _as_json(word)
    if text is not None:
        return text
    scalar = read_scalar(word)
    if scalar is not None:
        return None if scalar.reason == repair.NOT_A_NUMBER else scalar.text
    return read_literal(word)


def _as_json(word: str) -> str | None:
    try:
        parse(word)
    except JsonError:
        return None
    # Half a surrogate pair is JSON, but no text that may be passed on.
    return word if "\\ud" not in word.lower() else read_literal(word)
