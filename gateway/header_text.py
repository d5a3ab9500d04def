"""Values of response headers that hold words of the client: one line of printable ASCII, bounded.

RFC 9110, section 5.5: anything else is no field value. A line break in one would begin a header of the client's own,
and servers refuse it only once the answer is under way. Knows nothing of what the headers mean.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from gateway.types import TokenCount

# Clients and proxies commonly take 8 KiB of headers in all.
MAX_VALUE_CHARS = 4096
_MAX_WARNING_CHARS = 1024
_ESTIMATE = "input_tokens is an estimate from the length of the prompt: the tokenizer is the upstream's"
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]")


def header_value(text: str) -> bytes:
    """What is not printable ASCII comes as Python's escapes; what is too long ends in three dots."""
    text = _UNPRINTABLE.sub(_escaped, text[: MAX_VALUE_CHARS + 1])
    return _cut(text, MAX_VALUE_CHARS).encode("ascii")


def warning_headers(warnings: Sequence[str]) -> Mapping[str, str]:
    """The header that names what a request asks for and will not get: the first warnings, and how many more."""
    if not warnings:
        return {}
    taken: list[str] = []
    num_chars = 0
    for warning in warnings:
        num_chars += len(warning) + 2
        if taken and num_chars > _MAX_WARNING_CHARS:
            taken.append(f"and {len(warnings) - len(taken)} more")
            break
        taken.append(_cut(warning, _MAX_WARNING_CHARS))
    return {"x-headrace-warning": "; ".join(taken)}


def estimate_headers(count: TokenCount) -> Mapping[str, str]:
    return warning_headers([_ESTIMATE] if count.is_estimate else [])


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def _cut(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else text[: max_chars - 3] + "..."
