"""Decides what each step computes: continuous batching with chunked prefill under a token budget.

Pure Python over ints; knows nothing of tensors, text or processes. It plans one step ahead: `plan` may be called again
before `apply` has seen the tokens of the step before, so an end token is noticed one step late and the surplus token
is dropped. Where prefills run beside decodes, each kind has its own steps (inference.tracks), and a turn decodes when
its prefill is done. Called from one thread; no method blocks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from collections.abc import Sequence as AbstractSequence
from dataclasses import asdict, dataclass
from secrets import randbits

from inference.mask_ledger import MaskJob, MaskLedger, TokenMatcher
from inference.new_sequence import SchedulerLimits, new_sequence
from inference.paged_kv.block_pool import BlockPool
from inference.paged_kv.block_table import BlockTable
from inference.sequence import AGAIN, Sequence
from inference.step import DECODES, LATE, BlockWrite, ScheduledRow, StepPlan, StepResult, TokenWrite, is_simple
from inference.step_draft import StepDraft
from inference.tracks import Tracks
from inference.types import EngineStats, TokenChunk, TokenLogprobs, TurnRequest


@dataclass(slots=True)
class _Counts:
    """See EngineStats."""

    num_steps: int = 0
    num_prompt_tokens: int = 0
    num_cached_prompt_tokens: int = 0
    num_generated_tokens: int = 0
    num_preemptions: int = 0
    num_forced_tokens: int = 0
    num_guessed_tokens: int = 0
    num_right_guesses: int = 0
    num_late_masks: int = 0
    num_redrawn_tokens: int = 0


class Scheduler:
    """Owns every live sequence, its row and its blocks.

    `noise_source` gives a 63-bit key to a sequence whose request names no seed.
    """

    def __init__(
        self, pool: BlockPool, limits: SchedulerLimits, noise_source: Callable[[], int] = lambda: randbits(63)
    ) -> None:
        self._pool = pool
        self._limits = limits
        self._noise_source = noise_source
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self._free_rows = list(range(limits.max_rows - 1, -1, -1))
        self._turns: dict[str, list[Sequence]] = {}
        self._tracks = Tracks(limits.bounds.prefills_apart)
        self._masks = MaskLedger(limits.max_rows)
        self._counts = _Counts()

    @property
    def has_work(self) -> bool:
        return bool(self._turns) or self._tracks.any_launched

    def submit(self, request: TurnRequest, matchers: AbstractSequence[TokenMatcher] = ()) -> None:
        """Queue a turn's choices behind those that wait. The caller has checked the prompt against max_model_len.

        matchers: one a choice, at their beginning, if the turn is constrained.
        """
        choices: list[Sequence] = []
        for choice in range(request.n):
            table = BlockTable(self._pool, request.cache_salt)
            matcher = matchers[choice] if matchers else None
            sequence = new_sequence(request, choice, table, self._limits, self._noise_source, matcher)
            sequence.parent = choices[0] if choices else None
            # What must come first is read together with the prompt.
            sequence.take_first_forced()
            choices.append(sequence)
        self._turns[request.turn_id] = choices
        self._waiting += choices

    def cancel(self, turn_id: str, choice: int | None = None) -> None:
        """Forget a turn, or this choice of it, at once: rows and blocks are free for the next plan. Idempotent."""
        for sequence in self._turns.get(turn_id, ()):
            if sequence.finish_reason is None and choice in (None, sequence.choice):
                sequence.finish_reason = "cancelled"
                self._retire(sequence)
        self._forget_if_over(turn_id)

    def plan(self, track: int = DECODES) -> StepPlan | None:
        """The next step of this track, with its blocks allocated, or None when nothing can run before a result is
        applied. The first track has all steps, unless prefills run apart."""
        draft = StepDraft(self._limits.max_step_tokens)
        prefills = track == self._tracks.of_prefills
        # Asked first: a fork copies blocks before the step runs, so its parent's prompt must be an earlier step's work.
        admissible = list(self._admissible()) if prefills else []
        if track == DECODES:
            self._plan_decodes(draft)
            self._plan_runs(draft)
        if prefills:
            self._plan_running_prefills(draft)
            self._admit(draft, admissible)
        if not draft.sequences:
            assert not draft.new_rows
            return None

        rows = zip(draft.sequences, draft.rows, strict=True)
        sampling = [(sequence, row.num_samples) for sequence, row in rows if row.samples]
        for sequence, _ in sampling:
            sequence.num_in_flight += 1
        self._counts.num_steps += 1
        return draft.finish(track, self._tracks.launch(track, draft.sequences, sampling))

    def apply(self, result: StepResult, track: int = DECODES) -> list[TokenChunk]:
        """Take in the tokens of the track's oldest launched step; returns one chunk for each sequence that is still
        wanted and has got one."""
        chunks = []
        first = 0
        for sequence, count in self._tracks.finish(track):
            token_ids = result.token_ids[first : first + count]
            logprobs = result.logprobs[first]
            first += count
            if sequence.num_void:
                sequence.num_void -= 1
                continue
            sequence.num_in_flight -= 1
            if sequence.finish_reason is not None:
                continue  # the surplus token of a stop or cancel that was noticed after this step was launched
            if token_ids[0] == LATE:
                sequence.num_planned -= 1
                self._counts.num_late_masks += 1
                continue
            chunk = self._taken_in(sequence, token_ids, logprobs)
            if chunk is not None:
                chunks.append(chunk)
        return chunks

    def _taken_in(
        self, sequence: Sequence, token_ids: AbstractSequence[int], logprobs: TokenLogprobs | None
    ) -> TokenChunk | None:
        """None: a token is to be drawn again."""
        if sequence.guess:
            self._counts.num_guessed_tokens += len(sequence.guess)
            token_ids = sequence.take_verified(token_ids)
            self._counts.num_right_guesses += len(token_ids) - 1
        error = None
        for token_id in token_ids:
            error = sequence.take_in(token_id)
            if error == AGAIN:
                self._draw_again(sequence)
                return None
            if error is None:
                sequence.take_forced(self._limits.min_forced_run)
            self._finish_if_done(sequence, token_id, error)
            if sequence.finish_reason is not None:
                break
        if sequence.row is not None:
            # A block can be found by others only now that what fills it has been computed: they may run beside.
            sequence.table.record_full_blocks(sequence.token_ids, sequence.num_planned - sequence.num_uncounted)
            if sequence.matcher is not None:
                self._post_mask(sequence, sequence.row, sequence.matcher)
        return self._chunk_of_output(sequence, logprobs, error)

    def _post_mask(self, sequence: Sequence, row: int, matcher: TokenMatcher) -> None:
        """The best of all tokens is also the best of those that may come, if it may. So a row that the device draws for
        gets no mask where that is likely; a wrong token is drawn again, and the outcome is the same."""
        may_skip = self._limits.bounds.masks_may_be_late and not self._is_drawn_by_host(sequence)
        sequence.skipped_mask = may_skip and matcher.lets_most_through
        self._masks.post(row, len(sequence.token_ids), None if sequence.skipped_mask else matcher)

    def _draw_again(self, sequence: Sequence) -> None:
        self._counts.num_redrawn_tokens += 1
        if sequence.row is not None:  # else it was preempted, and is computed anew anyway
            sequence.draw_again()
            sequence.skipped_mask = False
            self._masks.post(sequence.row, len(sequence.token_ids), sequence.matcher)

    def _chunk_of_output(self, sequence: Sequence, logprobs: TokenLogprobs | None, error: str | None) -> TokenChunk:
        token_ids, sequence.unsent = tuple(sequence.unsent), []
        first, sequence.has_spoken = not sequence.has_spoken, True
        self._counts.num_generated_tokens += len(token_ids)
        self._counts.num_forced_tokens += sequence.num_forced
        sequence.num_forced = 0
        return TokenChunk(
            turn_id=sequence.turn_id,
            choice=sequence.choice,
            token_ids=token_ids,
            logprobs=(logprobs,) if logprobs is not None else (),
            finish_reason=sequence.finish_reason,
            stop_token_id=token_ids[-1] if sequence.has_ended_itself else None,
            num_cached_tokens=sequence.num_cached_tokens if first else None,
            error=error,
        )

    def take_mask_jobs(self) -> list[MaskJob]:
        """What has become known about masks since the last call; the runner's steps may be waiting for it."""
        return self._masks.take()

    def stats(self) -> EngineStats:
        return EngineStats(
            num_running=len(self._running),
            num_waiting=len(self._waiting),
            num_blocks=self._pool.num_blocks,
            num_blocks_in_use=self._pool.num_in_use,
            num_blocks_cached=self._pool.num_cached,
            **asdict(self._counts),
        )

    # Planning, in order of precedence: turns that already speak, prompts half read, then newcomers.

    def _plan_decodes(self, draft: StepDraft) -> None:
        decoding = [sequence for sequence in self._running if sequence.is_decoding]
        self._plan_decodes_of(draft, [sequence for sequence in decoding if not self._prefills(sequence)])
        if not draft.sequences:
            # With nobody else to hold up, a step may as well wait for the prefill on the device.
            self._plan_decodes_of(draft, [sequence for sequence in decoding if self._prefills(sequence)])

    def _prefills(self, sequence: Sequence) -> bool:
        """Is it being prefilled beside the decodes, or on its way to be?"""
        track = self._tracks.of_prefills
        return track != DECODES and self._tracks.runs(sequence, track)

    def _plan_decodes_of(self, draft: StepDraft, decoding: list[Sequence]) -> None:
        guess_tokens_left = self._limits.bounds.room_beside(len(decoding))
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
            if sequence.num_in_flight and sequence.matcher is not None and self._is_drawn_by_host(sequence):
                continue  # its mask may be late, and the host must know where its row stands
            if self._make_room(draft, sequence, sequence.num_planned + 1):
                self._schedule(draft, sequence, 1)

    def _is_drawn_by_host(self, sequence: Sequence) -> bool:
        draws_apart = self._limits.bounds.masks_may_be_late
        return draws_apart and not is_simple(
            sequence.params, len(sequence.end_token_ids), is_constrained=sequence.matcher is not None
        )

    def _verify(self, draft: StepDraft, sequence: Sequence, guess: tuple[int, ...]) -> bool:
        """Compute a guess behind the last known token, if there is room; the tokens after each are drawn."""
        count = 1 + len(guess)
        if count > draft.tokens_left or not self._is_short(sequence, count):
            return False
        if not self._grow(draft, sequence, sequence.num_planned + count):
            return False
        assert sequence.row is not None
        draft.token_writes.append(TokenWrite(sequence.row, len(sequence.token_ids), guess))
        draft.add_run(ScheduledRow(sequence.row, sequence.num_planned, count, samples=True, verifies=True), sequence)
        sequence.guess = guess
        sequence.num_planned += count
        return True

    def _is_short(self, sequence: Sequence, count: int) -> bool:
        """May so many known tokens be computed one by one? Each of them reads all keys before it."""
        bounds = self._limits.bounds
        return count <= bounds.longest_run and count * sequence.num_planned <= bounds.run_keys

    def _has_run(self, sequence: Sequence) -> bool:
        """Forced tokens wait that are to be computed as they would have been one by one."""
        return sequence.is_behind_its_prompt and self._is_short(sequence, sequence.num_to_compute)

    def _plan_runs(self, draft: StepDraft) -> None:
        waiting = [sequence for sequence in self._running if self._has_run(sequence) and not self._prefills(sequence)]
        num_rows = len(draft.sequences) + len(waiting)
        # Each run takes a token of its own, as a decode does, and of the room beside them what it can use.
        room = self._limits.bounds.room_beside(num_rows) - (draft.num_tokens - len(draft.sequences))
        for sequence in waiting:
            count = min(sequence.num_to_compute, draft.tokens_left, 1 + max(room, 0))
            # The check of `row` skips a sequence that an earlier one of this loop has preempted.
            if count == 0 or sequence.row is None:
                continue
            if self._make_room(draft, sequence, sequence.num_planned + count):
                self._schedule(draft, sequence, count)
                room -= count - 1

    def _plan_running_prefills(self, draft: StepDraft) -> None:
        others_decode = any(sequence.is_decoding for sequence in self._running)
        for sequence in list(self._running):
            if draft.tokens_left == 0:
                break
            if sequence.row is None or not sequence.is_prefilling or self._has_run(sequence):
                continue
            count = self._chunk(draft, sequence, sequence.num_planned, sequence.num_to_compute)
            num_tokens = sequence.num_planned + count
            # With nobody who decodes, nobody will end and make room.
            make_room = self._grow if others_decode else self._make_room
            if make_room(draft, sequence, num_tokens):
                self._schedule(draft, sequence, count)

    def _admit(self, draft: StepDraft, admissible: list[Sequence]) -> None:
        for sequence in admissible:
            if not self._free_rows or draft.tokens_left == 0:
                break
            if not self._enter(draft, sequence):
                break  # strictly first come, first served: nobody overtakes a turn that waits for blocks

    def _admissible(self) -> Iterator[Sequence]:
        """Waiting sequences that can start now, in order; a fork waits until its parent's prompt is computed."""
        for sequence in self._waiting:
            if sequence.num_in_flight:
                continue  # preempted with a token on its way
            parent = sequence.parent
            if parent is not None and parent.finish_reason is None and parent.num_planned < parent.num_prompt_tokens:
                continue
            yield sequence

    def _enter(self, draft: StepDraft, sequence: Sequence) -> bool:
        """Give a waiting sequence a row, its cached prefix and its first chunk; False when blocks are short."""
        num_cached = self._adopt_prefix(sequence)
        wanted = len(sequence.token_ids) - num_cached
        sequence.chunk_limit = self._limits.long_prompt_chunk if wanted > self._limits.long_prompt else None
        count = self._chunk(draft, sequence, num_cached, wanted)
        # Room for the whole prompt and one token more: admitting on less would only preempt somebody soon.
        if sequence.table.num_missing(len(sequence.token_ids) + 1) + 1 > self._pool.num_free and self._running:
            sequence.table.release()
            return False
        copied = sequence.table.own(num_cached) if num_cached < self._capacity(sequence) else None
        if copied is not None:
            draft.block_copies.append(copied)
        sequence.table.grow(num_cached + count)

        self._waiting.remove(sequence)
        self._running.append(sequence)
        sequence.row = self._free_rows.pop()
        sequence.num_planned = num_cached
        if sequence.num_cached_tokens is None:
            # What is forced from the start may be cached as well, and is no part of the prompt.
            sequence.num_cached_tokens = min(num_cached, sequence.num_prompt_tokens)
            self._counts.num_prompt_tokens += sequence.num_prompt_tokens
            self._counts.num_cached_prompt_tokens += sequence.num_cached_tokens
        holder = 0
        if sequence.matcher is not None:
            holder = self._masks.enter(sequence.row)
            self._post_mask(sequence, sequence.row, sequence.matcher)
        draft.new_rows.append(sequence.new_row(holder))
        draft.block_writes.append(BlockWrite(sequence.row, 0, tuple(sequence.table.block_ids)))
        self._schedule(draft, sequence, count, enters=True)
        return True

    def _adopt_prefix(self, sequence: Sequence) -> int:
        """Share what is already computed of the sequence's tokens; returns how many tokens that covers."""
        parent = sequence.parent
        if parent is not None and parent.finish_reason is None and parent.row is not None:
            sequence.table = parent.table.fork(sequence.num_prompt_tokens)
            self._tracks.lend(parent)
            sequence.parent = None
            return sequence.num_prompt_tokens - 1
        return sequence.table.match_prefix(sequence.token_ids)

    def _schedule(self, draft: StepDraft, sequence: Sequence, count: int, *, enters: bool = False) -> None:
        assert sequence.row is not None
        row = ScheduledRow(sequence.row, sequence.num_planned, count, samples=sequence.num_to_compute == count)
        draft.token_writes += sequence.token_writes()
        is_prefill = enters or not (sequence.is_decoding or self._has_run(sequence))
        if is_prefill:
            draft.add_prefill(row, sequence)
        elif sequence.is_decoding and not sequence.is_rewound:
            draft.add_decode(row, sequence)
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
        if sequence.chunk_limit is not None and any(other.is_decoding for other in self._running):
            room = min(room, sequence.chunk_limit)
        if wanted <= room:
            return wanted
        end = start + room
        return max(end - end % self._pool.block_size - start, 0) or room

    # Blocks

    def _capacity(self, sequence: Sequence) -> int:
        return len(sequence.table.block_ids) * self._pool.block_size

    def _grow(self, draft: StepDraft, sequence: Sequence, num_tokens: int) -> bool:
        missing = sequence.table.num_missing(num_tokens)
        if missing > self._pool.num_free:
            return False
        if missing:
            start = len(sequence.table.block_ids)
            assert sequence.row is not None
            draft.block_writes.append(BlockWrite(sequence.row, start, tuple(sequence.table.grow(num_tokens))))
        return True

    def _make_room(self, draft: StepDraft, sequence: Sequence, num_tokens: int) -> bool:
        """Grow a decoding sequence, at the cost of the youngest ones if need be; False if it had to go itself."""
        while not self._grow(draft, sequence, num_tokens):
            planned = draft.sequences
            victim = next(candidate for candidate in reversed(self._running) if candidate not in planned)
            self._preempt(victim)
            if victim is sequence:
                return False
        return True

    def _preempt(self, sequence: Sequence) -> None:
        """Send a running sequence back to the head of the queue; its tokens stay, its KV is computed again."""
        self._leave_row(sequence)
        if sequence.matcher is not None:
            sequence.drop_in_flight()  # its mask makes room for that of the row's next holder
        sequence.num_planned = 0
        self._waiting.appendleft(sequence)
        self._counts.num_preemptions += 1

    # Ends

    def _finish_if_done(self, sequence: Sequence, token_id: int, error: str | None) -> None:
        matcher = sequence.matcher
        if error is not None:
            sequence.finish_reason = "error"
        elif token_id in sequence.end_token_ids and len(sequence.token_ids) > sequence.no_end_before:
            sequence.finish_reason, sequence.has_ended_itself = "stop", True
        elif matcher is not None and matcher.is_done:
            sequence.finish_reason = "stop"  # nothing but an end token may follow: no step is spent on it
        elif len(sequence.token_ids) >= sequence.max_total_tokens:
            sequence.finish_reason = "length"
        else:
            return
        self._retire(sequence)
        self._forget_if_over(sequence.turn_id)

    def _forget_if_over(self, turn_id: str) -> None:
        if all(sequence.finish_reason is not None for sequence in self._turns.get(turn_id, ())):
            self._turns.pop(turn_id, None)

    def _retire(self, sequence: Sequence) -> None:
        if sequence.row is None:
            self._waiting.remove(sequence)
            return
        self._leave_row(sequence)

    def _leave_row(self, sequence: Sequence) -> None:
        assert sequence.row is not None
        if sequence.matcher is not None:
            self._masks.release(sequence.row)
        self._tracks.leave(sequence)
        # What a running step still computes may be shared as well: whoever does so follows.
        sequence.table.record_full_blocks(sequence.token_ids, min(sequence.num_planned, len(sequence.token_ids)))
        sequence.table.release()
        self._free_rows.append(sequence.row)
        sequence.row = None
        self._running.remove(sequence)
