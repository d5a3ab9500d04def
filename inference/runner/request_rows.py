"""One permanent row a live sequence: its tokens, block table and sampling state stay on the device between steps.

The host sends only what a StepPlan says has changed. All methods run on the runner's thread.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from inference.step import NewRow, StepPlan, is_simple
from inference.types import SamplingParams


@dataclass(frozen=True, slots=True)
class RowSampling:
    """How one row samples. bias_ids, end_ids: [n] int64, biases: [n] float32, on the rows' device; is_simple: see
    inference.step."""

    params: SamplingParams
    noise_key: int
    num_prompt_tokens: int
    no_end_before: int
    end_ids: torch.Tensor
    bias_ids: torch.Tensor
    biases: torch.Tensor
    is_simple: bool

    @classmethod
    def of(cls, new: NewRow, device: torch.device | str = "cpu") -> RowSampling:
        bias = new.params.logit_bias
        return cls(
            params=new.params,
            noise_key=new.noise_key,
            num_prompt_tokens=new.num_prompt_tokens,
            no_end_before=new.no_end_before,
            end_ids=_on(device, torch.tensor(new.end_token_ids, dtype=torch.int64)),
            bias_ids=_on(device, torch.tensor([token_id for token_id, _ in bias], dtype=torch.int64)),
            biases=_on(device, torch.tensor([value for _, value in bias], dtype=torch.float32)),
            is_simple=is_simple(new.params, len(new.end_token_ids)),
        )

    @property
    def is_filtered(self) -> bool:
        """A device's kernels filter its logits, and draw from what is left."""
        return self.is_simple and self.params.has_filters

    @property
    def is_plain_greedy(self) -> bool:
        return self.params.is_plain and self.params.temperature == 0 and self.params.min_tokens == 0


class RequestRows:
    """token_ids: [max_rows, max_model_len + 1] int64; block_table: [max_rows, max_blocks] int64.

    token_ids[row, p] is the token at position p; a step writes the token it samples where the next step reads it.
    """

    def __init__(self, max_rows: int, max_model_len: int, block_size: int) -> None:
        # Two past the end: the surplus step of a sequence that has just filled its context still needs a place.
        self.token_ids = torch.zeros((max_rows, max_model_len + 2), dtype=torch.int64)
        # And room for the longest length rounded up as attention rounds it; what lies past a row's end is masked.
        self.block_table = torch.zeros((max_rows, -(-max_model_len // block_size) + 64), dtype=torch.int64)
        self.sampling: list[RowSampling | None] = [None] * max_rows
        self.mask_holders = [0] * max_rows

    def apply(self, plan: StepPlan) -> None:
        """Write the plan's new rows, tokens and block ids."""
        for new in plan.new_rows:
            self.token_ids[new.row, : len(new.token_ids)] = torch.tensor(new.token_ids, dtype=torch.int64)
            self.sampling[new.row] = RowSampling.of(new)
            self.mask_holders[new.row] = new.mask_holder
        for tokens in plan.token_writes:
            ids = torch.tensor(tokens.token_ids, dtype=torch.int64)
            self.token_ids[tokens.row, tokens.start : tokens.start + len(ids)] = ids
        for write in plan.block_writes:
            ids = torch.tensor(write.block_ids, dtype=torch.int64)
            self.block_table[write.row, write.start : write.start + len(write.block_ids)] = ids


def _on(device: torch.device | str, values: torch.Tensor) -> torch.Tensor:
    """Moved without waiting for the device."""
    if torch.device(device).type == "cpu":
        return values
    return values.pin_memory().to(device, non_blocking=True)
