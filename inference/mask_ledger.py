"""Which sampled token needs which mask: the host's side of what the runner does not wait for. Pure Python.

A row's holders are numbered, and a mask is for one holder and one position of its sequence. A step may be launched
before the mask of its tokens is known; when it comes to sampling, the runner looks which mask the row has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

# Beyond every position: what a holder that has left still samples is of no interest.
_PAST_THE_END = 1 << 30


class TokenMatcher(Protocol):
    """What the scheduler needs of inference.grammar.matcher.Matcher."""

    @property
    def is_done(self) -> bool: ...

    @property
    def error(self) -> str: ...

    def expect(self, token_id: int) -> None:
        """The next call is `accept` of this: who works elsewhere may begin."""
        ...

    @property
    def is_answered(self) -> bool:
        """Whether that call knows the answer by now, or soon."""
        ...

    def accept(self, token_id: int) -> bool: ...

    def forced(self) -> tuple[int, ...]: ...

    @property
    def lets_most_through(self) -> bool:
        """Nearly everything may come next: quicker to draw without a mask, and again with it if need be."""
        ...

    @property
    def writes_text(self) -> bool:
        """Nothing is forced here: guesses may be verified without masks before one is there."""
        ...

    @property
    def has_mask(self) -> bool:
        """The next token's mask has been made: nobody but the caller uses the matcher now, and `forced` is known."""
        ...

    def mask(self, out: Any) -> bool: ...


class MaskJob(NamedTuple):
    """Fill in the mask of `row` from `matcher`, for the token at `position` of the row's holder; None: let everything
    through. Jobs of a row come in order: what is sampled for an earlier (holder, position) comes to nothing.
    """

    row: int
    holder: int
    position: int
    matcher: TokenMatcher | None


class MaskMaker(Protocol):
    """Writes masks where a device reads them."""

    @property
    def counts(self) -> tuple[int, float]:
        """Masks so far, and the seconds that they took in all."""
        ...

    def reset(self) -> None:
        """Holders are numbered anew; nothing runs."""
        ...

    def post(self, jobs: Sequence[MaskJob]) -> None: ...


class MaskLedger:
    """Numbers the holders of constrained rows, from 1, and collects the jobs that the runner has not been given yet."""

    def __init__(self, num_rows: int) -> None:
        self._holders = [0] * num_rows
        self._jobs: list[MaskJob] = []

    def enter(self, row: int) -> int:
        """Another sequence has the row; returns its number."""
        self._holders[row] += 1
        return self._holders[row]

    def post(self, row: int, position: int, matcher: TokenMatcher | None) -> None:
        """All tokens before `position` are known."""
        self._jobs.append(MaskJob(row, self._holders[row], position, matcher))

    def release(self, row: int) -> None:
        """Nothing must wait for the holder's masks any more."""
        self._jobs.append(MaskJob(row, self._holders[row], _PAST_THE_END, None))

    def take(self) -> list[MaskJob]:
        jobs, self._jobs = self._jobs, []
        return jobs
