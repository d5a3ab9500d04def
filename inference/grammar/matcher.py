"""Follows one row's tokens through its grammar and says which may come next.

A matcher goes through free text (no mask, no cost but a look at each token), calls (masked), and its reasoning's budget
(the closer forced). Knows the grammar library, no engine.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, replace
from enum import Enum, auto

import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher

from inference.grammar.source import GrammarSource, Trigger
from inference.grammar.vocabulary import Vocabulary

MAX_ROLLBACK = 256
MaskRow = npt.NDArray[np.int32]


class CompiledSource:
    """What the matchers of one source share.

    is_broken: a limit was met. The lexer's state is shared, so all matchers of this source may fail from then on, and
    new ones need a new one.
    """

    def __init__(self, vocabulary: Vocabulary, source: GrammarSource, prototype: LLMatcher | None) -> None:
        self.vocabulary = vocabulary
        self.source = source
        self.is_broken = False
        special = dict(source.special_tokens)
        self._special = special
        self.triggers = [(trigger, text) for trigger in source.triggers for text in self._spellings(trigger.text)]
        reasoning = source.reasoning
        self.opens = [text for marker in reasoning.opens for text in self._spellings(marker)] if reasoning else []
        self.closes = [text for marker in reasoning.closes for text in self._spellings(marker)] if reasoning else []
        close = vocabulary.encode(reasoning.close, special) if reasoning else b""
        self.close_tokens = tuple(vocabulary.tokens_of(close))
        watched = [*(text for _, text in self.triggers), *self.opens, *self.closes]
        self.tail_bytes = max((len(text) for text in watched), default=1)
        self._prototype = prototype
        self._lock = threading.Lock()
        # Found now, in a thread that compiles, and not when a row waits for its mask.
        self._overruns = {
            (number, num_seen): self._find_overruns(trigger, text[num_seen:])
            for number, (trigger, text) in enumerate(self.triggers)
            for num_seen in range(1, len(text))
        }

    def _spellings(self, text: str) -> list[bytes]:
        """With its special tokens, and letter by letter."""
        return list(dict.fromkeys([self.vocabulary.encode(text, self._special), text.encode()]))

    def start(self) -> LLMatcher | None:
        """The grammar at its beginning."""
        with self._lock:
            return self._prototype.deep_copy() if self._prototype is not None else None

    def enter(self, trigger: Trigger, rest: bytes) -> Inner | None:
        """The grammar behind a trigger and the `rest` of the token that completed it; None: it does not go on so."""
        return self._consumed(self.vocabulary.encode(trigger.lead, self._special) + rest)

    def overruns(self, number: int, num_seen: int) -> npt.NDArray[np.int64]:
        """The tokens that complete a trigger of which `num_seen` bytes are there, and go on against the grammar."""
        return self._overruns[number, num_seen]

    def _find_overruns(self, trigger: Trigger, rest: bytes) -> npt.NDArray[np.int64]:
        found = self.vocabulary.longer_than(rest)
        return found[~self._allowed(trigger, rest, found)] if len(found) else found

    def _allowed(self, trigger: Trigger, rest: bytes, tokens: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        lead = self.vocabulary.encode(trigger.lead, self._special)
        inner = self._consumed(lead.removesuffix(rest)) if lead.endswith(rest) else None
        if inner is None:
            return np.zeros(len(tokens), dtype=np.bool_)
        bits = np.frombuffer(inner.matcher.compute_bitmask(), dtype=np.uint8)
        return np.asarray((bits[tokens >> 3] >> (tokens & 7)) & 1, dtype=np.bool_)

    def _consumed(self, encoded: bytes) -> Inner | None:
        matcher = self.start()
        assert matcher is not None
        tokens = self.vocabulary.tokens_of(encoded)
        return Inner(matcher, len(tokens)) if matcher.try_consume_tokens(tokens) == len(tokens) else None


class Inner:
    """The library's matcher, and how many tokens it has consumed."""

    __slots__ = ("matcher", "num_tokens")

    def __init__(self, matcher: LLMatcher, num_tokens: int = 0) -> None:
        self.matcher = matcher
        self.num_tokens = num_tokens

    def accept(self, token_id: int) -> bool:
        if self.matcher.try_consume_tokens([token_id]) != 1:
            return False
        self.num_tokens += 1
        return True

    def rewind(self, num_tokens: int) -> None:
        if num_tokens < self.num_tokens:
            self.matcher.rollback(self.num_tokens - num_tokens)
            self.num_tokens = num_tokens

    def copy(self) -> Inner:
        return Inner(self.matcher.deep_copy(), self.num_tokens)


class Phase(Enum):
    FREE = auto()
    GRAMMAR = auto()
    ENDING = auto()  # nothing but an end token may follow
    DONE = auto()  # an end token has come


