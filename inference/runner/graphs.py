"""Captures what is enqueued again and again, to be enqueued by one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def captured(run: Callable[[], object], stream: torch.cuda.Stream, pool: Any = None) -> torch.cuda.CUDAGraph:
    """What `run` enqueues on this stream; it is enqueued once now. pool: memory shared with other graphs."""
    with torch.cuda.stream(stream):
        run()  # libraries set up what they need for this size
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool, stream=stream):
            run()
    return graph
