"""Halves of surrogate pairs: joined where both arrive, replaced where one stays alone.

A Python string may hold half a pair (an upstream that cuts its JSON inside ``\\ud83d\\ude80``); a delta may not.
"""

from __future__ import annotations

import re

REPLACEMENT = "\ufffd"

_HALVES = re.compile("[\ud800-\udbff][\udc00-\udfff]?|[\udc00-\udfff]")


def is_high(char: str) -> bool:
    return "\ud800" <= char <= "\udbff"


def is_low(char: str) -> bool:
    return "\udc00" <= char <= "\udfff"


def join_pair(high: str, low: str) -> str:
    return chr(0x10000 + ((ord(high) - 0xD800) << 10) + (ord(low) - 0xDC00))


def mend(text: str) -> str:
    """`text` with pairs joined and lone halves replaced. Free of cost where the text encodes."""
    if text.isascii():
        return text
    return _HALVES.sub(lambda half: join_pair(*half[0]) if len(half[0]) == 2 else REPLACEMENT, text)


class SurrogateJoiner:
    """Mends a stream of text pieces; a high half at the end of a piece waits for the next one."""

    __slots__ = ("_high",)

    def __init__(self) -> None:
        self._high = ""

    def feed(self, text: str) -> str:
        if not text:
            return ""
        if self._high:
            text = self._high + text
            self._high = ""
        if is_high(text[-1]):
            text, self._high = text[:-1], text[-1]
        return mend(text)

    def flush(self) -> str:
        """No more text follows: what waited, if anything, is a lone half."""
        high, self._high = self._high, ""
        return REPLACEMENT if high else ""
