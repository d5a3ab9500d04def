"""Guesses a turn's next tokens from its own history: what came after the same few tokens before (prompt lookup,
github.com/apoorvumang/prompt-lookup-decoding, 2023). Pure Python over ints.

Agents copy: file contents into arguments, results into answers. A guess costs a wider pass when it is wrong, so a turn
guesses more while its guesses hold, less while they do not, and for a while not at all.
"""

from __future__ import annotations

from collections.abc import Sequence

_NGRAM = 3
_FIRST_GUESS = 4
_FIRST_REST = 16
_LONGEST_REST = 512


class PromptLookup:
    """Of one turn; reads its tokens as they grow. most: tokens of one guess. O(1) a token."""

    def __init__(self, token_ids: Sequence[int], most: int) -> None:
        self._token_ids = token_ids
        self._most = most
        self._size = min(_FIRST_GUESS, most)
        self._rest = _FIRST_REST
        self._rests_until = 0
        self._num_indexed = 0
        self._after: dict[tuple[int, ...], int] = {}  # where the latest occurrence of an n-gram ends

    def guess(self, room: int) -> tuple[int, ...]:
        """What may come next, at most `room` tokens; () where nothing is known, or guessing has not paid."""
        tokens = self._token_ids
        self._index()
        if len(tokens) < max(_NGRAM, self._rests_until):
            return ()
        found = self._after.get(tuple(tokens[-_NGRAM:]))
        if found is None:
            return ()
        # What repeats is taken to go on repeating.
        period = len(tokens) - found
        return tuple(tokens[found + i % period] for i in range(min(self._size, room)))

    def learn(self, num_guessed: int, num_right: int) -> None:
        if num_right == num_guessed:
            self._size = min(2 * self._size, self._most)
            self._rest = _FIRST_REST
        elif num_right == 0:
            self._size = min(_FIRST_GUESS, self._most)
            self._rests_until = len(self._token_ids) + self._rest
            self._rest = min(2 * self._rest, _LONGEST_REST)
        else:
            self._size = max(num_right, 1)

    def _index(self) -> None:
        """The n-gram that the sequence ends with now is left out: it has no continuation yet."""
        tokens = self._token_ids
        for end in range(max(self._num_indexed, _NGRAM), len(tokens)):
            self._after[tuple(tokens[end - _NGRAM : end])] = end
        self._num_indexed = max(self._num_indexed, len(tokens))
