"""Masks in one call are those of one call each, whatever the rows are about to do, and a limit is noticed in it."""

from __future__ import annotations

import numpy as np
import pytest
from llguidance import LLParserLimits

from inference.grammar import compile as compile_module
from inference.grammar.build import build_grammar
from inference.grammar.compile import GrammarCompiler
from inference.grammar.masks import Masked, MaskThreads
from inference.grammar.matcher import Matcher
from inference.grammar.policy import CallPolicy, Tool
from stream_parser.dialects import DIALECTS
from tests.testkit.grammar_kit import SPECIAL_TOKENS, compiler, schema_source, vocabulary
from tests.testkit.matchers import RandomMatcher

STRICT = (Tool("ping", {"type": "object", "properties": {"a": {"type": "string"}}}, strict=True),)
TEXTS = ("Free text", "near <tool_ca", "in <tool_call>\n{", '<tool_call>\n{"name": "ping", "arguments": {"a": "x')


def tokens(text: str) -> list[int]:
    return vocabulary().tokens_of(vocabulary().encode(text, SPECIAL_TOKENS))


def rows() -> list[Masked]:
    """In free text, near a call and in one; at a value; at the end; where reasoning is closed; without a grammar."""
    triggered = build_grammar(DIALECTS["hermes"], CallPolicy("auto", STRICT), special_tokens=SPECIAL_TOKENS)
    closed = build_grammar(DIALECTS["hermes"], CallPolicy(), opening="reasoning", max_reasoning_tokens=0)
    assert triggered is not None
    assert closed is not None
    written = [(triggered, text) for text in TEXTS]
    written += [(schema_source({"type": "string"}), text) for text in ("", '"ab', '"ab"')] + [(closed, "")]
    found: list[Masked] = []
    for source, text in written:
        matcher = compiler().matcher(source)
        assert all(matcher.accept(token) for token in tokens(text))
        found.append(matcher)
    return [*found, RandomMatcher(1, 9, vocabulary().vocab_size)]


def test_masks_in_one_call_are_those_of_one_call_each_in_the_rows_that_are_asked_for() -> None:
    threads, matchers = MaskThreads(2), rows()
    words, expected = np.full((2, len(matchers) + 2, vocabulary().mask_words), 7, dtype=np.int32)
    places = [len(matchers) - index for index in range(len(matchers))]
    singles = rows()
    is_masked = [matcher.mask(expected[row]) for row, matcher in zip(places, singles, strict=True)]
    assert threads.compute(list(zip(places, matchers, strict=True)), words) == is_masked
    assert set(is_masked) == {True, False}
    np.testing.assert_array_equal(words, expected)
    told = [[m._room for m in some if isinstance(m, Matcher) and m.has_mask] for some in (matchers, singles)]
    assert told[0] == told[1], "each row's matcher has looked at its own mask"
    assert any(told[0])


def test_no_jobs_are_no_work() -> None:
    words = np.full((1, vocabulary().mask_words), 7, dtype=np.int32)
    assert MaskThreads(1).compute([], words) == []
    assert set(words.flatten()) == {7}


def test_a_row_may_go_on_by_its_mask_before_anybody_has_looked_at_it() -> None:
    threads, source = MaskThreads(1), schema_source({"type": "string", "maxLength": 8})
    asked, going_on = compiler().matcher(source), compiler().matcher(source)
    words = np.zeros((2, vocabulary().mask_words), dtype=np.int32)
    for text in ('"', "ab", "c"):
        threads.compute([(0, asked), (1, going_on)], words)
        assert asked.has_mask
        for matcher in (asked, going_on):
            assert all(matcher.accept(token) for token in tokens(text))
            assert not matcher.has_mask
        assert (asked._room, asked._num_left) == (going_on._room, going_on._num_left)
    assert going_on._num_left == 5


@pytest.mark.parametrize("count", [1, 3])
def test_a_row_that_meets_a_limit_in_the_call_says_so_and_the_others_have_their_masks(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_module, "_LIMITS", LLParserLimits(max_lexer_states=60))
    own = GrammarCompiler(vocabulary(), num_replicas=1)
    source = schema_source({"type": "string", "pattern": "^[a-z]{0,40}(x|y)[a-z]{0,9}$"})
    failing = own.matcher(source)
    others = [compiler().matcher(schema_source({"type": "integer"})) for _ in range(count - 1)]
    threads, words = MaskThreads(2), np.zeros((count, vocabulary().mask_words), dtype=np.int32)
    for token in tokens('"abcdefghijklmnop'):
        threads.compute(list(enumerate([failing, *others])), words)
        if failing.error or not failing.accept(token):
            break
    assert "too many states" in failing.error
    assert own._compiled(source) is not failing._compiled
    assert not any(other.error for other in others)
    assert all(words[row].any() for row in range(count))
    own.close()
