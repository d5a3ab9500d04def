"""What the scheduler asks of the runner for one step, and what comes back. Pure data, standard library only.

A plan carries only what changed: the runner keeps every live sequence's tokens, lengths and block table in its row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from inference.types import SamplingParams, TokenLogprobs

# A StepPlan's tracks. Where prefills do not run beside decodes, all steps are of the first.
DECODES, PREFILLS = 0, 1
LATE = -1


# So many end tokens a device's sampling kernel can rule out while they come too early.
MAX_ENDS = 8


def is_simple(params: SamplingParams, num_ends: int) -> bool:
    """Do a device's sampling kernels do all that is asked for? Else the host draws, by operations on the device."""
    if params.has_filters:
        # They come before early end tokens there, and behind them by rights.
        return params.is_plain and params.min_tokens == 0
    return params.is_plain and (params.min_tokens == 0 or num_ends <= MAX_ENDS)


@dataclass(frozen=True, slots=True)
class StepBounds:
    """What a runner's steps can hold, and how it runs them.

    prefills_apart: a plan holds decodes and runs, or prefill chunks, and the two kinds run at the same time.
    sizes: ascending; steps of decodes and runs take equally long up to each of these numbers of tokens, so runs fill a
    step up to the next one, but make nobody wait for a longer step. longest_run: tokens of a known run that are
    computed one by one; run_keys: and so many keys may they read, each token for itself. Longer ones are read as
    prompts are.
    masks_may_be_late: a constrained row whose mask has not come samples nothing (LATE) instead of holding up the step.
    """

    prefills_apart: bool = False
    sizes: tuple[int, ...] = (1 << 30,)
    longest_run: int = 32
    run_keys: int = 1 << 30
    masks_may_be_late: bool = False

    def room_beside(self, num_rows: int) -> int:
        """Tokens of runs that fit a step beside one token of each of so many rows. Rows are never more than the last
        size."""
        return next(size for size in self.sizes if size >= num_rows) - num_rows


@dataclass(frozen=True, slots=True)
class NewRow:
    """A sequence enters its row before the step. `token_ids` are all tokens known so far, the prompt first.

    no_end_before: positions below it may not sample an end token (min_tokens, as an absolute token count).
    end_token_ids: the tokens that end this sequence; masked while no_end_before forbids them.
    mask_holder: each token that the row samples needs the mask that was made for this holder of the row
    (inference.mask_ledger); 0, none does.
    """

    row: int
    token_ids: tuple[int, ...]
    num_prompt_tokens: int
    params: SamplingParams
    noise_key: int
    no_end_before: int
    end_token_ids: tuple[int, ...]
    mask_holder: int = 0


@dataclass(frozen=True, slots=True)
class TokenWrite:
    """Tokens that the host knows without their having been sampled: written into the row from position `start` on."""

    row: int
    start: int
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BlockWrite:
    """`block_ids` are written into the row's block table from index `start` on, before the step."""

    row: int
    start: int
    block_ids: tuple[int, ...]


class ScheduledRow(NamedTuple):
    """The step computes tokens [start, start + num_tokens) of the row; with `samples` it draws the token after them.

    verifies: it draws the token after each of them, for all but the first are guesses.
    """

    row: int
    start: int
    num_tokens: int
    samples: bool
    verifies: bool = False

    @property
    def num_samples(self) -> int:
        return self.num_tokens if self.verifies else int(self.samples)


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One forward pass. `rows`: decodes (one token each) first, then short runs of known or guessed tokens that are
    computed as if they were decoded one by one, `num_stepped` in all, then prefill chunks; no row occurs twice.

    Applied in this order: block_copies (source, copy), new_rows, token_writes, block_writes, then the pass.

    track: steps of one track run in order. follows: this one also runs after all that the other track has launched;
    without, the two may run at the same time.
    """

    rows: tuple[ScheduledRow, ...]
    num_decodes: int
    num_stepped: int
    track: int = 0
    follows: bool = False
    new_rows: tuple[NewRow, ...] = ()
    token_writes: tuple[TokenWrite, ...] = ()
    block_writes: tuple[BlockWrite, ...] = ()
    block_copies: tuple[tuple[int, int], ...] = ()

    @property
    def num_tokens(self) -> int:
        return sum(row.num_tokens for row in self.rows)


@dataclass(frozen=True, slots=True)
class StepResult:
    """The tokens drawn, num_samples a row, in the plan's order; logprobs are None where not asked.

    LATE stands for a token whose mask had not come when it was to be drawn: the row stays where it was, and the next
    step that decodes it draws that token.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs | None, ...]
