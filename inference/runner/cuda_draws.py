"""How a pass of the CUDA runner draws its tokens: plain rows in the pass itself, filtered ones right after it."""

from __future__ import annotations

import torch

from inference.runner.cuda_rows import CudaRows
from inference.runner.device_masks import DeviceMasks
from inference.runner.kernels.filters import Filters
from inference.runner.kernels.sampling import Sampling


class Draws:
    """The sampling kernels and their scratch, for one stream. max_batch: entries of a pass at most; spins: see
    Sampling, and for what a draw takes as well."""

    def __init__(self, rows: CudaRows, masks: DeviceMasks, vocab_size: int, *, max_batch: int, spins: int) -> None:
        sampled = rows.sampled
        self._rows = rows
        self._sampling = Sampling(
            sampled, masks, vocab_size, max_batch=max_batch, spare_row=rows.spare_row, spins=spins
        )
        self._filters = Filters(
            sampled.temperatures, sampled.top_ks, sampled.top_ps, sampled.min_ps, rows.unfiltered, vocab_size, max_batch
        )
        # Rows that are both constrained and filtered are drawn by the host.
        self._no_masks = torch.zeros(max_batch, 1, dtype=torch.int32, device=sampled.lengths.device)

    def plain(
        self, logits: torch.Tensor, rows: torch.Tensor, turns: torch.Tensor, positions: torch.Tensor,
        results: torch.Tensor,
    ) -> None:  # fmt: skip
        """Part of the pass; the others' lengths are set as well."""
        self._sampling(logits, rows, turns, positions, results)

    def filtered(
        self, logits: torch.Tensor, rows: torch.Tensor, turns: torch.Tensor, positions: torch.Tensor,
        results: torch.Tensor,
    ) -> None:  # fmt: skip
        """Behind a pass that has filtered rows; passes without are spared its launches."""
        masks = self._no_masks[: len(logits)]
        cutoffs = self._filters(logits, rows, turns, masks, masks[:, 0])
        self._sampling(logits, rows, turns, positions, results, cutoffs)