@dataclass(frozen=True, slots=True)
class _State:
    """Everything about one position, so that going back is taking an old one."""

    phase: Phase
    inner: Inner | None
    num_inner: int  # tokens that `inner` had consumed here
    tail: bytes  # the end of the text, as far as markers reach back
    is_thinking: bool
    num_thoughts: int  # tokens of reasoning
    closing: tuple[int, ...]  # what is left to write of the reasoning's closer


class Matcher:
    """Belongs to one row, and to one thread at a time; `mask` releases the GIL."""

    def __init__(self, compiled: CompiledSource, state: _State | None = None) -> None:
        self._compiled = compiled
        self._source = compiled.source
        self._vocabulary = compiled.vocabulary
        self._state = state or self._first()
        self._past: deque[_State] = deque(maxlen=MAX_ROLLBACK)

    def _first(self) -> _State:
        watches = bool(self._source.triggers) or not self._source.lark
        matcher = None if watches else self._compiled.start()
        reasoning = self._source.reasoning
        inside = reasoning is not None and reasoning.inside
        closing = self._compiled.close_tokens if reasoning and inside and reasoning.max_tokens == 0 else ()
        inner = Inner(matcher) if matcher else None
        return _State(Phase.GRAMMAR if inner else Phase.FREE, inner, 0, b"\n", inside, 0, closing)

    @property
    def is_done(self) -> bool:
        """The answer is complete: nothing but an end token may follow, or one has come."""
        state = self._state
        if state.phase is Phase.GRAMMAR and not self._source.triggers and state.inner is not None:
            return bool(state.inner.matcher.is_stopped())
        return state.phase in (Phase.ENDING, Phase.DONE)

    @property
    def is_constrained(self) -> bool:
        """Is the grammar at work here? False in free text."""
        return self._state.phase is not Phase.FREE or bool(self._state.closing)

    @property
    def error(self) -> str:
        """Why the matcher gave up (a limit was met), "" while it works. The row should then end with this error."""
        inner = self._state.inner
        if inner is None or not inner.matcher.is_error():
            return ""
        self._compiled.is_broken = True
        return inner.matcher.get_error().strip().partition("\n")[0]

    def accept(self, token_id: int) -> bool:
        """Go on by one token. False, and nothing changes, for one that may not come here."""
        following = self._following(token_id)
        if following is None:
            return False
        self._past.append(self._state)
        self._state = following
        return True

    def mask(self, out: MaskRow) -> bool:
        """Write which tokens may come next, a bit each, lowest first. False: all may, and `out` is left alone.

        out: [vocabulary.mask_words] int32, contiguous, on the host.
        """
        assert out.dtype == np.int32
        assert out.size == self._vocabulary.mask_words
        assert out.flags.c_contiguous
        state = self._state
        if state.closing:
            _allow_only(out, state.closing[:1])
        elif state.phase in (Phase.ENDING, Phase.DONE):
            _allow_only(out, self._vocabulary.end_token_ids)
        elif state.phase is Phase.GRAMMAR:
            assert state.inner is not None
            state.inner.matcher.unsafe_compute_mask_ptr(out.ctypes.data, out.nbytes)
            if state.inner.matcher.is_error():
                self._compiled.is_broken = True
        else:
            return self._mask_overruns(out)
        return True

    def forced(self) -> tuple[int, ...]:
        """The tokens that must come next, as the tokenizer would write them; () where there is a choice."""
        state = self._state
        if state.closing:
            return state.closing
        if state.phase is not Phase.GRAMMAR or state.is_thinking or state.inner is None:
            return ()
        return tuple(state.inner.matcher.compute_ff_tokens())

    def rollback(self, num_tokens: int) -> None:
        """Take back the last tokens, at most MAX_ROLLBACK and no more than since the last `fork`."""
        assert 0 <= num_tokens <= len(self._past)
        for _ in range(num_tokens):
            self._state = self._past.pop()
        if self._state.inner is not None:
            self._state.inner.rewind(self._state.num_inner)

    def fork(self) -> Matcher:
        """An independent matcher at this place. It cannot go back before it."""
        inner = self._state.inner
        return Matcher(self._compiled, replace(self._state, inner=inner.copy() if inner else None))

    def _following(self, token_id: int) -> _State | None:
        state = self._state
        if state.closing and token_id != state.closing[0]:
            return None
        if state.phase is Phase.DONE:
            return None
        if token_id in self._vocabulary.end_token_ids and (not state.closing) and state.phase is not Phase.GRAMMAR:
            return replace(state, phase=Phase.DONE)
        if state.phase is Phase.ENDING:
            return None
        if state.phase is Phase.GRAMMAR:
            return self._within_grammar(state, token_id)
        return self._within_text(state, token_id)

    def _within_grammar(self, state: _State, token_id: int) -> _State | None:
        inner = state.inner
        assert inner is not None
        if inner.matcher.is_stopped():
            # The library has no step from its end on; what is left to come is an end token.
            ends = token_id in self._vocabulary.end_token_ids and not self.error
            return replace(state, phase=Phase.DONE) if ends else None
        if not inner.accept(token_id):
            self._compiled.is_broken |= inner.matcher.is_error()
            return None
        if self._source.triggers:
            if not inner.matcher.is_stopped():
                return replace(state, num_inner=inner.num_tokens)
            phase = Phase.ENDING if self._source.ends_after_call else Phase.FREE
            return replace(state, phase=phase, inner=None, num_inner=0, tail=b"", is_thinking=False)
        if token_id in self._vocabulary.end_token_ids and inner.matcher.is_stopped():
            return replace(state, phase=Phase.DONE, num_inner=inner.num_tokens)
        return self._thought(replace(state, num_inner=inner.num_tokens), token_id)

    def _within_text(self, state: _State, token_id: int) -> _State:
        text = self._vocabulary.bytes_of(token_id)
        joined = state.tail + text
        found = self._first_trigger(joined, len(state.tail))
        if found is None:
            return self._thought(state, token_id)
        trigger, end = found
        inner = self._compiled.enter(trigger, joined[end:])
        if inner is None:
            # One token held the whole trigger and more; what follows is the parser's to repair.
            return replace(self._thought(state, token_id), tail=b"")
        return replace(state, phase=Phase.GRAMMAR, inner=inner, num_inner=inner.num_tokens, is_thinking=False)

    def _first_trigger(self, joined: bytes, num_old: int) -> tuple[Trigger, int] | None:
        """The earliest trigger that ends within the new bytes, and where it ends."""
        best: tuple[int, int, Trigger] | None = None
        for trigger, text in self._compiled.triggers:
            at = joined.find(text, max(num_old - len(text) + 1, 0))
            while at >= 0 and trigger.line_start and not _at_line_start(joined, at):
                at = joined.find(text, at + 1)
            if at >= 0 and (best is None or (at, -len(text)) < best[:2]):
                best = (at, -len(text), trigger)
        return None if best is None else (best[2], best[0] - best[1])

    def _thought(self, state: _State, token_id: int) -> _State:
        """The state behind one token more of text: its tail, and its reasoning's budget."""
        joined = state.tail + self._vocabulary.bytes_of(token_id)
        tail = joined[-self._compiled.tail_bytes :]
        reasoning = self._source.reasoning
        if reasoning is None:
            return replace(state, tail=tail)
        closing = state.closing[1:]
        if not state.is_thinking:
            opened = any(opener in joined for opener in self._compiled.opens)
            begun = replace(state, tail=b"" if opened else tail, is_thinking=opened, closing=())
            return replace(begun, closing=self._closing(begun))
        if any(closer in joined for closer in self._compiled.closes):
            return replace(state, tail=b"", is_thinking=False, closing=closing)
        going_on = replace(state, tail=tail, num_thoughts=state.num_thoughts + 1, closing=closing)
        return going_on if state.closing else replace(going_on, closing=self._closing(going_on))

    def _closing(self, state: _State) -> tuple[int, ...]:
        """The closer, where the budget is spent and no character is half written."""
        reasoning, tokens = self._source.reasoning, self._compiled.close_tokens
        if reasoning is None or not state.is_thinking or state.num_thoughts < reasoning.max_tokens:
            return ()
        if _ends_inside_character(state.tail):
            return ()
        fits = state.inner is None or state.inner.matcher.validate_tokens(list(tokens)) == len(tokens)
        return tokens if fits else ()

    def _mask_overruns(self, out: MaskRow) -> bool:
        """In free text, where the next token may complete a trigger and go on against the grammar."""
        tail = self._state.tail
        banned = []
        for number, (trigger, text) in enumerate(self._compiled.triggers):
            for num_seen in range(1, min(len(text), len(tail) + 1)):
                counts = not trigger.line_start or _at_line_start(tail, len(tail) - num_seen)
                if counts and tail.endswith(text[:num_seen]):
                    banned.append(self._compiled.overruns(number, num_seen))
        banned = [ids for ids in banned if len(ids)]
        if not banned:
            return False
        out[:] = -1
        words = out.view(np.uint32)
        ids = np.concatenate(banned)
        np.bitwise_and.at(words, ids >> 5, ~(np.uint32(1) << (ids & 31).astype(np.uint32)))
        return True


def _allow_only(out: MaskRow, token_ids: frozenset[int] | tuple[int, ...]) -> None:
    out[:] = 0
    words = out.view(np.uint32)
    for token_id in token_ids:
        words[token_id >> 5] |= np.uint32(1 << (token_id & 31))


def _ends_inside_character(text: bytes) -> bool:
    """Is the last UTF-8 character of `text` not all there?"""
    for back, byte in enumerate(reversed(text[-4:]), 1):
        if byte & 0xC0 != 0x80:
            return byte >= 0xC0 and byte != 0xFF and back < (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4)
    return False


def _at_line_start(text: bytes, at: int) -> bool:
    return at == 0 or text[:at].rstrip(b" \t").endswith(b"\n")
