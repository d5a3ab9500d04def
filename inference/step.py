"""What the scheduler asks of the runner for one step, and what comes back. Pure data, standard library only.

A plan carries only what changed: the runner keeps every live sequence's tokens, lengths and block table in its row.
"""

from __future__ import annotations

from dataclasses import dataclass

from inference.types import SamplingParams, TokenLogprobs


@dataclass(frozen=True, slots=True)
class NewRow:
    """A sequence enters its row before the step. `token_ids` are all tokens known so far, the prompt first.

    no_end_before: positions below it may not sample an end token (min_tokens, as an absolute token count).
    end_token_ids: the tokens that end this sequence; masked while no_end_before forbids them.
    is_constrained: each token that the row samples waits for its mask (inference.mask_ledger).
    """

    row: int
    token_ids: tuple[int, ...]
    num_prompt_tokens: int
    params: SamplingParams
    noise_key: int
    no_end_before: int
    end_token_ids: tuple[int, ...]
    is_constrained: bool = False


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


@dataclass(frozen=True, slots=True)
class ScheduledRow:
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
    """

    rows: tuple[ScheduledRow, ...]
    num_decodes: int
    num_stepped: int
    new_rows: tuple[NewRow, ...] = ()
    token_writes: tuple[TokenWrite, ...] = ()
    block_writes: tuple[BlockWrite, ...] = ()
    block_copies: tuple[tuple[int, int], ...] = ()

    @property
    def num_tokens(self) -> int:
        return sum(row.num_tokens for row in self.rows)


@dataclass(frozen=True, slots=True)
class StepResult:
    """The tokens drawn, num_samples a row, in the plan's order; logprobs are None where not asked."""

    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs | None, ...]
