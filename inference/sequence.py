"""One continuation of a turn's prompt, as the scheduler sees it. Pure Python over ints."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as AbstractSequence
from itertools import takewhile

from inference.mask_ledger import TokenMatcher
from inference.paged_kv.block_table import BlockTable
from inference.prompt_lookup import PromptLookup
from inference.step import NewRow, TokenWrite
from inference.types import FinishReason, SamplingParams, TokenLogprobs

AGAIN = "again"
# So many tokens are drawn with their masks after one that was refused: to draw one again costs two steps, and who
# writes what a grammar does not let pass will do so again.
_MASKED_AFTER_REFUSAL = 256


class Sequence:
    """Tokens, KV and progress of one choice of a turn.

    token_ids: every token known to the host, the prompt first.
    num_planned: tokens whose KV the launched steps compute; at most one beyond token_ids is in flight at a time.
    last_steps: of each track, the number of the last step that computes something of it; last_loan: of the last step
    that copies from its blocks.
    num_in_flight: launched steps whose token for this sequence the host has not seen yet: 0, 1 or 2.
    num_void: launched steps before those whose token is known already, because it was forced, or wrong.
    untaken: what steps have drawn for it since, the oldest first; waits for its matcher's answer. is_announced: the
    first of it has been, and counts whatever becomes of the others.
    num_unwritten: the last known tokens that the runner's row does not have.
    unsent: generated tokens that no chunk has told yet. has_spoken: a chunk has told some.
    num_forced: those of `unsent` that were never sampled.
    matcher: what its tokens are held to, if anything.
    is_rewound: its row may stand elsewhere than at num_planned, and must be told.
    skipped_mask: its next token is drawn without a mask, since nearly everything may come. masked_until: not before it
    has so many tokens.
    is_drawn_by_host: by operations on the device, not by its sampling kernels.
    is_drawing_again: a token was refused, and the next must be drawn with its mask.
    awaits_forced: its next token is held to a mask, whose maker finds out what is forced; nobody has asked yet.
    lookup: guesses its tokens, if it may. guess: those that a launched step verifies.
    has_ended_itself: its last token is an end token.
    chunk_limit: how many tokens of its prompt a step takes while others decode, if that is bounded.
    row: its slot in the runner while it runs, else None.
    """

    def __init__(
        self, turn_id: str, choice: int, prompt: AbstractSequence[int], params: SamplingParams, table: BlockTable,
        noise_key: int, end_token_ids: tuple[int, ...], max_total_tokens: int, matcher: TokenMatcher | None = None,
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
        self.num_void = 0
        self.untaken: deque[tuple[AbstractSequence[int], TokenLogprobs | None]] = deque()
        self.is_announced = False
        self.last_steps = [0, 0]
        self.last_loan = 0
        self.num_unwritten = 0
        self.is_rewound = False
        self.skipped_mask = False
        self.masked_until = 0
        self.is_drawing_again = False
        self.awaits_forced = False
        self.unsent: list[int] = []
        self.has_spoken = False
        self.num_forced = 0
        self.matcher = matcher
        self.is_drawn_by_host = False
        self.lookup: PromptLookup | None = None
        self.guess: tuple[int, ...] = ()
        self.chunk_limit: int | None = None
        self.num_cached_tokens: int | None = None
        self.row: int | None = None
        self.parent: Sequence | None = None
        self.finish_reason: FinishReason | None = None
        self.has_ended_itself = False

    @property
    def num_tokens_with_in_flight(self) -> int:
        return len(self.token_ids) + self.num_in_flight

    @property
    def num_to_compute(self) -> int:
        """Tokens known, or on their way, that no launched step computes yet."""
        # Asked ten times a step and sequence, like the next ones: spelled out, as each property costs a call.
        return len(self.token_ids) + self.num_in_flight - self.num_planned

    @property
    def is_decoding(self) -> bool:
        if self.num_planned < self.num_prompt_tokens:
            return False
        return len(self.token_ids) + self.num_in_flight - self.num_planned == 1

    @property
    def is_prefilling(self) -> bool:
        """Known tokens wait to be computed: the prompt, or after a preemption also the output so far."""
        count = len(self.token_ids) + self.num_in_flight - self.num_planned
        return count > 1 or (count == 1 and self.num_planned < self.num_prompt_tokens)

    @property
    def is_behind_its_prompt(self) -> bool:
        """Several known tokens wait to be computed, and none of the prompt."""
        if self.row is None or self.num_planned < self.num_prompt_tokens:
            return False
        return len(self.token_ids) + self.num_in_flight - self.num_planned > 1

    @property
    def num_uncounted(self) -> int:
        """Launched steps whose work may not be done yet, a token each."""
        return self.num_in_flight + self.num_void

    @property
    def may_grow(self) -> bool:
        """Whether another token may still be sampled after those in flight."""
        return self.num_tokens_with_in_flight < self.max_total_tokens

    @property
    def may_guess_text(self) -> bool:
        """There is a guess of what comes next, where nothing is forced."""
        if self.lookup is None or self.matcher is None or not self.matcher.writes_text:
            return False
        return bool(self.lookup.guess(1))

    def next_guess(self, most: int) -> tuple[int, ...]:
        """What may come after the known tokens; the first token after a guess is sampled, and needs room too.

        Nothing while tokens may be forced: what is guessed is drawn without masks, and might spell them otherwise. Nor
        while a mask is being made: it would come in between.
        """
        if self.lookup is None or most <= 0 or self.is_drawing_again or self.awaits_forced:
            return ()
        if self.matcher is not None and not (self.skipped_mask or self.matcher.has_mask):
            return ()
        guess = self.lookup.guess(min(most, self.max_total_tokens - len(self.token_ids) - 1))
        # A run that is too short to be taken must be spelled so, too: its mask sees to that, and a guess has none.
        # With a token on its way it begins no guess yet, and its matcher may have to answer for that token first.
        return () if guess and not self.num_in_flight and self._forced() else guess

    def take_verified(self, token_ids: AbstractSequence[int]) -> AbstractSequence[int]:
        """The step drew these after its last known token and after each guessed one: those that count.

        A token counts if all before it were guessed right. What was computed for wrong ones is computed again.
        """
        guess, self.guess = self.guess, ()
        num_right = 0
        while num_right < len(guess) and token_ids[num_right] == guess[num_right]:
            num_right += 1
        assert self.lookup is not None
        self.lookup.learn(len(guess), num_right)
        if self.row is not None:
            self.num_planned = len(self.token_ids) + num_right
            self.is_rewound = num_right < len(guess)
        return token_ids[: num_right + 1]

    def sit_out(self) -> None:
        """What a step was to draw, it has not: the mask had not come."""
        if self.guess:
            self.guess = ()
            self.num_planned = len(self.token_ids)
            self.is_rewound = True
        self.num_planned -= 1

    def take_in(self, token_id: int) -> str | None:
        """A sampled token has arrived; returns what is wrong with it, if the matcher does not go on with it.

        AGAIN, and nothing has changed: it was drawn without a mask, and is to be drawn again with it.
        """
        matcher = self.matcher
        accepted = matcher is None or matcher.accept(token_id)
        self.is_drawing_again = matcher is not None and not accepted and self.skipped_mask and not matcher.error
        if self.is_drawing_again:
            return AGAIN
        self.token_ids.append(token_id)
        self.unsent.append(token_id)
        if matcher is None or (accepted and not matcher.error):
            return None
        return f"The grammar of this turn gave up: {matcher.error or f'token {token_id} came where none such may'}."

    def draw_again(self) -> None:
        """The last known token is computed once more, and what is sampled after it is drawn anew."""
        self.drop_in_flight()
        self.awaits_forced = False
        self.num_planned = len(self.token_ids) - 1
        self.is_rewound = True
        self.skipped_mask = False
        self.masked_until = len(self.token_ids) + _MASKED_AFTER_REFUSAL
        if self.lookup is not None:
            self.lookup.learn(1, 0)

    def take_forced(self, min_run: int) -> None:
        """Take in the tokens that must come next, if they are at least min_run; they need not be sampled.

        What is being sampled now then comes to nothing. Not where log-probabilities are asked for: forced tokens
        have none.
        """
        self._take(self._forced(), min_run)

    def take_forced_before(self, drawn: int | None, min_run: int) -> None:
        """The same behind a token of a guess, before the one that was drawn next, without a mask. If that is what must
        come, it counts; if it spells that otherwise, it does not, however short the run."""
        forced = self._forced()
        if drawn is None or (forced and forced[0] != drawn):
            self._take(forced, min_run if drawn is None else 1)

    def take_first_forced(self) -> None:
        """The same before the first step, which reads them with the prompt and samples the token after them."""
        self._take(self._forced()[:-1], 1)

    def drop_in_flight(self) -> None:
        """What launched steps are sampling for this sequence comes to nothing."""
        num_kept = int(self.is_announced)
        self.num_void += self.num_in_flight - num_kept
        self.num_in_flight = num_kept

    def _forced(self) -> tuple[int, ...]:
        matcher = self.matcher
        if matcher is None or self.params.logprobs is not None or matcher.is_done:
            return ()
        forced = matcher.forced()[: self.max_total_tokens - len(self.token_ids)]
        return forced if set(forced).isdisjoint(self.end_token_ids) else ()

    def _take(self, forced: tuple[int, ...], min_run: int) -> None:
        matcher = self.matcher
        taken = list(takewhile(matcher.accept, forced)) if matcher is not None and len(forced) >= min_run else []
        if not taken:
            return
        # A step that runs computes the last token known so far; what another one would, it computes of a wrong token.
        self.num_planned = min(self.num_planned, len(self.token_ids))
        self.is_rewound = True
        self.token_ids += taken
        self.unsent += taken
        self.num_forced += len(taken)
        self.num_unwritten = len(taken)
        self.drop_in_flight()

    def token_writes(self) -> list[TokenWrite]:
        """The known tokens that the row does not have; it has them when these writes are done."""
        if not self.num_unwritten:
            return []
        assert self.row is not None
        start = len(self.token_ids) - self.num_unwritten
        self.num_unwritten = 0
        return [TokenWrite(self.row, start, tuple(self.token_ids[start:]))]

    def new_row(self, mask_holder: int) -> NewRow:
        assert self.row is not None
        self.num_unwritten = 0
        self.is_rewound = False
        return NewRow(
            row=self.row,
            token_ids=tuple(self.token_ids),
            num_prompt_tokens=self.num_prompt_tokens,
            params=self.params,
            noise_key=self.noise_key,
            no_end_before=self.no_end_before,
            end_token_ids=self.end_token_ids,
            mask_holder=mask_holder,
        )

    @property
    def no_end_before(self) -> int:
        return self.num_prompt_tokens + self.params.min_tokens
