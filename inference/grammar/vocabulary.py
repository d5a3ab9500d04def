"""A tokenizer as the grammar library wants it, and each token's bytes. Built once a model; shared by threads."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from llguidance import LLTokenizer
from llguidance._tokenizer import TokenizerWrapper

from inference.grammar.bounded_strings import NOT_PLAIN, BoundedString, StringTokens, is_utf8
from inference.grammar.special_tokens import special_tokens_of

# Kinds of tokens whose part of a mask is known at once where the lexer takes any text of their kind: the longer ones go
# on where the shorter ones end. With a bound on text, only those apply that are no longer than what is left of it, so
# there are several lengths of the commonest, text without quotes and without the characters with which the dialects'
# markers begin. How the lengths were chosen: docs/adr/0006.
_SLICES = [
    r"[\x20\x0A\x0D\x09]+",
    *(rf"""[^"'\\\x00-\x1F\x7F<\[\]{{}}|>]{{1,{num_chars}}}""" for num_chars in (4, 7, 10, 16, 30)),
    *(rf'[^"\\\x00-\x1F\x7F]{size}' for size in ("{1,10}", "{1,30}", "+")),
]


# What hardly begins a marker, a quote or an escape in any dialect. A wrong guess costs a token's second draw.
_PLAIN = re.compile(rb"[A-Za-z0-9 _.,;:!?()'/+*=%$#@&~^\x80-\xff-]+")
_NUM_PROBES = 32
_PROBES_A_WORD = 4
_SHORT = 64


