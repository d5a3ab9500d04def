"""Regular expressions of JSON Schema's `pattern` and `format`, brought to what the grammar's lexer reads.

Its regexes are whole matches over Rust's syntax, without look-around, back-references or anchors. `pattern` is searched
for, in JavaScript's syntax.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from llguidance import regex_to_lark

from inference.grammar.char_classes import ATOM, rust_atom

_ANY = "(?s:.*)"
_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9\-]{0,20}[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9\-]{0,20}[A-Za-z0-9])?){0,5}"
_DATE = (
    r"(?:(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    r"|02-(?:0[1-9]|1[0-9]|2[0-8]))|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29)"
)
_TIME = (
    r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?(?:[Zz]|[+\-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_GROUP = r"[0-9A-Fa-f]{1,4}"
_IPV6 = "|".join(
    [
        rf"(?:{_GROUP}:){{7}}{_GROUP}",
        *(rf"(?:{_GROUP}:){{0,{left - 1}}}{_GROUP}::(?:{_GROUP}:){{0,{6 - left}}}{_GROUP}" for left in range(1, 7)),
        rf"(?:{_GROUP}:){{0,6}}{_GROUP}::",
        rf"::(?:(?:{_GROUP}:){{0,6}}{_GROUP})?",
    ]
)
_URI_CHARS = r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/]|%[0-9A-Fa-f]{2})"
_DURATION_TIME = r"T(?:[0-9]{1,9}H(?:[0-9]{1,9}M(?:[0-9]{1,9}S)?)?|[0-9]{1,9}M(?:[0-9]{1,9}S)?|[0-9]{1,9}S)"

# Whole strings, of what usual types hold: years from 1 on, less than a billion days.
# RFC 3339, 5321 (the usual part), 1123, 2673, 4291 (no embedded IPv4), 9562, 3986 (with an authority).
FORMATS: Mapping[str, str] = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}[Tt]{_TIME}",
    "duration": (
        r"P(?:[0-9]{1,7}W|(?:[0-9]{1,6}Y(?:[0-9]{1,6}M(?:[0-9]{1,8}D)?)?|[0-9]{1,6}M(?:[0-9]{1,8}D)?|[0-9]{1,8}D)"
        rf"(?:{_DURATION_TIME})?|{_DURATION_TIME})"
    ),
    "email": rf"[A-Za-z0-9!#$%&*+/=?^_{{|}}~\-]{{1,32}}(?:\.[A-Za-z0-9!#$%&*+/=?^_{{|}}~\-]{{1,32}}){{0,3}}@{_HOST}",
    "hostname": _HOST,
    "ipv4": _IPV4,
    "ipv6": f"(?:{_IPV6})",
    "uuid": r"[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}",
    "uri": rf"[A-Za-z][A-Za-z0-9+.\-]{{0,15}}://{_HOST}(?::[0-9]{{1,5}})?(?:/{_URI_CHARS}{{0,500}})?"
    rf"(?:\?{_URI_CHARS}{{0,200}})?(?:#{_URI_CHARS}{{0,100}})?",
}

_UNSUPPORTED = (
    (re.compile(r"(?<!\\)(?:\\\\)*\(\?(?:=|!|<=|<!)"), "look-around"),
    (re.compile(r"(?<!\\)(?:\\\\)*\\(?:[1-9]|k<)"), "back-references"),
    (re.compile(r"(?<!\\)(?:\\\\)*\\[bB]"), "word boundaries"),
)
_MAX_PATTERN = 4096
# A brace that repeats nothing is itself.
_ATOM_OR_BRACE = re.compile(ATOM.pattern + r"|\{(?![0-9]*,?[0-9]*\})", re.DOTALL)
_ATOM_OR_BRACKET = re.compile(ATOM.pattern + r"|[()]", re.DOTALL)
# A class that begins with what ends it: Python reads on to the next bracket.
_OPEN_CLASS = re.compile(r"\[\^?\]")


def pattern_fault(pattern: str) -> str:
    """What in `pattern` no grammar can enforce, "" if nothing is known to."""
    if len(pattern) > _MAX_PATTERN:
        return f"is longer than {_MAX_PATTERN} characters"
    without_classes = ATOM.sub(lambda found: found[0] if found[0][0] == "\\" else "x", pattern)
    for fault, name in _UNSUPPORTED:
        if fault.search(without_classes):
            return f"uses {name}, which a grammar cannot follow"
    if _inner_anchor(without_classes):
        return "has an anchor inside; ^ and $ may stand only at the ends of an alternative"
    begun = [found[0] for found in ATOM.finditer(pattern) if _OPEN_CLASS.fullmatch(found[0])]
    if begun and "]" in without_classes:
        return f"begins a class with {begun[0]}, which readers take differently; \\] is the bracket itself"
    try:
        # Classes are read by rules of our own.
        re.compile(without_classes.replace("(?<", "(?P<"))
    except re.error:
        # JavaScript knows \p{…} and \u{…}, Python does not; the lexer will say.
        return "" if re.search(r"\\[pPuc]", pattern) else "is no regular expression"
    except RecursionError:
        return "is nested too deeply"
    return ""


def all_to_find(pattern: str) -> list[str]:
    """The patterns that a text must have for this one: what it looks ahead for at its start, each, and the rest."""
    if not pattern.startswith("^(?=") or len(_alternatives(pattern)) > 1:
        return [pattern]
    found, rest = [], pattern[1:]
    while rest.startswith("(?=") and (end := _group_end(rest)):
        if rest[end : end + 1] in ("*", "+", "?", "{"):
            return [pattern]
        found.append("|".join(f"^{option}" for option in _alternatives(rest[3 : end - 1])))
        rest = rest[end:]
    return [*found, f"^{rest}"]


def _group_end(pattern: str) -> int:
    """Behind the bracket that closes the group which `pattern` begins with; 0 if none does."""
    depth = 0
    for found in _ATOM_OR_BRACKET.finditer(pattern):
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        if depth == 0 and found[0] == ")":
            return found.end()
    return 0


def whole_pattern(pattern: str) -> str:
    """A regex that matches whole the strings in which `pattern` is found."""
    return "(?:" + "|".join(_whole_alternative(option) for option in _alternatives(pattern)) + ")"


def anchored_pattern(pattern: str) -> str:
    """The same, each alternative of it anchored, as it is read where a text is to match as a whole."""
    return "(?:" + "|".join(_rust(_unanchored(option)[1]) for option in _alternatives(pattern)) + ")"


def _unanchored(pattern: str) -> tuple[bool, str, bool]:
    """(does it begin with ^, what is between, does it end with $)"""
    starts = pattern.startswith("^")
    ends = pattern.endswith("$") and not re.search(r"(?<!\\)(?:\\\\)*\\\$\Z", pattern)
    return starts, pattern[1 if starts else 0 : -1 if ends else None], ends


def _whole_alternative(pattern: str) -> str:
    starts, inner, ends = _unanchored(pattern)
    return ("" if starts else _ANY) + f"(?:{_rust(inner)})" + ("" if ends else _ANY)


def _rust(pattern: str) -> str:
    spelled = _ATOM_OR_BRACE.sub(lambda found: r"\{" if found[0] == "{" else rust_atom(found[0]), pattern)
    return regex_to_lark(spelled, use_ascii="").replace(r"\/", "/")


def _alternatives(pattern: str) -> list[str]:
    """The pattern cut at its outermost bars."""
    found, depth, start, in_class, pos = [], 0, 0, False, 0
    while pos < len(pattern):
        char = pattern[pos]
        if char == "\\":
            pos += 1
        elif in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
        elif char in "()":
            depth += 1 if char == "(" else -1
        elif char == "|" and depth == 0:
            found.append(pattern[start:pos])
            start = pos + 1
        pos += 1
    return [*found, pattern[start:]]


def _inner_anchor(pattern: str) -> bool:
    for option in _alternatives(pattern):
        inner = re.sub(r"\\.", "", option)
        inner = inner.removeprefix("^").removesuffix("$")
        if "^" in inner or "$" in inner:
            return True
    return False
