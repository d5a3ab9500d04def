"""Which sampled token waits for which mask: the host's side of what the runner does not wait for. Pure Python.

Each token that a constrained row samples has a ticket, counted up by row whoever holds it. A step may be launched
before the mask of its tokens is known; it waits, when it comes to sampling, until its row's ticket has been posted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


class TokenMatcher(Protocol):
    """What the scheduler needs of inference.grammar.matcher.Matcher."""

    @property
    def is_done(self) -> bool: ...

    @property
    def error(self) -> str: ...

    def accept(self, token_id: int) -> bool: ...

    def forced(self) -> tuple[int, ...]: ...

    def mask(self, out: Any) -> bool: ...


@dataclass(frozen=True, slots=True)
class MaskJob:
    """Fill in the mask of `row` from `matcher`, or allow everything if it is None, and then post `ticket`."""

    row: int
    ticket: int
    matcher: TokenMatcher | None


class MaskLedger:
    """Counts tickets as steps are planned, and collects the jobs that the runner has not been given yet."""

    def __init__(self, num_rows: int) -> None:
        self._num_planned = [0] * num_rows
        self._jobs: list[MaskJob] = []

    def planned(self, row: int) -> None:
        """A step that samples a token of this constrained row has been planned."""
        self._num_planned[row] += 1

    def post(self, row: int, num_in_flight: int, matcher: TokenMatcher) -> None:
        """All tokens so far are known: the mask is that of the first of the `num_in_flight` planned ones that are
        wanted, or of the next one to be planned. Earlier ones come to nothing, so it may serve them too."""
        self._jobs.append(MaskJob(row, self._num_planned[row] - num_in_flight + 1, matcher))

    def release(self, row: int) -> None:
        """What the row still samples is of no interest; nothing must wait for it."""
        self._jobs.append(MaskJob(row, self._num_planned[row], None))

    def take(self) -> list[MaskJob]:
        jobs, self._jobs = self._jobs, []
        return jobs
