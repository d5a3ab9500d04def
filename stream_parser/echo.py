"""Drops a call block that the model repeats right after its end (LFM2 does): all but the opener comes twice.

Knows nothing of dialects; the machine feeds it what it read. O(length of the block), once.
"""

from __future__ import annotations


class EchoFilter:
    __slots__ = ("_block", "_expected")

    def __init__(self) -> None:
        self._block: list[str] = []
        self._expected = ""  # the last block's body, if text right behind it may be its echo

    @property
    def is_due(self) -> bool:
        return bool(self._expected)

    def begin(self, head: str) -> None:
        """A block begins; `head` is what was read of it behind its opener."""
        self._block = [head]
        self._expected = ""

    def add(self, text: str) -> None:
        self._block.append(text)

    def end(self, closers: tuple[str, ...], unread: str) -> None:
        """The block is over; `unread` was read of the text behind it and given back."""
        body = "".join(self._block).removesuffix(unread).rstrip()
        for closer in closers:
            body = body.removesuffix(closer)
        self._expected = body.strip()
        self._block = []

    def skip(self, text: str, pos: int, final: bool) -> int | None:
        """Where to read on behind an echo at `pos`; `pos` if there is none; None if it takes more text to tell."""
        start = pos
        while start < len(text) and text[start].isspace():
            start += 1
        if text.startswith(self._expected, start):
            end = start + len(self._expected)
            self._expected = ""
            return end
        if not final and self._expected.startswith(text[start:]):
            return None
        self._expected = ""
        return pos