class Vocabulary:
    """vocab_size: of the model's logits; ids beyond the tokenizer's own are never allowed.

    special_tokens: the tokens that stand for markers as a whole, by text.
    """

    def __init__(
        self, tokenizer: LLTokenizer, vocab_size: int, end_token_ids: Sequence[int], special_tokens: Mapping[str, int]
    ) -> None:
        assert all(tokenizer.is_special_token(token_id) for token_id in special_tokens.values())
        self.tokenizer = tokenizer
        self.vocab_size = vocab_size
        self.end_token_ids = frozenset(end_token_ids)
        self.special_tokens = dict(special_tokens)
        self._token_bytes = [self._read_bytes(token_id) for token_id in range(tokenizer.vocab_size)]
        self._sorted_ids = sorted(range(len(self._token_bytes)), key=self._token_bytes.__getitem__)
        self._sorted_bytes = [self._token_bytes[token_id] for token_id in self._sorted_ids]

        self.plain_chars = [_plain_chars(text) for text in self._token_bytes]
        self._probes, self._rulers = self._choose_probes()
        self._ruled_lengths = frozenset(num_chars for num_chars, _, _ in self._rulers)
        self._strings = StringTokens(self._token_bytes, self.plain_chars, self.mask_words)

    def _choose_probes(self) -> tuple[list[tuple[int, int]], list[tuple[int, int, int]]]:
        """Tokens of one character that tell free text from anything else, as (word, its bits), and rulers: (characters,
        word, its bit) of a token of each length up to _SHORT and of some beyond, longest first."""
        plain = [token_id for token_id in self._sorted_ids if self.plain_chars[token_id] < NOT_PLAIN]
        single = [token_id for token_id in plain if self.plain_chars[token_id] == 1]
        by_word: dict[int, list[int]] = {}
        for token_id in single:
            by_word.setdefault(token_id >> 5, []).append(token_id)
        # From few words, since each is a look: those with letters and digits, and those that hold most of others.
        num_ascii = {
            word: sum(len(self._token_bytes[token_id]) == 1 for token_id in ids) for word, ids in by_word.items()
        }
        words = sorted(by_word, key=lambda word: (-num_ascii[word], -len(by_word[word]), word))
        probes = []
        for word in words[: _NUM_PROBES // _PROBES_A_WORD]:
            ids = by_word[word][:: -(-len(by_word[word]) // _PROBES_A_WORD)]
            probes.append((word, sum(1 << (token_id & 31) for token_id in ids)))
        rulers: dict[int, tuple[int, int, int]] = {}
        for token_id in sorted(plain, key=self.plain_chars.__getitem__, reverse=True):
            size = self.plain_chars[token_id]
            ruler = size, token_id >> 5, 1 << (token_id & 31)
            rulers.setdefault(size if size <= _SHORT else size // 8 * 8 + _SHORT, ruler)
        return probes, list(rulers.values())

    def left_of_text(self, num_left: int, token_id: int) -> int:
        """What a token leaves of at least so many characters of text; 0 if it ends the text.

        What `room_for_text` told may be too little, so a text is not over before its quote.
        """
        num_chars = self.plain_chars[token_id]
        if num_chars == NOT_PLAIN:
            text = self._token_bytes[token_id]
            if b'"' in text:
                return 0
            num_chars = len(text.decode(errors="replace"))
        return max(1, num_left - num_chars)

    def bounded_string(self, mask: npt.NDArray[np.int32], room: int, *, or_key: bool) -> BoundedString | None:
        """For a grammar that `has_plain_strings`: the one that this is the mask of, if it may end at once and as much
        is known of it. room: what `room_for_text` tells of the mask. or_key: the grammar `has_plain_keys`, too."""
        return self._strings.string_at(mask, room, self._ruled_lengths, or_key=or_key)

    @property
    def most_room(self) -> int:
        """The most that `room_for_text` can tell."""
        return self._rulers[0][0] if self._rulers else 0

    def room_for_text(self, mask: npt.NDArray[np.int32]) -> int:
        """How many characters of plain text may surely come, as far as a few tokens tell: 0 where it is not free text.

        mask: [mask_words] int32, as a matcher has written it.
        """
        words = mask.data  # a few of its words as ints: a tenth of what numpy takes for so few
        for at, bits in self._probes:
            if words[at] & bits != bits:
                return 0
        rulers = self._rulers if self._probes else []
        if not rulers or words[rulers[0][1]] & rulers[0][2]:
            return self.most_room
        # Where a length has room, so have the shorter ones.
        first = bisect_left(rulers, True, key=lambda ruler: words[ruler[1]] & ruler[2] != 0)
        return rulers[first][0] if first < len(rulers) else 0

    @classmethod
    def from_tokenizer_json(cls, text: str, vocab_size: int, end_token_ids: Sequence[int]) -> Vocabulary:
        """text: the content of tokenizer.json. Takes about 0.3 s for 49k tokens, 1 s for 150k."""
        tokenizer = LLTokenizer(text, vocab_size, list(end_token_ids), slices=_SLICES)
        return cls(tokenizer, vocab_size, end_token_ids, special_tokens_of(text))

    @classmethod
    def from_token_bytes(
        cls, token_bytes: Sequence[bytes], vocab_size: int, end_token_ids: Sequence[int], special: Sequence[int] = ()
    ) -> Vocabulary:
        """For vocabularies without a tokenizer.json: text is tokenised greedily, the longest token first."""
        padded = [*token_bytes, *[b""] * (vocab_size - len(token_bytes))]
        wrapped = TokenizerWrapper(_GreedyTokenizer(padded, end_token_ids[0], special))
        tokenizer = LLTokenizer(wrapped, vocab_size, list(end_token_ids), slices=_SLICES)
        names = {token_bytes[token_id].decode(): token_id for token_id in special}
        return cls(tokenizer, vocab_size, end_token_ids, names)

    @property
    def mask_words(self) -> int:
        """int32 words of one row's mask."""
        return (self.vocab_size + 31) // 32

    def _read_bytes(self, token_id: int) -> bytes:
        if self.tokenizer.is_special_token(token_id):
            return special_bytes(token_id)
        return self.tokenizer.decode_bytes([token_id])

    def bytes_of(self, token_id: int) -> bytes:
        """What a token adds to the text; a special one, a mark that no text contains."""
        return self._token_bytes[token_id] if 0 <= token_id < len(self._token_bytes) else b""

    def encode(self, text: str, special_tokens: Mapping[str, int]) -> bytes:
        """`text` as `bytes_of` would give it, its special tokens as marks."""
        encoded = text.encode()
        for token in sorted(special_tokens, key=len, reverse=True):
            if token:
                encoded = encoded.replace(token.encode(), special_bytes(special_tokens[token]))
        return encoded

    def tokens_of(self, encoded: bytes) -> list[int]:
        """The canonical tokens of what `encode` gave."""
        found: list[int] = []
        for number, piece in enumerate(encoded.split(b"\xff")):
            text = piece
            if number:
                token_id, _, text = piece.removeprefix(b"[").partition(b"]")
                found.append(int(token_id))
            if text:
                found += self.tokenizer.tokenize_bytes(text)
        return found

    def longer_than(self, beginning: bytes) -> npt.NDArray[np.int64]:
        """The tokens that begin so and go on."""
        first = bisect_right(self._sorted_bytes, beginning)
        last = bisect_left(self._sorted_bytes, beginning + b"\xff", lo=first)
        return np.array(self._sorted_ids[first:last], dtype=np.int64)


def _plain_chars(text: bytes) -> int:
    """How many characters long a token of plain text is; more than any room, if it may be more than that."""
    if not _PLAIN.fullmatch(text):
        return NOT_PLAIN
    return len(text.decode()) if is_utf8(text) else NOT_PLAIN


def allow_only(out: npt.NDArray[np.int32], token_ids: Iterable[int]) -> None:
    """Write a mask. out: [mask_words] int32, contiguous, on the host."""
    words = out.data.cast("B")  # for so little, numpy takes four times as long
    words[:] = bytes(len(words))
    for token_id in token_ids:
        words[token_id >> 3] |= 1 << (token_id & 7)


def special_bytes(token_id: int) -> bytes:
    return b"\xff[%d]" % token_id


class _GreedyTokenizer:
    def __init__(self, token_bytes: Sequence[bytes], end_token_id: int, special: Iterable[int]) -> None:
        self.eos_token_id = end_token_id
        self.bos_token_id = None
        self.special_token_ids = sorted({*special, end_token_id})
        self.tokens = list(token_bytes)
        usable = [(text, i) for i, text in enumerate(token_bytes) if text and i not in self.special_token_ids]
        self._ids = dict(reversed(usable))
        self._longest = max((len(text) for text, _ in usable), default=1)

    def __call__(self, text: bytes) -> list[int]:
        found, at = [], 0
        while at < len(text):
            size = next((n for n in range(self._longest, 0, -1) if text[at : at + n] in self._ids), 0)
            if size:
                found.append(self._ids[text[at : at + size]])
            at += size or 1
        return found
