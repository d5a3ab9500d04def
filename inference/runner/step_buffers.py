"""Pinned memory and an event for each step on its way, kept for the steps after it.

Asking the allocators for them, which look each time what the device is done with, took a third of a launch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

_LEAST_WORDS = 1024
# As many steps as are on their way at once, as a rule: two of each track.
_USUAL_STEPS = 4


class StepBuffers:
    """One launched step's, until its results have been taken in: what is sent, what comes back, and whether it has."""

    def __init__(self, num_results: int, device: torch.device) -> None:
        self._device, self._done = device, torch.cuda.Event()
        self._results = torch.empty(num_results, dtype=torch.int32, pin_memory=True)
        self._reserve(_LEAST_WORDS)

    def send(self, words: Sequence[int]) -> torch.Tensor:
        """A copy on the device, int32, enqueued on the current stream; good for this step. Once a step."""
        count = len(words)
        if count > len(self._sent):
            self._reserve(2 * count)
        self._words[:count] = words
        return self._on_device[:count].copy_(self._sent[:count], non_blocking=True)

    def fetch(self, results: torch.Tensor) -> None:
        """Enqueue the way back of [n] int32, behind everything else of the step."""
        self._results[: len(results)].copy_(results, non_blocking=True)
        self._done.record()

    @property
    def is_done(self) -> bool:
        return self._done.query()

    def wait(self) -> list[int]:
        """All results there is room for: the last fetched ones first."""
        self._done.synchronize()
        results: list[int] = self._results.tolist()
        return results

    def _reserve(self, count: int) -> None:
        self._sent = torch.empty(count, dtype=torch.int32, pin_memory=True)
        self._words = self._sent.numpy()
        self._on_device = torch.empty(count, dtype=torch.int32, device=self._device)


class StepBuffersPool:
    """As many as steps were ever on their way at once. A step that nobody waits for keeps its own."""

    def __init__(self, num_results: int, device: torch.device) -> None:
        self._num_results, self._device = num_results, device
        self._free = [StepBuffers(num_results, device) for _ in range(_USUAL_STEPS)]

    def take(self) -> StepBuffers:
        return self._free.pop() if self._free else StepBuffers(self._num_results, self._device)

    def give_back(self, buffers: StepBuffers) -> None:
        self._free.append(buffers)
