"""Follows one row's tokens through its grammar and says which may come next.

A matcher goes through free text (no mask, no cost but a look at each token), calls (masked), and its reasoning's budget
(the closer forced). Knows the grammar library, no engine. What the library has told is kept until the next token, so
that the host's part of a token is mostly the library's own.
"""

from __future__ import annotations

import threading
from enum import Enum, auto

import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher

from inference.grammar.bounded_strings import BoundedString
from inference.grammar.compiled_source import CompiledSource
from inference.grammar.marker_search import ends_inside_character, first_trigger, mask_overruns
from inference.grammar.source import Trigger
from inference.grammar.vocabulary import allow_only

MaskRow = npt.NDArray[np.int32]
# With room for so many characters, most tokens of text fit: to draw one again costs two steps.
_ROOM_TO_SKIP = 16
# With fewer characters left of a bounded text than this, a mask takes the library 0.2 to 1.5 ms (ADR 0006).
_SLOW_TO_MASK = 10


class Outside(Enum):
    """What may come where the grammar is not at work."""

    TEXT = auto()
    END = auto()  # an end token and nothing else
    NOTHING = auto()  # an end token has come


class Matcher:
    """Belongs to one row, and to one thread at a time; `mask` releases the GIL.

    lexer_lock: of the rows that share a lexer with this one; held here whenever the library is asked.
    """

    __slots__ = (
        "__weakref__", "_closing", "_compiled", "_end_token_ids", "_forced", "_grammar", "_has_mask", "_has_triggers",
        "_is_stopped", "_is_thinking", "_num_left", "_num_thoughts", "_outside", "_reasoning", "_replica", "_room",
        "_searches", "_string", "_tail", "_vocabulary", "lexer_lock",
    )  # fmt: skip

    def __init__(self, compiled: CompiledSource) -> None:
        source = compiled.source
        self._compiled = compiled
        self._vocabulary = compiled.vocabulary
        self._end_token_ids = compiled.vocabulary.end_token_ids
        self._has_triggers = bool(source.triggers)
        self._reasoning = source.reasoning
        self._outside = Outside.TEXT
        self._grammar: LLMatcher | None = None  # the library's matcher, where it is at work
        self._searches = source.searches_text
        self._is_stopped = False  # no token but an end may follow in `_grammar`, or it has given up
        self._forced: tuple[int, ...] | None = None  # in `_grammar`; None if it has not been asked here
        self._has_mask = False  # the next token's has been made
        self._tail = b"\n"  # the end of the text, as far as markers reach back
        self._is_thinking = source.reasoning is not None and source.reasoning.inside
        self._num_thoughts = 0  # tokens of reasoning
        is_spent = self._is_thinking and source.reasoning is not None and source.reasoning.max_tokens == 0
        self._closing = compiled.close_tokens if is_spent else ()  # what is left to write of the reasoning's closer
        self._room = 0  # characters of plain text that may come, as far as is known
        self._num_left = 0  # characters that may be left of a bounded text, at least; 0 outside of one
        self._string: BoundedString | None = None  # that this is in, and whose masks are known
        self._replica = compiled.replica_for(self)
        self.lexer_lock = threading.Lock() if self._replica is None else self._replica.lock
        if self._replica is not None and not self._has_triggers:
            self._go_into(self._replica.copy())

    @property
    def compiled(self) -> CompiledSource:
        return self._compiled

    @property
    def is_done(self) -> bool:
        """The answer is complete: nothing but an end token may follow, or one has come. Any thread may ask."""
        if self._grammar is not None:
            return self._is_stopped and not self._has_triggers
        return self._outside is not Outside.TEXT

    @property
    def is_constrained(self) -> bool:
        """Is the grammar at work here? False in free text."""
        return self._grammar is not None or self._outside is not Outside.TEXT or bool(self._closing)

    @property
    def error(self) -> str:
        """Why the matcher gave up (a limit was met), "" while it works. The row should then end with this error."""
        if not self._is_stopped or self._grammar is None or not self._grammar.is_error():
            return ""
        return self._grammar.get_error().strip().partition("\n")[0]

    is_answered = True  # what `accept` will say, it finds out itself

    def expect(self, token_id: int) -> None:
        """`accept` does it all."""

    def accept(self, token_id: int) -> bool:
        """Go on by one token. False, and nothing changes, for one that may not come here."""
        self._has_mask = False
        if self._closing and token_id != self._closing[0]:
            return False
        if self._grammar is not None:
            return self._accept_in_grammar(self._grammar, token_id)
        if self._outside is Outside.NOTHING:
            return False
        if token_id in self._end_token_ids and not self._closing:
            self._outside = Outside.NOTHING
            return True
        if self._outside is Outside.END:
            return False
        return self._accept_in_text(token_id)

    @property
    def lets_most_through(self) -> bool:
        """Within free text that has room, as far as is known: `accept` will hardly say no. Costs nothing to ask. Where
        masks are known they cost no more, and nothing is drawn twice."""
        return self._room >= _ROOM_TO_SKIP and self._string is None and not self._closing

    @property
    def writes_text(self) -> bool:
        """Within a string whose masks are known: nothing is forced before its bound. Costs nothing to ask."""
        return self._string is not None and not self._closing

    @property
    def mask_may_take_long(self) -> bool:
        """Within a text that has a pattern, and close to a text's bound, the library must look at tokens one by one: a
        millisecond or two, not 50 us. And a lexer that does so for another row is waited for."""
        if not self._asks_library:
            return False
        return self._searches or 0 < self._num_left < _SLOW_TO_MASK or self.lexer_lock.locked()

    @property
    def _asks_library(self) -> bool:
        """For the next mask. Of what is forced, it would allow the first token and nothing else."""
        return self._grammar is not None and not (self._closing or self._forced or self._string is not None)

    @property
    def has_mask(self) -> bool:
        """The next token's has been made, and `forced` is known."""
        return self._has_mask

    def mask(self, out: MaskRow) -> bool:
        """Write which tokens may come next, a bit each, lowest first. False: all may, and `out` is left alone.

        Of a text that must come, the token that the tokenizer would write it with, and no other spelling (the library
        sees to that): so it is the same whether it is drawn or taken as a run.

        out: [vocabulary.mask_words] int32, contiguous, on the host.
        """
        assert out.dtype == np.int32
        assert out.size == self._vocabulary.mask_words
        assert out.flags.c_contiguous
        is_masked = True
        if self._closing or self._forced:
            allow_only(out, (self._closing or self._forced or ())[:1])
        elif self._string is not None:
            self._string.write_mask(out)
        elif self._grammar is not None:
            self._mask_by(self._grammar, out)
        elif self._outside is Outside.TEXT:
            is_masked = mask_overruns(self._compiled, self._tail, out)
        else:
            allow_only(out, self._end_token_ids)
        self._has_mask = True
        return is_masked

    def _mask_by(self, grammar: LLMatcher, out: MaskRow) -> None:
        with self.lexer_lock:
            grammar.unsafe_compute_mask_ptr(out.ctypes.data, out.nbytes)
        self._room = self._vocabulary.room_for_text(out)
        self._num_left = self._room if self._room < self._vocabulary.most_room else 0
        source = self._compiled.source
        if source.has_plain_strings:
            self._string = self._vocabulary.bounded_string(out, self._room, or_key=source.has_plain_keys)
        self._look_for_end()

    def forced(self) -> tuple[int, ...]:
        """The tokens that must come next, as the tokenizer would write them; () where there is a choice."""
        if self._closing:
            return self._closing
        if self._grammar is None or self._is_thinking or self._string is not None or self.lets_most_through:
            return ()
        if self._forced is None:
            with self.lexer_lock:
                self._forced = tuple(self._grammar.compute_ff_tokens())
            self._look_for_end()
        return self._forced

    def _go_into(self, grammar: LLMatcher) -> None:
        self._grammar, self._forced, self._string, self._room, self._num_left = grammar, None, None, 0, 0
        self._look_for_end()

    def _go_out(self, outside: Outside) -> None:
        self._grammar, self._is_stopped, self._outside = None, False, outside
        self._forced, self._string, self._room, self._num_left = None, None, 0, 0

    def _look_for_end(self) -> None:
        """Called after whatever may have brought the library's matcher to its end, or to a limit."""
        grammar = self._grammar
        if grammar is not None and grammar.is_stopped():
            self._is_stopped = True
            if grammar.is_error() and self._replica is not None:
                self._replica.is_broken = True

    def _accept_in_grammar(self, grammar: LLMatcher, token_id: int) -> bool:
        if self._is_stopped:
            # The library has no step from its end on; what is left to come is an end token.
            if token_id not in self._end_token_ids or self.error:
                return False
            self._go_out(Outside.NOTHING)
            return True
        with self.lexer_lock:
            num_taken = grammar.try_consume_tokens([token_id])
        if num_taken != 1:
            self._look_for_end()
            return False
        num_chars = self._vocabulary.plain_chars[token_id]
        self._room = max(0, self._room - num_chars)
        if self._num_left:
            self._num_left = self._vocabulary.left_of_text(self._num_left, token_id)
        if self._string is not None:
            self._go_on_in_string(self._string, token_id)
        # Of a forced run, what is left is still forced, and no more than that: it went as far as it could.
        forced = self._forced
        self._forced = forced[1:] if forced and forced[0] == token_id else None
        if grammar.is_stopped():
            self._look_for_end()
        if not self._has_triggers:
            if self._is_stopped and token_id in self._end_token_ids:
                self._go_out(Outside.NOTHING)
            elif self._reasoning is not None:
                self._think(token_id)
        elif self._is_stopped:
            self._go_out(Outside.END if self._compiled.source.ends_after_call else Outside.TEXT)
            self._tail = b""
        return True

    def _go_on_in_string(self, string: BoundedString, token_id: int) -> None:
        string.accept(token_id)
        if string.left > 0:
            self._room = string.left
            return
        self._room, self._string = 0, None
        if string.left == 0:
            self._num_left = 0  # few tokens end it; the library is quick, and knows what else is forced then

    def _accept_in_text(self, token_id: int) -> bool:
        tail = self._tail
        joined = tail + self._vocabulary.bytes_of(token_id)
        found = first_trigger(self._compiled.triggers, joined, len(tail))
        if found is None:
            self._think(token_id)
            return True
        trigger, start, end = found
        grammar = self._enter(trigger, joined[end:])
        if grammar is not None:
            self._is_thinking = False
            self._go_into(grammar)
        elif start < len(tail):
            return False  # the token's mask rules this out; it was drawn without
        else:
            # One token held the whole trigger and more; what follows is the parser's to repair.
            self._think(token_id)
            self._tail = b""
        return True

    def _enter(self, trigger: Trigger, rest: bytes) -> LLMatcher | None:
        if self._replica is None or self._replica.is_broken:
            self._replica = self._compiled.replica_for(self)
            assert self._replica is not None
            self.lexer_lock = self._replica.lock
        return self._compiled.enter(self._replica, trigger, rest)

    def _think(self, token_id: int) -> None:
        """One token more of text: its tail, and its reasoning's budget."""
        joined = self._tail + self._vocabulary.bytes_of(token_id)
        self._tail = joined[-self._compiled.tail_bytes :]
        if self._reasoning is None:
            return
        is_closing, self._closing = bool(self._closing), self._closing[1:]
        marks = self._compiled.closes if self._is_thinking else self._compiled.opens
        if marks.search(joined):
            self._is_thinking = not self._is_thinking
            self._tail = b""
        elif self._is_thinking:
            self._num_thoughts += 1
        if self._is_thinking and not is_closing:
            self._closing = self._closer_if_spent()

    def _closer_if_spent(self) -> tuple[int, ...]:
        """The closer, where the budget is spent and no character is half written."""
        reasoning, tokens = self._reasoning, self._compiled.close_tokens
        if reasoning is None or not self._is_thinking or self._num_thoughts < reasoning.max_tokens:
            return ()
        if ends_inside_character(self._tail):
            return ()
        if self._grammar is None:
            return tokens
        with self.lexer_lock:
            fits = self._grammar.validate_tokens(list(tokens)) == len(tokens)
        return tokens if fits else ()
