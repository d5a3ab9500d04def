"""How long each phase of a start took, for the one line that an engine logs when it is ready."""

from __future__ import annotations

import time
from collections.abc import Callable


class PhaseClock:
    """Phases follow each other without a gap: `lap` ends the one that it names.

    started_s: when the first one began, in seconds of `now`; by default the system's monotonic clock, which all
    processes share.
    """

    def __init__(self, started_s: float | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._started_s = self._lap_s = now() if started_s is None else started_s
        self._phases: list[tuple[str, float]] = []

    def lap(self, phase: str) -> None:
        now_s = self._now()
        self._phases.append((phase, now_s - self._lap_s))
        self._lap_s = now_s

    def summary(self) -> str:
        """`4.3 s: torch 1.2, weights 3.1`: seconds from the start to the last lap, and of each phase."""
        phases = ", ".join(f"{phase} {seconds:.2f}" for phase, seconds in self._phases)
        return f"{self._lap_s - self._started_s:.2f} s: {phases}"
