"""Kernels that start while the one before still runs (programmatic dependent launch, CUDA Programming Guide).

A kernel that lets the next one start says so when it begins; the next one's programs come in where there is room, fetch
what nobody is still writing, and wait for the one before to be done. What either of them computes is the same.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

# Triton's interpreter runs one program after another.
_IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


@dataclass(frozen=True, slots=True)
class Overlap:
    """Of one launch with the one before, and with the next. Both must know: who starts early waits for the one before
    alone, and that one must not end before those that it waits for."""

    starts_early: bool = False
    lets_next_start: bool = False


NO_OVERLAP = Overlap()


def may_overlap(device: torch.device) -> bool:
    """Since Hopper."""
    return device.type == "cuda" and not _IS_INTERPRETED and torch.cuda.get_device_capability(device) >= (9, 0)
