"""What the matchers of one source share: its markers as bytes, and its compiled grammar, in one or more replicas."""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher

from inference.grammar.source import GrammarSource, Trigger
from inference.grammar.vocabulary import Vocabulary

# As grammars write JSON.
_SPACED = re.compile(rb"([,:])[ \t\n]*")


class Row(Protocol):
    """Who uses a replica; asked from other threads."""

    @property
    def is_done(self) -> bool: ...


class Replica:
    """A grammar compiled once. All copies of its prototype share one lexer: they compute masks one after another,
    whatever the number of threads.

    lock: to be held around whatever copies do but being copied. The library's own would do, but is waited for with the
    GIL held: a token accepted beside another row's mask of 1 ms would stop all threads for as long.
    is_broken: a limit was met in the lexer, so that all copies may fail from then on.
    """

    def __init__(self, prototype: LLMatcher) -> None:
        self.lock = threading.Lock()
        self.is_broken = False
        self._prototype = prototype
        self._rows: list[weakref.ref[Row]] = []

    def copy(self) -> LLMatcher:
        """The grammar at its beginning, in about a microsecond."""
        return self._prototype.deep_copy()

    def add(self, row: Row) -> None:
        self._rows.append(weakref.ref(row))

    def num_rows(self) -> int:
        """Rows that may still ask for a mask: those that are gone or done do not count."""
        self._rows = [ref for ref in self._rows if (row := ref()) is not None and not row.is_done]
        return len(self._rows)


class CompiledSource:
    """Thread-safe. prototype: None if the text is free throughout. max_replicas: how many the grammar is worth."""

    def __init__(
        self, vocabulary: Vocabulary, source: GrammarSource, prototype: LLMatcher | None, max_replicas: int = 1
    ) -> None:
        self.vocabulary = vocabulary
        self.source = source
        special = dict(source.special_tokens)
        self._special = special
        self.triggers = [(trigger, text) for trigger in source.triggers for text in self._spellings(trigger.text)]
        reasoning = source.reasoning
        opens = [text for marker in reasoning.opens for text in self._spellings(marker)] if reasoning else []
        closes = [text for marker in reasoning.closes for text in self._spellings(marker)] if reasoning else []
        self.opens, self.closes = _any_of(opens), _any_of(closes)
        close = vocabulary.encode(reasoning.close, special) if reasoning else b""
        self.close_tokens = tuple(vocabulary.tokens_of(close))
        watched = [*(text for _, text in self.triggers), *opens, *closes]
        self.tail_bytes = max((len(text) for text in watched), default=1)
        self._leads = {trigger: vocabulary.encode(trigger.lead, special) for trigger in source.triggers}
        self._lock = threading.Lock()
        self._replicas = [Replica(prototype)] if prototype is not None else []
        self._max_replicas = max_replicas
        self._is_free = prototype is None
        # Found now, in a thread that compiles, and not when a row waits for its mask.
        self._overruns = {
            (number, num_seen): self._find_overruns(trigger, text[num_seen:])
            for number, (trigger, text) in enumerate(self.triggers)
            for num_seen in range(1, len(text))
        }

    def _spellings(self, text: str) -> list[bytes]:
        """With its special tokens, and letter by letter."""
        return list(dict.fromkeys([self.vocabulary.encode(text, self._special), text.encode()]))

    @property
    def is_broken(self) -> bool:
        """No replica is good any more: new rows need a new source."""
        return not self._is_free and all(replica.is_broken for replica in self._replicas)

    @property
    def num_replicas(self) -> int:
        return len(self._replicas)

    def add_replica(self, prototype: LLMatcher) -> None:
        with self._lock:
            self._replicas.append(Replica(prototype))

    def wants_replica(self) -> bool:
        """Do more rows live at once than there are replicas, and may there be more of them?"""
        with self._lock:
            good = [replica for replica in self._replicas if not replica.is_broken]
            if not good or len(good) >= self._max_replicas:
                return False
            self._replicas = good
            return sum(replica.num_rows() for replica in good) > len(good)

    def replica_for(self, row: Row) -> Replica | None:
        """The one that fewest rows use, from now on `row` as well; a broken one only where no other is left."""
        with self._lock:
            if not self._replicas:
                return None
            found = min(self._replicas, key=lambda replica: (replica.is_broken, replica.num_rows()))
            found.add(row)
            return found

    def enter(self, replica: Replica, trigger: Trigger, rest: bytes) -> LLMatcher | None:
        """The grammar behind a trigger and the `rest` of the token that completed it; None: it does not go on so.

        Blanks of the rest may be others than the grammar's: they are written, and parsers do not mind them.
        """
        lead = self._leads[trigger]
        ways = dict.fromkeys((rest, rest.rstrip(b" \t\n"), _SPACED.sub(rb"\1 ", rest).rstrip(b" ")))
        found = (self._consumed(replica, lead + way) for way in ways)
        return next((matcher for matcher in found if matcher is not None), None)

    def overruns(self, number: int, num_seen: int) -> npt.NDArray[np.int64]:
        """The tokens that complete a trigger of which `num_seen` bytes are there, and go on against the grammar."""
        return self._overruns[number, num_seen]

    def _find_overruns(self, trigger: Trigger, rest: bytes) -> npt.NDArray[np.int64]:
        found = self.vocabulary.longer_than(rest)
        return found[~self._allowed(trigger, rest, found)] if len(found) else found

    def _allowed(self, trigger: Trigger, rest: bytes, tokens: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        lead = self._leads[trigger]
        matcher = self._consumed(self._replicas[0], lead.removesuffix(rest)) if lead.endswith(rest) else None
        if matcher is None:
            return np.zeros(len(tokens), dtype=np.bool_)
        bits = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
        return np.asarray((bits[tokens >> 3] >> (tokens & 7)) & 1, dtype=np.bool_)

    def _consumed(self, replica: Replica, encoded: bytes) -> LLMatcher | None:
        return _after(replica, self.vocabulary.tokens_of(encoded))


def _any_of(texts: Sequence[bytes]) -> re.Pattern[bytes]:
    return re.compile(b"|".join(map(re.escape, texts)) if texts else b"(?!)")


def _after(replica: Replica, tokens: Sequence[int]) -> LLMatcher | None:
    """The grammar once it has consumed the tokens; None: it does not go on so."""
    matcher = replica.copy()
    with replica.lock:
        num_taken = matcher.try_consume_tokens(list(tokens))
    # One that met a limit says so itself, where its row asks: that it gave up is no reason to let the row go free.
    return matcher if num_taken == len(tokens) or matcher.is_error() else None
