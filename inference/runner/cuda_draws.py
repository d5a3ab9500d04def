"""How a pass of the CUDA runner draws its tokens: plain rows in the pass itself, filtered ones right after it."""

from __future__ import annotations

import torch

from inference.runner.cuda_rows import CudaRows
from inference.runner.device_masks import DeviceMasks
from inference.runner.kernels.fetched_masks import FetchedMasks
from inference.runner.kernels.filters import Filters
from inference.runner.kernels.sampling import Sampling


class Draws:
    """The sampling kernels and their scratch, for one stream. max_batch: entries of a pass at most; spins: see
    FetchedMasks."""

    def __init__(self, rows: CudaRows, masks: DeviceMasks, vocab_size: int, *, max_batch: int, spins: int) -> None:
        sampled = rows.sampled
        self._masks = FetchedMasks(
            masks, sampled.mask_holders, max_batch, spins=spins, spare_row=rows.spare_row
        )
        self._sampling = Sampling(sampled, self._masks, vocab_size, max_batch=max_batch, spare_row=rows.spare_row)
        self._filters = Filters(
            sampled.temperatures, sampled.top_ks, sampled.top_ps, sampled.min_ps, rows.unfiltered, vocab_size, max_batch
        )

    def fetch_masks(self, rows: torch.Tensor, turns: torch.Tensor, positions: torch.Tensor) -> None:
        """Part of the pass, before it draws; needs no logits."""
        self._masks(rows, turns, positions)

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
        count = len(logits)
        cutoffs = self._filters(logits, rows, turns, self._masks.words[:count], self._masks.states[:count])
        self._sampling(logits, rows, turns, positions, results, cutoffs)

    def rule_out(self, logits: torch.Tensor, row: int, holder: int, position: int) -> None:
        """See FetchedMasks. Behind everything else of the pass: it takes the place of the first entry's mask."""
        self._masks.rule_out(logits, row, holder, position)
