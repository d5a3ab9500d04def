"""How an engine shares out the machine's processors."""

from __future__ import annotations

import os

_MAX_GRAMMAR_PROCESSES = 6


def num_processors() -> int:
    """That this process may run on, which a container may have bounded."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def num_grammar_processes() -> int:
    """How many processes follow constrained rows for a device's engine: three of eight processors are theirs, up to
    what is enough."""
    return max(1, min(_MAX_GRAMMAR_PROCESSES, num_processors() * 3 // 8))
