"""Regular expressions from tool schemas, compiled only where matching them cannot take long.

Python's engine backtracks: `(a|aa)+$` on forty letters takes minutes, and both pattern and text may come from anybody.
A pattern is refused (and then not enforced) if a group repeats that itself repeats or has alternatives, if it has many
repeats in a row, or back references or lookaround. What is left takes at most about len(text)**3 steps.
"""

from __future__ import annotations

import re
import warnings
from functools import lru_cache

MAX_SUBJECT = 200
_MAX_PATTERN = 200
_MAX_REPEATS = 3

# Escapes and character classes stand for one character; what they contain is no operator.
_ATOMS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_REPEAT = re.compile(r"[*+]|\{[0-9]*,[0-9]*\}")
_BACK_REFERENCE = re.compile(r"\\[1-9]|\(\?P=")
_LOOKAROUND = re.compile(r"\(\?(?:[=!]|<[=!]|\(|>)")
_GROUP = re.compile(r"\((?:\?(?::|P?<\w+>|[a-z]+:?))?([^()]*)\)(\*|\+|\{[^}]*\})?")
_VARIABLE = re.compile(r"[*+?|{]")


def safe_search(pattern: str, text: str) -> bool:
    """Does `pattern` occur in `text`? True as well where that is not looked into."""
    if len(text) > MAX_SUBJECT:
        return True
    expression = _compiled(pattern)
    return expression is None or expression.search(text) is not None


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str] | None:
    """None for a pattern that is not enforced."""
    if len(pattern) > _MAX_PATTERN or _may_backtrack(pattern):
        return None
    with warnings.catch_warnings():
        # Of "[[a]" Python says that its meaning may change one day; it is the tool's author who would have to hear it.
        warnings.simplefilter("ignore")
        try:
            return re.compile(pattern)
        except (re.error, OverflowError, RecursionError):
            return None


def _may_backtrack(pattern: str) -> bool:
    if _BACK_REFERENCE.search(pattern) or _LOOKAROUND.search(pattern):
        return True
    rest = _ATOMS.sub("x", pattern)
    if len(_REPEAT.findall(rest)) > _MAX_REPEATS:
        return True
    while (group := _GROUP.search(rest)) is not None:
        varies = _VARIABLE.search(group[1]) is not None
        if varies and group[2]:
            return True
        # What repeats or varies inside makes the group vary for the one around it.
        rest = rest[: group.start()] + ("x?" if varies or group[2] else "x") + rest[group.end() :]
    return False
