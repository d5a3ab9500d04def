"""What the engine and the processes that follow constrained rows tell each other. Pure data, standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

# From the engine: ACCEPT [(matcher, token, begins)], where its mask is begun at once; MASK [(matcher, row, word,
# serial)]; FORCED matcher; FREE [matcher]. Answers: ACCEPT [(matcher, state, error)]; MASK ([(serial, forced)],
# seconds); FORCED (matcher, forced).
ACCEPT, MASK, FORCED, FREE = range(4)
# Of a state.
ACCEPTED, IS_DONE, LETS_MOST_THROUGH, WRITES_TEXT = 1, 2, 4, 8
# Of a forced run, so many tokens are told at once.
MOST_FORCED = 2048
# Messages come whole or not at all, so only so much is put into one: of tokens, rows and matchers; of forced tokens; of
# what is wrong with a matcher.
MOST_BYTES = 1 << 16
MOST_ENTRIES, MOST_TOLD_TOKENS, MOST_ERROR_CHARS = 100, 4096, 500
# For this long, whoever waits for the other looks again and again: to be woken takes longer than a mask.
SPIN_S = 0.003


@dataclass(frozen=True, slots=True)
class Setup:
    """Of the model that a process follows rows of. folder: with its tokenizer.json; num_rows: of the shared masks."""

    folder: Path
    vocab_size: int
    end_token_ids: tuple[int, ...]
    num_rows: int


@dataclass(frozen=True, slots=True)
class Made:
    """A matcher at its beginning: its number, its state, what is wrong with it, and what is forced."""

    matcher: int
    state: int
    error: str
    forced: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NotMade:
    message: str
