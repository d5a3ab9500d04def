"""Masks within a string in JSON of which nothing but its length is asked, once one is there and the bound is in sight.
They take the library 30 us, and up to 1.5 ms close to the bound, where no slice of the vocabulary applies
(docs/adr/0006); and are all but known.

If a string may end at once, and n characters may come, a mask with fewer left is this one without the tokens that bring
more characters than that before the string's quote. Characters count as grammars count them: an escape is one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

# With no more than so many characters left, an undeclared key is taken for such a string.
MOST_LEFT_OF_KEY = 24
# All of this may stand in a string that has room, and hardly in any other bounded text but a key that nobody declared,
# which has no escapes.
_IN_STRINGS = (b'"', b" ", b"<", b"{", b"[", b"\\")
_WHOLE_CHARS = re.compile(rb'(?:[^"\\\x00-\x1F]|\\(?:["\\bfnrt]|u00[01][0-9A-Fa-f]))+')
# Up to the quote that ends a string, with escapes and the beginning of one.
_UP_TO_QUOTE = re.compile(rb'(?:[^"\\]|\\(?:u[0-9A-Fa-f]{0,4}|[^u]|\Z))*')
_ESCAPE = re.compile(rb"\\(?:u[0-9A-Fa-f]{0,4}|[^u]|\Z)")
_CONTINUATIONS = bytes(range(0x80, 0xC0))  # bytes of UTF-8 that begin no character
NOT_PLAIN = 1 << 20  # characters, of what is no plain text: more than any room


class BoundedString:
    """Where a row is in such a string, some mask of which is known. left: characters that may come, as long as it is
    above 0."""

    __slots__ = ("_mask", "_tokens", "left")

    def __init__(self, tokens: StringTokens, mask: npt.NDArray[np.int32], left: int) -> None:
        self._tokens, self._mask, self.left = tokens, mask, left

    def write_mask(self, out: npt.NDArray[np.int32]) -> None:
        fitting = self._tokens.fitting
        np.bitwise_and(self._mask, fitting[min(self.left, len(fitting) - 1)], out=out)

    def accept(self, token_id: int) -> None:
        """`left` is 0 if the string must end now, and below if it has ended, or stands within a character."""
        self.left -= self._tokens.num_chars(token_id)


class StringTokens:
    """What tokens bring to a string. fitting: by what is left of it, the tokens that bring no more; the last, all."""

    def __init__(self, token_bytes: Sequence[bytes], plain_chars: Sequence[int], mask_words: int) -> None:
        self._token_bytes = token_bytes
        self._plain_chars = plain_chars
        marks = {text: token_id for token_id, text in enumerate(token_bytes) if text in _IN_STRINGS}
        self._marks = [marks[text] for text in _IN_STRINGS if text in marks]
        num_chars = np.full(32 * mask_words, NOT_PLAIN)
        num_chars[: len(token_bytes)] = [chars_before_quote(text) for text in token_bytes]
        sizes = frozenset(num_chars[: len(token_bytes)].tolist())
        self.fitting: list[npt.NDArray[np.int32]] = []
        for left in range(max(sizes, default=0) + 1):
            is_new = left in sizes or not left
            fitting = np.packbits(num_chars <= left, bitorder="little").view(np.int32) if is_new else self.fitting[-1]
            self.fitting.append(fitting)

    def string_at(
        self, mask: npt.NDArray[np.int32], room: int, known_lengths: Collection[int], *, or_key: bool
    ) -> BoundedString | None:
        """The string of which this is the mask; None if it may not end yet, or nobody knows how much is left of it.

        room: the longest of `known_lengths` of which some plain text may come. or_key: it may be an undeclared key. One
        that is close to its bound, for it may no more become a declared one then.
        """
        if room + 1 not in known_lengths or len(self._marks) < len(_IN_STRINGS):
            return None
        words = mask.data
        marks = self._marks[:-1] if or_key and room < MOST_LEFT_OF_KEY else self._marks
        if not all(words[token_id >> 5] >> (token_id & 31) & 1 for token_id in marks):
            return None
        return BoundedString(self, mask.copy(), room)

    def num_chars(self, token_id: int) -> int:
        """More than fit, for a token that ends a string or has part of a character."""
        num_chars = self._plain_chars[token_id]
        if num_chars < NOT_PLAIN:
            return num_chars
        text = self._token_bytes[token_id]
        return chars_before_quote(text) if _WHOLE_CHARS.fullmatch(text) and is_utf8(text) else NOT_PLAIN


def chars_before_quote(text: bytes) -> int:
    """What begins as a character counts as one."""
    if b"\\" in text:
        whole = _UP_TO_QUOTE.match(text)
        text = _ESCAPE.sub(b"x", whole[0]) if whole else b""
    else:
        text = text.partition(b'"')[0]
    return len(text.translate(None, _CONTINUATIONS))


def is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
