"""How a process shares out the machine's processors: one number for all whose counts must agree."""

from __future__ import annotations

import os

_MAX_MASK_THREADS = 16
_MAX_GRAMMAR_PROCESSES = 4


def num_mask_threads() -> int:
    """How many threads compute masks at once, and so how many lexers one grammar's rows can keep busy.

    Two processors are left to the step loop and to whoever feeds it.
    """
    return max(1, min(_MAX_MASK_THREADS, (os.cpu_count() or 1) - 2))


def num_grammar_processes() -> int:
    """How many processes follow constrained rows for a device's engine, one of four processors each; 0: on so few, the
    engine's own does."""
    return min(_MAX_GRAMMAR_PROCESSES, (os.cpu_count() or 1) // 4)
