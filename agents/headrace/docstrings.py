"""A function's docstring taken apart: its text for the model, and what it says of each parameter.

Reads the three usual layouts: Google ("Args:"), NumPy ("Parameters" underlined) and reST (":param name:"). Sections
that are for readers of the code (Returns, Raises, Examples ...) belong to neither part.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field

_PARAMETERS = r"Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments|Attributes"
_OTHERS = r"Returns?|Yields?|Raises|Examples?|Notes?|References|See Also|Warnings?|Todo"
_GOOGLE_HEADER = re.compile(rf"(?:(?P<parameters>{_PARAMETERS})|{_OTHERS})\s*:\s*$")
_NUMPY_HEADER = re.compile(rf"(?:(?P<parameters>{_PARAMETERS})|{_OTHERS})\s*$")
_UNDERLINE = re.compile(r"-{3,}\s*$")
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(?P<names>\w+)\s*(?:\([^:]*\))?\s*:\s*(?P<text>.*)$")
_NUMPY_ENTRY = re.compile(r"(?P<names>\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
_REST_FIELD = re.compile(
    r":(?:(?P<parameters>param|parameter|arg|argument|key|keyword|ivar)(?:\s+[^:]*?)?\s+\*{0,2}(?P<names>\w+)"
    r"|(?:type|returns?|rtype|raises?|except|exception|yields?)\b[^:]*)\s*:\s*(?P<text>.*)$"
)


@dataclass(frozen=True, slots=True)
class Docstring:
    """`text` is empty, and a parameter absent, where nothing is said."""

    text: str = ""
    parameters: dict[str, str] = field(default_factory=dict)


def parse_docstring(docstring: str | None) -> Docstring:
    """Never raises: what has no known layout is text."""
    lines = inspect.cleandoc(docstring or "").splitlines()
    text: list[str] = []
    parameters: dict[str, list[str]] = {}
    position = 0
    while position < len(lines):
        header = _header(lines, position)
        if header is None:
            text.append(lines[position])
            position += 1
            continue
        end = _section_end(lines, position + header.num_lines)
        if header.entry is not None:
            parameters |= _entries(lines[position:end], header)
        position = end
    return Docstring("\n".join(text).strip(), {name: " ".join(words).strip() for name, words in parameters.items()})


@dataclass(frozen=True, slots=True)
class _Header:
    """Where a section begins. `entry` is the pattern of its entries; None: a section about no parameters."""

    entry: re.Pattern[str] | None
    num_lines: int


def _header(lines: list[str], position: int) -> _Header | None:
    line = lines[position]
    if match := _GOOGLE_HEADER.match(line):
        return _Header(_GOOGLE_ENTRY if match["parameters"] else None, 1)
    if (match := _NUMPY_HEADER.match(line)) and position + 1 < len(lines) and _UNDERLINE.match(lines[position + 1]):
        return _Header(_NUMPY_ENTRY if match["parameters"] else None, 2)
    if match := _REST_FIELD.match(line):
        return _Header(_REST_FIELD if match["parameters"] else None, 0)
    return None


def _section_end(lines: list[str], start: int) -> int:
    """A section goes on while its lines are indented, empty, or (NumPy) entries before the next header."""
    is_numpy = start >= 2 and bool(_UNDERLINE.match(lines[start - 1]))
    is_rest = start < len(lines) and bool(_REST_FIELD.match(lines[start]))
    for position in range(start + is_rest, len(lines)):
        line = lines[position]
        if _header(lines, position) is not None:
            return position
        if line and not line[0].isspace() and not is_numpy:
            return position
    return len(lines)


def _entries(lines: list[str], header: _Header) -> dict[str, list[str]]:
    assert header.entry is not None
    body = lines[header.num_lines :]
    indent = min((len(line) - len(line.lstrip()) for line in body if line.strip()), default=0)
    entries: dict[str, list[str]] = {}
    current: list[str] = []
    for line in body:
        is_entry = line[:indent].isspace() or indent == 0
        match = header.entry.match(line[indent:]) if is_entry and line[indent : indent + 1].strip() else None
        if match is None:
            current.append(line.strip())
            continue
        current = [match.groupdict().get("text") or ""]
        for name in match["names"].split(","):
            entries[name.strip().lstrip("*")] = current
    return entries
