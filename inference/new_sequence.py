"""The bounds of a scheduler, and what they make of a request: a sequence for each of its choices. Pure Python."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from inference.mask_ledger import TokenMatcher
from inference.paged_kv.block_table import BlockTable
from inference.prompt_lookup import PromptLookup
from inference.sequence import Sequence
from inference.step import StepBounds, is_simple
from inference.types import SamplingParams, TurnRequest

# Logits divided by less may overflow, and then several are the best; by this much, nothing but the best is ever drawn.
_LEAST_TEMPERATURE = 1e-6


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """max_step_tokens bounds one step's tokens, prefill and decode together; max_rows the sequences running at once.

    long_prompt_chunk: so many tokens at most of a prompt of more than long_prompt tokens in a step in which others
    decode, for they wait for it. min_forced_run: so many forced tokens are worth a pass over all of them at once.
    max_guess: so many tokens of a turn are guessed at once from its history, 0 = none. bounds: the runner's.
    """

    max_rows: int
    max_step_tokens: int
    max_model_len: int
    eos_token_ids: tuple[int, ...]
    long_prompt: int = 1024
    long_prompt_chunk: int | None = None
    min_forced_run: int = 2
    max_guess: int = 0
    bounds: StepBounds = field(default_factory=StepBounds)


def new_sequence(
    request: TurnRequest, choice: int, table: BlockTable, limits: SchedulerLimits, noise_source: Callable[[], int],
    matcher: TokenMatcher | None,
) -> Sequence:  # fmt: skip
    """`noise_source` gives the key of a choice whose request names no seed."""
    params = request.params
    num_prompt_tokens = len(request.prompt_token_ids)
    room = limits.max_model_len - num_prompt_tokens
    ends = tuple(
        dict.fromkeys(params.stop_token_ids if params.ignore_eos else (*params.stop_token_ids, *limits.eos_token_ids))
    )
    if not ends:
        params = replace(params, min_tokens=0)  # nothing could end it sooner
    if params.temperature < _LEAST_TEMPERATURE:
        params = replace(params, temperature=0.0)
    # Each choice of a seeded turn draws its own noise, and the same one every time.
    noise_key = noise_source() if params.seed is None else (params.seed * 1_000_003 + choice) & (2**63 - 1)
    sequence = Sequence(
        turn_id=request.turn_id,
        choice=choice,
        prompt=request.prompt_token_ids,
        params=params,
        table=table,
        noise_key=noise_key,
        end_token_ids=ends,
        max_total_tokens=num_prompt_tokens + min(room, params.max_tokens if params.max_tokens is not None else room),
        matcher=matcher,
    )
    sequence.is_drawn_by_host = limits.bounds.masks_may_be_late and not is_simple(params, len(ends))
    if limits.max_guess and _may_guess(params, matcher is not None):
        sequence.lookup = PromptLookup(sequence.token_ids, limits.max_guess)
    return sequence


def _may_guess(params: SamplingParams, is_constrained: bool) -> bool:
    """Whether a token's draw depends on what is before it by its logits alone.

    What a constrained row verifies is drawn without masks. That is as good where the best score wins; filters would see
    other tokens.
    """
    if is_constrained and params.has_filters:
        return False
    return params.logprobs is None and not params.has_penalties
