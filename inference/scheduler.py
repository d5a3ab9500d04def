"""Decides what each step computes: continuous batching with chunked prefill under a token budget.

Pure Python over ints; knows nothing of tensors, text or processes. It plans one step ahead: `plan` may be called again
before `apply` has seen the tokens of the step before, so an end token is noticed one step late and the surplus token
is dropped. Where prefills run beside decodes, each kind has its own steps (inference.tracks), and a turn decodes when
its prefill is done. Called from one thread; no method blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as AbstractSequence
from dataclasses import replace
from itertools import zip_longest
from secrets import randbits

from inference.live_sequences import LiveSequences
from inference.mask_ledger import MaskJob, TokenMatcher
from inference.new_sequence import SchedulerLimits, new_sequence
from inference.paged_kv.block_pool import BlockPool
from inference.paged_kv.block_table import BlockTable
from inference.planner import Planner
from inference.sequence import AGAIN, Sequence
from inference.step import DECODES, LATE, StepPlan, StepResult
from inference.types import EngineStats, TokenChunk, TokenLogprobs, TurnRequest


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
        self._live = LiveSequences(pool, limits)
        self._planner = Planner(self._live, limits)
        self._taken: list[tuple[Sequence, TokenLogprobs | None, str | None]] = []  # and not told of
        self._behind: list[Sequence] = []  # those whose matchers have not answered yet: nobody else waits for them

    @property
    def has_work(self) -> bool:
        return bool(self._live.turns) or self._live.tracks.any_launched

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
        self._live.add(request.turn_id, choices)

    def cancel(self, turn_id: str, choice: int | None = None) -> None:
        """Forget a turn, or this choice of it, at once: rows and blocks are free for the next plan. Idempotent."""
        for sequence in tuple(self._live.turns.get(turn_id, ())):
            if sequence.finish_reason is None and choice in (None, sequence.choice):
                sequence.finish_reason = "cancelled"
                self._live.end(sequence)

    def plan(self, track: int = DECODES) -> StepPlan | None:
        """The next step of this track, with its blocks allocated, or None when nothing can run before a result is
        applied. The first track has all steps, unless prefills run apart."""
        draft = self._planner.draft(track)
        if not draft.sequences:
            assert not draft.new_rows
            return None

        rows = zip(draft.sequences, draft.rows, strict=True)
        sampling = [(sequence, row.num_samples) for sequence, row in rows if row.samples]
        for sequence, _ in sampling:
            sequence.num_in_flight += 1
        self._live.counts.num_steps += 1
        return draft.finish(track, self._live.tracks.launch(track, draft.sequences, sampling))

    def take_in(self, result: StepResult, track: int = DECODES) -> None:
        """Take in the tokens of the track's oldest launched step. What becomes of them, `take_chunks` tells, best asked
        when the runner has the jobs that `take_mask_jobs` has now: others wait for those."""
        first = 0
        held: list[Sequence] = []
        for sequence, count in self._live.tracks.finish(track):
            token_ids, logprobs = result.token_ids[first : first + count], result.logprobs[first]
            first += count
            if sequence.matcher is None:
                self._take(sequence, token_ids, logprobs)
            else:
                sequence.untaken.append((token_ids, logprobs))
                self._announce(sequence)
                held.append(sequence)
        self._behind = [sequence for sequence in dict.fromkeys((*self._behind, *held)) if not self._catch_up(sequence)]

    def _announce(self, sequence: Sequence) -> None:
        """Matchers elsewhere check their tokens all at once, while others are taken in. Not those that verify a guess:
        what counts of several tokens shows one by one."""
        (token_ids, _), matcher = sequence.untaken[0], sequence.matcher
        is_void = sequence.num_void or sequence.finish_reason is not None or token_ids[0] == LATE
        if matcher is not None and not (sequence.is_announced or is_void or sequence.guess):
            sequence.is_announced = True
            sequence.awaits_forced = False
            matcher.expect(token_ids[0])

    def _catch_up(self, sequence: Sequence) -> bool:
        """Take in what has been drawn for the sequence, as far as its matcher has answered; whether that is all."""
        while sequence.untaken:
            self._announce(sequence)
            if sequence.is_announced and sequence.matcher is not None and not sequence.matcher.is_answered:
                return sequence.finish_reason is not None
            self._take(sequence, *sequence.untaken.popleft())
        return True

    def _take(self, sequence: Sequence, token_ids: AbstractSequence[int], logprobs: TokenLogprobs | None) -> None:
        if sequence.is_announced:
            sequence.is_announced = False
        elif sequence.num_void:
            sequence.num_void -= 1
            return
        sequence.num_in_flight -= 1
        if sequence.finish_reason is not None:
            return  # the surplus token of a stop or cancel that was noticed after this step was launched
        if token_ids[0] == LATE:
            sequence.sit_out()
            self._live.counts.num_late_masks += 1
            return
        self._take_in(sequence, token_ids, logprobs)

    def _take_in(
        self, sequence: Sequence, token_ids: AbstractSequence[int], logprobs: TokenLogprobs | None
    ) -> None:
        is_verified = bool(sequence.guess)
        if is_verified:
            self._live.counts.num_guessed_tokens += len(sequence.guess)
            token_ids = sequence.take_verified(token_ids)
            self._live.counts.num_right_guesses += len(token_ids) - 1
        error = None
        for token_id, follower in zip_longest(token_ids, token_ids[1:]):
            error = sequence.take_in(token_id)
            if error == AGAIN:
                self._draw_again(sequence)
                return
            if error is None and is_verified:
                sequence.take_forced_before(follower, self._least_run)
            self._finish_if_done(sequence, token_id, error)
            if sequence.finish_reason is not None or sequence.num_unwritten:
                break  # behind what was forced, nothing that was drawn counts
        if sequence.row is not None:
            # A block can be found by others only now that what fills it has been computed: they may run beside.
            sequence.table.record_full_blocks(sequence.token_ids, sequence.num_planned - sequence.num_uncounted)
            if sequence.matcher is not None:
                self._live.post_mask(sequence)
                sequence.awaits_forced = not (sequence.num_unwritten or sequence.skipped_mask)
        self._taken.append((sequence, logprobs, error))

    def take_chunks(self) -> list[TokenChunk]:
        """One chunk for each sequence that is still wanted and has got tokens since the last call.

        Tokens that are forced behind them are among them once the mask is there: whoever made it has found out, and it
        costs a quarter of asking anew. So it is worth asking before each step is planned.
        """
        if self._behind:
            self._behind = [sequence for sequence in self._behind if not self._catch_up(sequence)]
        taken, self._taken = self._taken, []
        told = {sequence for sequence, _, _ in taken}
        for sequence in tuple(self._live.running):
            if sequence.awaits_forced and sequence.matcher is not None and sequence.matcher.has_mask:
                self._take_forced(sequence)
                if sequence.num_unwritten and sequence not in told:
                    taken.append((sequence, None, None))
        return [self._chunk_of_output(*output) for output in taken]

    def _take_forced(self, sequence: Sequence) -> None:
        sequence.awaits_forced = False
        sequence.take_forced(self._least_run)
        if sequence.num_unwritten:
            self._finish_if_done(sequence, sequence.token_ids[-1], None)
        if sequence.num_unwritten and sequence.row is not None:
            self._live.post_mask(sequence)

    @property
    def _least_run(self) -> int:
        """So many forced tokens are taken as a run. Fewer are drawn one by one, by their masks. So are others where the
        running rows fill their steps: a run would take as many steps there, and void what is being drawn."""
        bounds = self._limits.bounds
        has_room = bounds.room_beside(len(self._live.running)) > 0
        return self._limits.min_forced_run if has_room else bounds.longest_run + 1

    def _draw_again(self, sequence: Sequence) -> None:
        self._live.counts.num_redrawn_tokens += 1
        if sequence.row is not None:  # else it was preempted, and is computed anew anyway
            sequence.draw_again()
            self._live.masks.post(sequence.row, len(sequence.token_ids), sequence.matcher)

    def _chunk_of_output(self, sequence: Sequence, logprobs: TokenLogprobs | None, error: str | None) -> TokenChunk:
        token_ids, sequence.unsent = tuple(sequence.unsent), []
        first, sequence.has_spoken = not sequence.has_spoken, True
        self._live.counts.num_generated_tokens += len(token_ids)
        self._live.counts.num_forced_tokens += sequence.num_forced
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
        return self._live.masks.take()

    def stats(self) -> EngineStats:
        """A snapshot, the caller's own."""
        return replace(
            self._live.counts,
            num_running=len(self._live.running),
            num_waiting=len(self._live.waiting),
            num_blocks=self._pool.num_blocks,
            num_blocks_in_use=self._pool.num_in_use,
            num_blocks_cached=self._pool.num_cached,
        )

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
        self._live.end(sequence)
