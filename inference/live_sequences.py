"""Who waits, who has a row, whose turns live: the book-keeping of rows and blocks under the scheduler. Pure Python."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from inference.mask_ledger import MaskLedger
from inference.new_sequence import SchedulerLimits
from inference.paged_kv.block_pool import BlockPool
from inference.sequence import Sequence
from inference.step import DECODES, BlockWrite
from inference.step_draft import StepDraft
from inference.tracks import Tracks
from inference.types import EngineStats


class LiveSequences:
    """running: those with a row, the oldest first. counts: of these, only what grows over the engine's life."""

    def __init__(self, pool: BlockPool, limits: SchedulerLimits) -> None:
        self.pool = pool
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.turns: dict[str, list[Sequence]] = {}
        self.tracks = Tracks(limits.bounds.prefills_apart)
        self.masks = MaskLedger(limits.max_rows)
        self.counts = EngineStats()
        self._masks_may_be_late = limits.bounds.masks_may_be_late
        # First out, first in again: a mask may still be on its way to a row that somebody has left.
        self._free_rows = deque(range(limits.max_rows))

    @property
    def has_free_row(self) -> bool:
        return bool(self._free_rows)

    def add(self, turn_id: str, choices: list[Sequence]) -> None:
        """A turn waits behind those that wait."""
        self.turns[turn_id] = choices
        self.waiting += choices

    @property
    def any_prefills(self) -> bool:
        """Does any launched step prefill beside the decodes?"""
        return self.tracks.of_prefills != DECODES and self.tracks.is_busy(self.tracks.of_prefills)

    def prefills(self, sequence: Sequence) -> bool:
        """Is it being prefilled beside the decodes?"""
        tracks = self.tracks
        return tracks.of_prefills != DECODES and tracks.runs(sequence, tracks.of_prefills)

    def admissible(self) -> Iterator[Sequence]:
        """Waiting sequences that can start now, in order; a fork waits until its parent's prompt is computed."""
        for sequence in self.waiting:
            if sequence.num_in_flight:
                continue  # preempted with a token on its way
            parent = sequence.parent
            if parent is not None and parent.finish_reason is None and parent.num_planned < parent.num_prompt_tokens:
                continue
            yield sequence

    def post_mask(self, sequence: Sequence) -> None:
        """All tokens so far are known, so the next one's mask can be computed.

        The best of all tokens is also the best of those that may come, if it may. So a row that a device draws for gets
        no mask where that is likely, or where guesses are to be verified; a wrong token is drawn again, and the outcome
        is the same. Filters would see other tokens.
        """
        assert sequence.row is not None
        assert sequence.matcher is not None
        needs_mask = sequence.is_drawn_by_host or sequence.is_drawing_again or sequence.params.has_filters
        needs_mask = needs_mask or len(sequence.token_ids) < sequence.masked_until
        may_skip = self._masks_may_be_late and not needs_mask
        sequence.skipped_mask = may_skip and (sequence.matcher.lets_most_through or sequence.may_guess_text)
        matcher = None if sequence.skipped_mask else sequence.matcher
        self.masks.post(sequence.row, len(sequence.token_ids), matcher)

    def leave_out_masks(self, sequence: Sequence, num_tokens: int) -> None:
        """The next tokens, so many and one more, are drawn without masks."""
        assert sequence.row is not None
        sequence.skipped_mask = True
        self.masks.post(sequence.row, len(sequence.token_ids) + num_tokens, None)

    def enter_row(self, sequence: Sequence, num_cached: int) -> int:
        """A waiting sequence, whose table holds its first num_cached tokens, gets a row; returns it."""
        self.waiting.remove(sequence)
        self.running.append(sequence)
        sequence.row = row = self._free_rows.popleft()
        sequence.num_planned = num_cached
        if sequence.num_cached_tokens is None:
            # What is forced from the start may be cached as well, and is no part of the prompt.
            sequence.num_cached_tokens = min(num_cached, sequence.num_prompt_tokens)
            self.counts.num_prompt_tokens += sequence.num_prompt_tokens
            self.counts.num_cached_prompt_tokens += sequence.num_cached_tokens
        return row

    def capacity(self, sequence: Sequence) -> int:
        return len(sequence.table.block_ids) * self.pool.block_size

    def grow(self, draft: StepDraft, sequence: Sequence, num_tokens: int) -> bool:
        missing = sequence.table.num_missing(num_tokens)
        if missing > self.pool.num_free:
            return False
        if missing:
            start = len(sequence.table.block_ids)
            assert sequence.row is not None
            draft.block_writes.append(BlockWrite(sequence.row, start, tuple(sequence.table.grow(num_tokens))))
        return True

    def make_room(self, draft: StepDraft, sequence: Sequence, num_tokens: int) -> bool:
        """Grow a decoding sequence, at the cost of the youngest ones if need be; False if it had to go itself."""
        while not self.grow(draft, sequence, num_tokens):
            planned = draft.sequences
            victim = next(candidate for candidate in reversed(self.running) if candidate not in planned)
            self.preempt(victim)
            if victim is sequence:
                return False
        return True

    def preempt(self, sequence: Sequence) -> None:
        """Send a running sequence back to the head of the queue; its tokens stay, its KV is computed again."""
        self._leave_row(sequence)
        if sequence.matcher is not None:
            sequence.drop_in_flight()  # its mask makes room for that of the row's next holder
        sequence.num_planned = 0
        self.waiting.appendleft(sequence)
        self.counts.num_preemptions += 1

    def end(self, sequence: Sequence) -> None:
        """The sequence has a finish_reason: its row and blocks are free for the next plan."""
        if sequence.row is None:
            self.waiting.remove(sequence)
        else:
            self._leave_row(sequence)
        choices = self.turns.get(sequence.turn_id, ())
        if all(choice.finish_reason is not None for choice in choices):
            self.turns.pop(sequence.turn_id, None)

    def _leave_row(self, sequence: Sequence) -> None:
        assert sequence.row is not None
        if sequence.matcher is not None:
            self.masks.release(sequence.row)
        self.tracks.leave(sequence)
        # What a running step still computes may be shared as well: whoever does so follows.
        sequence.table.record_full_blocks(sequence.token_ids, min(sequence.num_planned, len(sequence.token_ids)))
        sequence.table.release()
        self._free_rows.append(sequence.row)
        sequence.row = None
        self.running.remove(sequence)
