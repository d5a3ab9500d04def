"""What a step holds: turns that already speak first, then prompts half read, then newcomers. Pure Python over ints."""

from __future__ import annotations

from inference.live_sequences import LiveSequences
from inference.new_sequence import SchedulerLimits
from inference.sequence import Sequence
from inference.step import DECODES, BlockWrite, ScheduledRow, TokenWrite
from inference.step_draft import StepDraft


class Planner:
    """Drafts the steps of the live sequences, with their blocks allocated."""

    def __init__(self, live: LiveSequences, limits: SchedulerLimits) -> None:
        self._live = live
        self._limits = limits

    def draft(self, track: int) -> StepDraft:
        """The next step of this track; it may hold nothing. The first track has all, unless prefills run apart."""
        draft = StepDraft(self._limits.max_step_tokens)
        prefills = track == self._live.tracks.of_prefills
        # Asked first: a fork copies blocks before the step runs, so its parent's prompt must be an earlier step's work.
        admissible = list(self._live.admissible()) if prefills else []
        if track == DECODES:
            runs = [sequence for sequence in self._live.running if self._may_run(sequence)]
            self._plan_decodes(draft, num_runs=len(runs))
            self._plan_runs(draft, runs)
        if prefills:
            self._plan_running_prefills(draft)
            self._admit(draft, admissible)
        return draft

    def _plan_decodes(self, draft: StepDraft, num_runs: int) -> None:
        decoding = [sequence for sequence in self._live.running if sequence.is_decoding]
        behind = [sequence for sequence in decoding if self._live.prefills(sequence)] if self._live.any_prefills else []
        own = [sequence for sequence in decoding if sequence not in behind] if behind else decoding
        self._plan_decodes_of(draft, own, num_runs)
        if behind and not draft.sequences:
            # With nobody else to hold up, a step may as well wait for the prefill on the device.
            self._plan_decodes_of(draft, behind, num_runs)

    def _plan_decodes_of(self, draft: StepDraft, decoding: list[Sequence], num_runs: int) -> None:
        guess_tokens_left = self._limits.bounds.room_beside(len(decoding) + num_runs)
        for sequence in decoding:
            if draft.tokens_left == 0:
                break
            # The check of `row` skips a sequence that an earlier one of this loop has preempted.
            if sequence.row is None or not sequence.may_grow or sequence.num_in_flight == 2:
                continue
            guess = sequence.next_guess(min(guess_tokens_left, self._limits.bounds.longest_run - 1))
            if guess and sequence.num_in_flight:
                continue  # its guess begins behind a token that is not known yet
            if guess and self._verify(draft, sequence, guess):
                guess_tokens_left -= len(guess)
                continue
            if sequence.num_in_flight and sequence.matcher is not None and sequence.is_drawn_by_host:
                continue  # its mask may be late, and the host must know where its row stands
            if self._live.make_room(draft, sequence, sequence.num_planned + 1):
                self._schedule_decode(draft, sequence)

    def _schedule_decode(self, draft: StepDraft, sequence: Sequence) -> None:
        assert sequence.row is not None
        if sequence.num_unwritten:
            draft.token_writes += sequence.token_writes()
        row = ScheduledRow(sequence.row, sequence.num_planned, 1, samples=True)
        if sequence.is_rewound:
            draft.add_run(row, sequence)
            sequence.is_rewound = False
        else:
            draft.add_decode(row, sequence)
        sequence.num_planned += 1

    def _verify(self, draft: StepDraft, sequence: Sequence, guess: tuple[int, ...]) -> bool:
        """Compute a guess behind the last known token, if there is room; the tokens after each are drawn."""
        count = 1 + len(guess)
        if count > draft.tokens_left or not self._is_short(sequence, count):
            return False
        if not self._live.grow(draft, sequence, sequence.num_planned + count):
            return False
        assert sequence.row is not None
        draft.token_writes += [*sequence.token_writes(), TokenWrite(sequence.row, len(sequence.token_ids), guess)]
        draft.add_run(ScheduledRow(sequence.row, sequence.num_planned, count, samples=True, verifies=True), sequence)
        sequence.guess = guess
        sequence.num_planned += count
        if sequence.matcher is not None:
            self._live.leave_out_masks(sequence, len(guess))
        return True

    def _is_short(self, sequence: Sequence, count: int) -> bool:
        """May so many known tokens be computed one by one? Each of them reads all keys before it."""
        bounds = self._limits.bounds
        return count <= bounds.longest_run and count * sequence.num_planned <= bounds.run_keys

    def _has_run(self, sequence: Sequence) -> bool:
        """Forced tokens wait that are to be computed as they would have been one by one."""
        return sequence.is_behind_its_prompt and self._is_short(sequence, sequence.num_to_compute)

    def _may_run(self, sequence: Sequence) -> bool:
        return self._has_run(sequence) and not self._live.prefills(sequence)

    def _plan_runs(self, draft: StepDraft, runs: list[Sequence]) -> None:
        num_rows = len(draft.sequences) + len(runs)
        # Each run takes a token of its own, as a decode does, and of the room beside them what it can use.
        room = self._limits.bounds.room_beside(num_rows) - (draft.num_tokens - len(draft.sequences))
        for sequence in runs:
            count = min(sequence.num_to_compute, draft.tokens_left, 1 + max(room, 0))
            # The check of `row` skips a sequence that an earlier one of this loop has preempted.
            if count == 0 or sequence.row is None:
                continue
            if self._live.make_room(draft, sequence, sequence.num_planned + count):
                self._schedule(draft, sequence, count)
                room -= count - 1

    def _plan_running_prefills(self, draft: StepDraft) -> None:
        others_decode = any(sequence.is_decoding for sequence in self._live.running)
        for sequence in list(self._live.running):
            if draft.tokens_left == 0:
                break
            if sequence.row is None or not sequence.is_prefilling or self._has_run(sequence):
                continue
            count = self._chunk(draft, sequence, sequence.num_planned, sequence.num_to_compute)
            num_tokens = sequence.num_planned + count
            # With nobody who decodes, nobody will end and make room.
            make_room = self._live.grow if others_decode else self._live.make_room
            if make_room(draft, sequence, num_tokens):
                self._schedule(draft, sequence, count)

    def _admit(self, draft: StepDraft, admissible: list[Sequence]) -> None:
        for sequence in admissible:
            if not self._live.has_free_row or draft.tokens_left == 0:
                break
            if not self._enter(draft, sequence):
                break  # strictly first come, first served: nobody overtakes a turn that waits for blocks

    def _enter(self, draft: StepDraft, sequence: Sequence) -> bool:
        """Give a waiting sequence a row, its cached prefix and its first chunk; False when blocks are short."""
        num_cached = self._adopt_prefix(sequence)
        wanted = len(sequence.token_ids) - num_cached
        sequence.chunk_limit = self._limits.long_prompt_chunk if wanted > self._limits.long_prompt else None
        count = self._chunk(draft, sequence, num_cached, wanted)
        # Room for the whole prompt and one token more: admitting on less would only preempt somebody soon.
        num_missing = sequence.table.num_missing(len(sequence.token_ids) + 1) + 1
        if num_missing > self._live.pool.num_free and self._live.running:
            sequence.table.release()
            return False
        copied = sequence.table.own(num_cached) if num_cached < self._live.capacity(sequence) else None
        if copied is not None:
            draft.block_copies.append(copied)
        sequence.table.grow(num_cached + count)

        row = self._live.enter_row(sequence, num_cached)
        holder = 0
        if sequence.matcher is not None:
            holder = self._live.masks.enter(row)
            self._live.post_mask(sequence)
        draft.new_rows.append(sequence.new_row(holder))
        draft.block_writes.append(BlockWrite(row, 0, tuple(sequence.table.block_ids)))
        self._schedule(draft, sequence, count, enters=True)
        return True

    def _adopt_prefix(self, sequence: Sequence) -> int:
        """Share what is already computed of the sequence's tokens; returns how many tokens that covers."""
        parent = sequence.parent
        if parent is not None and parent.finish_reason is None and parent.row is not None:
            sequence.table = parent.table.fork(sequence.num_prompt_tokens)
            self._live.tracks.lend(parent)
            sequence.parent = None
            return sequence.num_prompt_tokens - 1
        return sequence.table.match_prefix(sequence.token_ids)

    def _schedule(self, draft: StepDraft, sequence: Sequence, count: int, *, enters: bool = False) -> None:
        """A part of a prompt, or of a run."""
        assert sequence.row is not None
        row = ScheduledRow(sequence.row, sequence.num_planned, count, samples=sequence.num_to_compute == count)
        draft.token_writes += sequence.token_writes()
        is_prefill = enters or not self._has_run(sequence)
        if is_prefill:
            draft.add_prefill(row, sequence)
        else:
            draft.add_run(row, sequence)
        sequence.is_rewound = False
        sequence.num_planned += count
        if is_prefill:
            # Others of this step, or later ones of its track, may share what it computes.
            sequence.table.record_full_blocks(sequence.token_ids, min(sequence.num_planned, len(sequence.token_ids)))

    def _chunk(self, draft: StepDraft, sequence: Sequence, start: int, wanted: int) -> int:
        """How many of `wanted` tokens from `start` on fit the budget; a prompt is cut between blocks where possible.

        Then what is computed together within a block does not depend on how much of a step others take.
        """
        room = draft.tokens_left
        if sequence.chunk_limit is not None and any(other.is_decoding for other in self._live.running):
            room = min(room, sequence.chunk_limit)
        if wanted <= room:
            return wanted
        end = start + room
        return max(end - end % self._live.pool.block_size - start, 0) or room
