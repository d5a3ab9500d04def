"""Log-probabilities of the visible text alone, out of those of everything that the model wrote.

The gateway gives a turn's log-probabilities in the order of its tokens, each with an event that comes at its text or
after it: markup with what follows. Responses lists them beside the text of a message, and only its own. So texts are
laid along the tokens: what is no part of one is markup, and is dropped. Knows nothing of events.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from gateway.types import TokenLogprob

# Of a call, whose arguments may go out otherwise than they were written. Blanks before a call may belong to the text
# after it.
_MAX_KEPT = 64
# Of texts that are still to come out of what one step gave.
_MAX_WAITING = 1024
_UNKNOWN = "\ufffd"


class TextLogprobs:
    """Add entries as they come, take those of each text in order. What fits nowhere is kept for a while."""

    def __init__(self) -> None:
        self._entries: list[TokenLogprob] = []

    def add(self, entries: Iterable[TokenLogprob]) -> None:
        del self._entries[:-_MAX_WAITING]
        self._entries += entries

    def skip(self, text: str) -> None:
        """A text that is not listed has come, arguments of a call for example."""
        self.take(text)
        del self._entries[:-_MAX_KEPT]

    def take(self, text: str) -> list[TokenLogprob]:
        """Joined, their tokens are `text`, as far as the model's tokens are known."""
        if not self._entries:
            return []
        laid = _lay(self._entries, text, 0, cuts_heads=False)
        if not laid.is_whole:
            laid = self._best(text, laid)
        del self._entries[: laid.num_read]
        if laid.left:
            # The text ends within a token, whose rest may begin the next.
            self._entries.insert(0, laid.left)
        return laid.taken

    def _best(self, text: str, laid: _Laid) -> _Laid:
        """Where tokens do not follow each other as the text does: one of markup may end in the text's beginning, and
        the tokens of blanks that the text begins with may be kept no more."""
        num_blanks = len(text) - len(text.lstrip())
        tries = [_lay(self._entries, text, start, cuts_heads=True) for start in sorted({0, num_blanks})]
        return max([laid, *tries], key=lambda one: (one.is_whole, one.num_chars))


@dataclass(frozen=True, slots=True)
class _Laid:
    """is_whole: up to the text's end. num_read: up to its last entry. left: of that entry, what is behind the text."""

    taken: list[TokenLogprob]
    is_whole: bool
    num_chars: int
    num_read: int
    left: TokenLogprob | None


def _lay(entries: list[TokenLogprob], text: str, start: int, *, cuts_heads: bool) -> _Laid:
    """The text from `start` on along the entries."""
    taken: list[TokenLogprob] = []
    split: list[TokenLogprob] = []  # of a character whose bytes are several tokens
    left: TokenLogprob | None = None
    pos, num_read = start, 0
    for i, entry in enumerate(entries):
        if pos == len(text):
            break
        if _UNKNOWN in entry.token:
            split.append(entry)
            if entry.num_chars == 0:
                continue
            if not text[pos].isascii():
                taken += split
                pos, num_read = pos + entry.num_chars, i + 1
            split.clear()
            continue
        begin, part = _part_at(entry.token, text, pos, cuts_heads=cuts_heads)
        if part:
            taken.append(_cut(entry, part))
            pos, num_read = pos + len(part), i + 1
            rest = entry.token[begin + len(part) :]
            left = _cut(entry, rest) if rest else None
    return _Laid(taken, pos == len(text), pos - start, num_read, left)


def _part_at(token: str, text: str, pos: int, *, cuts_heads: bool) -> tuple[int, str]:
    """Which part of the token stands at `pos`, and where in the token that begins; "" for none."""
    for begin in range(len(token) if cuts_heads else 1):
        part = token[begin : begin + len(text) - pos]
        if text.startswith(part, pos):
            return begin, part
    return 0, ""


def _cut(entry: TokenLogprob, part: str) -> TokenLogprob:
    return entry if part == entry.token else replace(entry, token=part, num_chars=len(part))
