"""How a process shares out the machine's processors: one number for all whose counts must agree."""

from __future__ import annotations

import os

_MAX_MASK_THREADS = 16
_MAX_GRAMMAR_PROCESSES = 4


def num_processors() -> int:
    """That this process may run on, which a container may have bounded."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def num_mask_threads() -> int:
    """How many threads compute masks at once, and so how many lexers one grammar's rows can keep busy.

    Two processors are left to the step loop and to whoever feeds it.
    """
    return max(1, min(_MAX_MASK_THREADS, num_processors() - 2))


def num_grammar_processes() -> int:
    """How many processes follow constrained rows for a device's engine, one of four processors each; 0: on so few, the
    engine's own does."""
    return min(_MAX_GRAMMAR_PROCESSES, num_processors() // 4)
