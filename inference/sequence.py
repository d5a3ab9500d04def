"""One continuation of a turn's prompt, as the scheduler sees it. Pure Python over ints."""

from __future__ import annotations

from collections.abc import Sequence as AbstractSequence

from inference.paged_kv.block_table import BlockTable
from inference.types import FinishReason, SamplingParams


class Sequence:
    """Tokens, KV and progress of one choice of a turn.

    token_ids: every token known to the host, the prompt first.
    num_planned: tokens whose KV the launched steps compute; at most one beyond token_ids is in flight at a time.
    num_in_flight: launched steps whose token for this sequence the host has not seen yet: 0, 1 or 2.
    row: its slot in the runner while it runs, else None.
    """

    def __init__(
        self, turn_id: str, choice: int, prompt: AbstractSequence[int], params: SamplingParams, table: BlockTable,
        noise_key: int, end_token_ids: tuple[int, ...], max_total_tokens: int,
    ) -> None:
        self.turn_id = turn_id
        self.choice = choice
        self.token_ids = list(prompt)
        self.num_prompt_tokens = len(prompt)
        self.params = params
        self.table = table
        self.noise_key = noise_key
        self.end_token_ids = end_token_ids
        self.max_total_tokens = max_total_tokens
        self.num_planned = 0
        self.num_in_flight = 0
        self.num_cached_tokens: int | None = None
        self.row: int | None = None
        self.parent: Sequence | None = None
        self.finish_reason: FinishReason | None = None

    @property
    def num_tokens_with_in_flight(self) -> int:
        return len(self.token_ids) + self.num_in_flight

    @property
    def num_to_compute(self) -> int:
        """Tokens known, or on their way, that no launched step computes yet."""
        return self.num_tokens_with_in_flight - self.num_planned

    @property
    def is_decoding(self) -> bool:
        return self.num_planned >= self.num_prompt_tokens and self.num_to_compute == 1

    @property
    def is_prefilling(self) -> bool:
        """Known tokens wait to be computed: the prompt, or after a preemption also the output so far."""
        return self.num_to_compute > 0 and not self.is_decoding

    @property
    def may_grow(self) -> bool:
        """Whether another token may still be sampled after those in flight."""
        return self.num_tokens_with_in_flight < self.max_total_tokens

    @property
    def no_end_before(self) -> int:
        return self.num_prompt_tokens + self.params.min_tokens
