"""Matchers that need no grammar library: for tests of what the engine does with any."""

from __future__ import annotations

import random

import numpy as np


class RandomMatcher:
    """At each place a few tokens may come, sometimes a single one; which, is a hash of the place and `seed`.

    Ends after `length` tokens. Counts what it was asked.
    """

    def __init__(
        self, seed: int, length: int, vocab_size: int, forced_share: float = 0.5, *, skips_masks: bool = False,
        answers_late: bool = False,
    ) -> None:  # fmt: skip
        self._seed, self._length, self._vocab_size, self._forced_share = seed, length, vocab_size, forced_share
        self.accepted: list[int] = []
        self.error = ""
        self._masked_place = -1
        self._expected: int | None = None
        self._answers_late, self._num_asked = answers_late, 0
        self.lets_most_through = skips_masks
        self.writes_text = False

    @property
    def is_done(self) -> bool:
        assert self._expected is None, "whoever asks waits for the answer of the last token"
        return len(self.accepted) >= self._length

    @property
    def has_mask(self) -> bool:
        """Mostly, once it has been asked for: whoever makes masks may take its time."""
        place = len(self.accepted)
        return self._masked_place == place and random.Random(self._seed - place).random() < 0.8

    @property
    def is_answered(self) -> bool:
        """Mostly, if somebody works elsewhere: then not at once."""
        if self._answers_late and self._expected is not None:
            self._num_asked += 1
            return random.Random(self._seed * 31 + self._num_asked).random() < 0.15
        return True

    def allowed(self, place: int) -> list[int]:
        rng = random.Random(self._seed * 1_000_003 + place)
        count = 1 if rng.random() < self._forced_share else rng.randint(2, 5)
        return rng.sample(range(3, self._vocab_size), count)

    def expect(self, token_id: int) -> None:
        assert self._expected is None
        self._expected = token_id

    def accept(self, token_id: int) -> bool:
        assert self._expected in (None, token_id), "another token was announced"
        self._expected = None
        if self.is_done or token_id not in self.allowed(len(self.accepted)):
            return False
        self.accepted.append(token_id)
        return True

    def forced(self) -> tuple[int, ...]:
        run: list[int] = []
        for place in range(len(self.accepted), self._length):
            allowed = self.allowed(place)
            if len(allowed) > 1:
                break
            run += allowed
        return tuple(run)

    def mask(self, out: np.ndarray) -> bool:
        place = len(self.accepted)
        out[:] = 0
        for token_id in self.allowed(place):
            out.view(np.uint32)[token_id >> 5] |= np.uint32(1 << (token_id & 31))
        self._masked_place = place
        return True
