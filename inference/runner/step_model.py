"""What the CUDA runner drives: a model that decodes and prefills over the paged cache, fused or not.

All of it runs on the runner's stream and can be captured in a CUDA graph: nothing here waits for the device, and no
shape depends on data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

from inference.runner.cuda_model import PackedTokens, Scratch, nothing
from inference.runner.kernels.attention import PagedAttention
from inference.runner.kernels.heads import HeadShape


class StepModel(Protocol):
    """embedding: [vocab, n], what gather_rows copies for a row's newest token; cos_sin: [max_model_len, m] float32,
    what it copies for its position. shape: as the cache has it. num_outputs: logits a token."""

    shape: HeadShape
    embedding: torch.Tensor
    cos_sin: torch.Tensor
    num_outputs: int

    def scratch(self, rows: int, block_table: torch.Tensor) -> Scratch: ...

    def decode(
        self, scratch: Scratch, batch: int, paged: PagedAttention, *, before_logits: Callable[[], None] = nothing
    ) -> torch.Tensor:
        """scratch.inputs holds the batch; returns its logits, [B, vocab] float32, in scratch.logits.

        before_logits: called once, before the last product where that is possible: what it enqueues on another stream
        runs beside.
        """
        ...

    def prefill(self, tokens: PackedTokens, paged: PagedAttention) -> torch.Tensor:
        """Logits [S, vocab] float32 of the tokens at tokens.sample_at."""
        ...
