"""Masks of many rows in one call of the library: its own threads compute them, and the GIL is released but once.

For rows whose masks are quick, which a Python thread each would double. One that takes long holds up the whole call:
rows whose `mask_may_take_long` says so are better asked one by one, each in a thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from threading import Lock
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
from llguidance import LLExecutor, LLMatcher

from inference.grammar.matcher import MaskRow, Matcher
from inference.processors import num_mask_threads


class Masked(Protocol):
    """Matcher, or anything else that has masks."""

    def mask(self, out: MaskRow) -> bool: ...


# A row whose mask is the library's alone; the lock, which rows may share, by its identity and itself.
_Member: TypeAlias = tuple[int, Lock, LLMatcher, Matcher, int]
_lexer = itemgetter(0)


class MaskThreads:
    """num_threads: the library's, which wait without work between two calls. Of one grammar's rows as many masks are
    computed at once as it has replicas."""

    def __init__(self, num_threads: int | None = None) -> None:
        self._executor = LLExecutor(num_threads or num_mask_threads())

    def compute(self, jobs: Sequence[tuple[int, Masked]], words: npt.NDArray[np.int32]) -> list[bool]:
        """Each (row, matcher) has its mask written into its row; returns what `mask` of each would: False, and the row
        left alone, where all tokens may come.

        words: [num_rows, vocabulary.mask_words] int32, contiguous, on the host; to be left as they are until each
        matcher has been asked whether it `has_mask`. No matcher twice, and none that another thread is using.
        """
        assert words.dtype == np.int32
        assert words.flags.c_contiguous
        together: list[_Member] = []
        is_masked = []
        for row, matcher in jobs:
            if isinstance(matcher, Matcher) and (grammar := matcher.masked_by()) is not None:
                lock = matcher.lexer_lock
                together.append((id(lock), lock, grammar, matcher, row))
                is_masked.append(True)
            else:
                is_masked.append(matcher.mask(words[row]))
        if together:
            # Rows that share a lexer side by side: mostly they fall to one thread, and none waits in another.
            together.sort(key=_lexer)
            self._compute(together, words)
        for _, _, _, member, row in together:
            member.mask_came(words[row])
        return is_masked

    def _compute(self, together: Sequence[_Member], words: npt.NDArray[np.int32]) -> None:
        num_rows, num_words = words.shape
        # In the order of all such calls, so that no two wait for each other.
        locks = dict.fromkeys([lock for _, lock, _, _, _ in together])
        for lock in locks:
            lock.acquire()
        try:
            self._executor.unsafe_compute_mask_ptr(
                [(grammar, row) for _, _, grammar, _, row in together], words.ctypes.data, 4 * num_words, num_rows
            )
        finally:
            for lock in locks:
                lock.release()
