"""Keys and short strings of the JSON object around a call: in double or single quotes, keys also bare.

Lengths are bounded, so that what waits for its end can be looked at again. Knows nothing of calls.
"""

from __future__ import annotations

import json
import re

from stream_parser.surrogates import mend

_CHAR = r"(?:[^{quote}\\]|\\.){{0,300}}"
_DOUBLE = _CHAR.format(quote='"')
_SINGLE = _CHAR.format(quote="'")
_STRING = rf"""(?:"(?P<double>{_DOUBLE}?)"|'(?P<single>{_SINGLE}?)')"""

KEY = re.compile(rf"(?:{_STRING}|(?P<bare>[A-Za-z_][\w-]{{0,60}}))\s{{0,64}}:", re.DOTALL)
KEY_PARTIAL = re.compile(
    rf"""(?:"{_DOUBLE}(?:\\|"\s{{0,64}})?|'{_SINGLE}(?:\\|'\s{{0,64}})?|[A-Za-z_][\w-]{{0,60}}\s{{0,64}})\Z""",
    re.DOTALL,
)
TEXT = re.compile(_STRING, re.DOTALL)
TEXT_PARTIAL = re.compile(rf"""(?:"{_DOUBLE}\\?|'{_SINGLE}\\?)\Z""", re.DOTALL)


def unquoted(match: re.Match[str]) -> str:
    """What a match of KEY or TEXT says."""
    groups = match.groupdict()
    if groups.get("bare") is not None:
        return str(groups["bare"])
    raw = groups["double"] if groups["double"] is not None else groups["single"]
    if "\\" not in raw:
        return str(raw)
    try:
        return mend(json.loads('"' + raw.replace("\\'", "'") + '"', strict=False))
    except ValueError:
        return str(raw)
