"""Pinned memory and an event for each step on its way, kept for the steps after it.

What a step sends and what it gets back are a few hundred words, and cost the host more than the step: allocators that
look what the device is done with, and launches of 80 us each where other threads want the interpreter. So each step's
memory has graphs of its own, which take what is sent and bring what comes back by a call of a few microseconds.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from inference.runner.graphs import captured
from inference.runner.kernels.rows import scatter

# What the graphs take; more is sent by a copy and a launch.
_MOST_WRITES, _MOST_WORDS = 64, 4096
# As many steps as are on their way at once, as a rule: two of each track.
_USUAL_STEPS = 4

# Where in the arena, and what is written there from that place on.
Write = tuple[int, Sequence[int]]


class StepBuffers:
    """One launched step's, until its results have been taken in: what is sent, what comes back, and whether it has."""

    def __init__(self, num_results: int, arena: torch.Tensor) -> None:
        self._arena, self._done = arena, torch.cuda.Event()
        self._results = torch.empty(num_results, dtype=torch.int32, pin_memory=True)
        self._sent = torch.zeros(_MOST_WORDS, dtype=torch.int32, pin_memory=True)
        self._words = self._sent.numpy()
        self._arrived = torch.zeros_like(self._sent, device=arena.device)
        self._scatter: torch.cuda.CUDAGraph | None = None
        self._fetches: dict[int, torch.cuda.CUDAGraph] = {}

    def capture(self, stream: torch.cuda.Stream, results: Sequence[torch.Tensor]) -> None:
        """results: what `fetch` will be given, all of it each time."""
        self._scatter = captured(self._send, stream)
        for result in results:
            self._fetches[id(result)] = captured(lambda result=result: self._copy(result), stream)  # type: ignore[misc]

    def apply(self, writes: Sequence[Write]) -> None:
        """Enqueue the writes on the current stream; targets do not overlap. Once a step."""
        count = len(writes)
        words, data = [count], list[int]()
        first = 1 + 3 * count
        for target, values in writes:
            words += (target, first + len(data), len(values))
            data += values
        words += data
        if self._scatter is not None and count <= _MOST_WRITES and len(words) <= _MOST_WORDS:
            self._words[: len(words)] = words
            self._scatter.replay()
        else:
            pinned = torch.tensor(words, dtype=torch.int32).pin_memory()
            scatter(self._arena, pinned.to(self._arena.device, non_blocking=True), count)

    def fetch(self, results: torch.Tensor) -> None:
        """Enqueue the way back of [n] int32, behind everything else of the step."""
        graph = self._fetches.get(id(results))
        if graph is None:
            self._copy(results)
        else:
            graph.replay()
        self._done.record()

    @property
    def is_done(self) -> bool:
        return self._done.query()

    def wait(self) -> list[int]:
        """All results there is room for: the last fetched ones first."""
        self._done.synchronize()
        results: list[int] = self._results.tolist()
        return results

    def forget(self) -> None:
        """The graphs; nothing of this runs."""
        self._scatter = None
        self._fetches.clear()

    def _send(self) -> None:
        # Copied whole: programs that read one line of the host's memory would wait for each other.
        self._arrived.copy_(self._sent, non_blocking=True)
        scatter(self._arena, self._arrived, _MOST_WRITES)

    def _copy(self, results: torch.Tensor) -> None:
        self._results[: len(results)].copy_(results, non_blocking=True)


class StepBuffersPool:
    """As many as steps were ever on their way at once. A step that nobody waits for keeps its own."""

    def __init__(self, num_results: int, arena: torch.Tensor) -> None:
        self._num_results, self._arena = num_results, arena
        self._all = [StepBuffers(num_results, arena) for _ in range(_USUAL_STEPS)]
        self._free = list(self._all)

    def capture(self, stream: torch.cuda.Stream, results: Sequence[torch.Tensor]) -> None:
        for buffers in self._all:
            buffers.capture(stream, results)

    def take(self) -> StepBuffers:
        return self._free.pop() if self._free else StepBuffers(self._num_results, self._arena)

    def give_back(self, buffers: StepBuffers) -> None:
        self._free.append(buffers)

    def forget(self) -> None:
        for buffers in self._all:
            buffers.forget()
