"""What a matcher promises, said as plainly as it can be: frozen states, a copy of the library's matcher for each, and
the library asked anew at every question. Slow, and what the real one, which keeps what it knows, is compared with."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from llguidance import LLMatcher

from inference.grammar.compiled_source import CompiledSource
from inference.grammar.marker_search import ends_inside_character, first_trigger
from inference.grammar.matcher import MaskRow, Matcher, Outside


@dataclass(frozen=True)
class _State:
    grammar: LLMatcher | None
    outside: Outside
    text: bytes  # since the last marker
    is_thinking: bool
    num_thoughts: int = 0
    closing: tuple[int, ...] = ()


class PlainMatcher:
    def __init__(self, compiled: CompiledSource) -> None:
        self._compiled, self._source, self._vocabulary = compiled, compiled.source, compiled.vocabulary
        self._reasoning = compiled.source.reasoning
        # Searches of text for markers and the masks of free text are the real one's, asked without any state of it.
        self._markers = Matcher(compiled)
        replica = compiled.replica_for(self)
        grammar = replica.copy() if replica is not None and not self._source.triggers else None
        is_thinking = self._reasoning is not None and self._reasoning.inside
        state = _State(grammar, Outside.TEXT, b"\n", is_thinking)
        is_spent = self._reasoning is not None and self._reasoning.max_tokens == 0
        self._state = replace(state, closing=compiled.close_tokens) if is_thinking and is_spent else state

    @property
    def is_done(self) -> bool:
        state = self._state
        if state.grammar is not None:
            return bool(state.grammar.is_stopped()) and not self._source.triggers
        return state.outside is not Outside.TEXT

    @property
    def is_constrained(self) -> bool:
        state = self._state
        return state.grammar is not None or state.outside is not Outside.TEXT or state.closing != ()

    def forced(self) -> tuple[int, ...]:
        state = self._state
        if state.closing or state.grammar is None or state.is_thinking:
            return state.closing
        return tuple(state.grammar.deep_copy().compute_ff_tokens())

    def mask(self, out: MaskRow) -> bool:
        state = self._state
        if state.closing or (state.grammar is None and state.outside is not Outside.TEXT):
            allowed = {*state.closing[:1]} or self._vocabulary.end_token_ids
            bits = np.zeros(out.size * 32, dtype=np.uint8)
            bits[list(allowed)] = 1
            out[:] = np.packbits(bits, bitorder="little").view(np.int32)
            return True
        if state.grammar is not None:
            out[:] = np.frombuffer(state.grammar.deep_copy().compute_bitmask(), dtype=np.int32)
            return True
        self._markers._tail = state.text
        return self._markers.mask(out)

    def accept(self, token_id: int) -> bool:
        state = self._following(token_id)
        self._state = state or self._state
        return state is not None

    def _following(self, token_id: int) -> _State | None:
        state, is_end = self._state, token_id in self._vocabulary.end_token_ids
        if (state.closing and token_id != state.closing[0]) or state.outside is Outside.NOTHING:
            return None
        if state.grammar is None:
            if is_end and not state.closing:
                return replace(state, outside=Outside.NOTHING)
            return self._after_text(state, token_id) if state.outside is Outside.TEXT else None
        grammar = state.grammar.deep_copy()
        if grammar.is_stopped():
            return replace(state, grammar=None, outside=Outside.NOTHING) if is_end else None
        if grammar.try_consume_tokens([token_id]) != 1:
            return None
        if self._source.triggers:
            outside = Outside.END if self._source.ends_after_call else Outside.TEXT
            gone = replace(state, grammar=None, outside=outside, text=b"", is_thinking=False)
            return gone if grammar.is_stopped() else replace(state, grammar=grammar)
        if is_end and grammar.is_stopped():
            return replace(state, grammar=None, outside=Outside.NOTHING)
        return self._after_thought(replace(state, grammar=grammar), token_id)

    def _after_text(self, state: _State, token_id: int) -> _State | None:
        tail = state.text[-self._compiled.tail_bytes :]
        joined = tail + self._vocabulary.bytes_of(token_id)
        found = first_trigger(self._compiled.triggers, joined, len(tail))
        if found is None:
            return self._after_thought(state, token_id)
        replica = self._compiled.replica_for(self)
        assert replica is not None
        trigger, start, end = found
        grammar = self._compiled.enter(replica, trigger, joined[end:])
        if grammar is None:
            return None if start < len(tail) else replace(self._after_thought(state, token_id), text=b"")
        return replace(state, grammar=grammar, is_thinking=False)

    def _after_thought(self, state: _State, token_id: int) -> _State:
        tail = state.text[-self._compiled.tail_bytes :]
        joined = tail + self._vocabulary.bytes_of(token_id)
        if self._reasoning is None:
            return replace(state, text=joined)
        marks = self._compiled.closes if state.is_thinking else self._compiled.opens
        if marks.search(joined):
            following = replace(state, text=b"", is_thinking=not state.is_thinking)
        else:
            following = replace(state, text=joined, num_thoughts=state.num_thoughts + state.is_thinking)
        return replace(following, closing=state.closing[1:] if state.closing else self._closer(following))

    def _closer(self, state: _State) -> tuple[int, ...]:
        closer = self._compiled.close_tokens
        assert self._reasoning is not None
        is_spent = state.is_thinking and state.num_thoughts >= self._reasoning.max_tokens
        if not is_spent or ends_inside_character(state.text):
            return ()
        grammar = state.grammar
        fits = grammar is None or grammar.deep_copy().validate_tokens(list(closer)) == len(closer)
        return closer if fits else ()
