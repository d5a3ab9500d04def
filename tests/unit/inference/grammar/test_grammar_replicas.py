"""Rows that live at once spread over replicas of their grammar, none of which can hold up or spoil the others."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from llguidance import LLParserLimits

from inference.grammar import compile as compile_module
from inference.grammar.build import build_grammar
from inference.grammar.compile import GrammarCompiler
from inference.grammar.compiled_source import CompiledSource
from inference.grammar.matcher import Matcher
from inference.grammar.policy import CallPolicy, Tool
from inference.grammar.source import GrammarSource
from stream_parser.dialects import DIALECTS
from tests.testkit.grammar_kit import END, SPECIAL_TOKENS, Kit, schema_source, vocabulary

SOURCE = schema_source({"type": "string"})
# Its lexer needs about twenty states more for each character that comes.
WIDE = {"type": "string", "pattern": "^[a-z]{0,40}(x|y)[a-z]{0,9}$"}


@pytest.fixture
def own() -> Iterator[GrammarCompiler]:
    found = GrammarCompiler(vocabulary(), num_replicas=3)
    yield found
    found.close()


def tokens(text: str) -> list[int]:
    return vocabulary().tokens_of(vocabulary().encode(text, SPECIAL_TOKENS))


def settle(own: GrammarCompiler) -> None:
    """Until the replicas that are wanted are there."""
    own._replica_thread.submit(int).result(20)


def rows(own: GrammarCompiler, source: GrammarSource, count: int) -> list[Matcher]:
    found = []
    for _ in range(count):
        found.append(own.matcher(source))
        settle(own)
    return found


def compiled(own: GrammarCompiler, source: GrammarSource = SOURCE) -> CompiledSource:
    return own._compiled(source)


def exhaust(own: GrammarCompiler, matcher: Matcher, text: str) -> None:
    """Write, and look at each mask, until the matcher gives up."""
    for token in tokens(text):
        Kit(own, SPECIAL_TOKENS, "<end>").allowed(matcher)
        if matcher.error or not matcher.accept(token):
            break
    assert "too many states" in matcher.error


def test_rows_that_live_at_once_spread_evenly_over_as_many_replicas_as_there_may_be(own: GrammarCompiler) -> None:
    living = rows(own, SOURCE, 9)
    assert compiled(own).num_replicas == 3
    # The second came before there was a second replica.
    assert [replica.num_rows() for replica in compiled(own)._replicas] == [3, 3, 3]
    assert len({id(matcher._replica) for matcher in living}) == 3


def test_one_row_after_another_needs_no_second_replica(own: GrammarCompiler) -> None:
    for _ in range(3):
        rows(own, SOURCE, 1)
        gc.collect()
    assert compiled(own).num_replicas == 1


def test_a_row_that_is_done_counts_no_more(own: GrammarCompiler) -> None:
    kept = []
    for _ in range(3):
        matcher = rows(own, SOURCE, 1)[0]
        assert all(matcher.accept(token) for token in (*tokens('"a"'), END))
        kept.append(matcher)
    assert compiled(own).num_replicas == 1
    assert [replica.num_rows() for replica in compiled(own)._replicas] == [0]


def test_a_grammar_that_takes_long_to_compile_is_compiled_once(
    own: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_module, "_CHEAP_S", 0.0)
    living = rows(own, SOURCE, 4)
    assert compiled(own).num_replicas == 1
    assert len({id(matcher._replica) for matcher in living}) == 1


def test_all_grammars_together_have_no_more_replicas_than_are_allowed(
    own: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_module, "_MAX_EXTRA_REPLICAS", 3)
    sources = [schema_source({"const": name}) for name in ("a", "b", "c")]
    living = [matcher for source in sources for matcher in rows(own, source, 4)]
    assert len(living) == 12
    assert [compiled(own, source).num_replicas for source in sources] == [3, 2, 1]


def test_free_text_has_no_replicas_and_never_wants_one(own: GrammarCompiler) -> None:
    source = build_grammar(DIALECTS["hermes"], CallPolicy(), opening="reasoning", max_reasoning_tokens=5,
                           special_tokens=SPECIAL_TOKENS)  # fmt: skip
    assert source is not None
    assert not source.lark
    living = rows(own, source, 4)
    assert len(living) == 4
    assert compiled(own, source).num_replicas == 0
    assert not compiled(own, source).is_broken


def test_a_closed_compiler_still_makes_matchers_of_what_it_has(own: GrammarCompiler) -> None:
    own.check(SOURCE)
    own.close()
    assert all(matcher.accept(tokens('"')[0]) for matcher in [own.matcher(SOURCE) for _ in range(3)])


def test_a_replica_that_met_a_limit_spoils_only_its_own_rows(
    own: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_module, "_LIMITS", LLParserLimits(max_lexer_states=60))
    source = schema_source(WIDE)
    first, beside, elsewhere = rows(own, source, 3)
    assert first._replica is beside._replica is not elsewhere._replica
    exhaust(own, first, '"abcdefghijklmnop')
    # What shares the lexer fails with it, and says why.
    assert not beside.accept(tokens('"')[0])
    assert "too many states" in beside.error
    assert all(elsewhere.accept(token) for token in tokens('"axb"'))
    assert not elsewhere.error
    fresh = rows(own, source, 4)
    assert all(matcher.accept(tokens('"')[0]) for matcher in fresh)
    assert first._replica not in compiled(own, source)._replicas


def test_where_every_replica_is_spoilt_the_next_row_gets_a_new_grammar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_module, "_LIMITS", LLParserLimits(max_lexer_states=60))
    own, source = GrammarCompiler(vocabulary(), num_replicas=1), schema_source(WIDE)
    matcher = own.matcher(source)
    spoilt = compiled(own, source)
    exhaust(own, matcher, '"abcdefghijklmnop')
    assert spoilt.is_broken
    assert all(own.matcher(source).accept(token) for token in tokens('"'))
    assert compiled(own, source) is not spoilt
    own.close()


def triggered_source() -> GrammarSource:
    schema = {"type": "object", "properties": {"code": WIDE}, "required": ["code"], "additionalProperties": False}
    found = build_grammar(
        DIALECTS["hermes"], CallPolicy("auto", (Tool("ping", schema, strict=True),)), special_tokens=SPECIAL_TOKENS
    )
    assert found is not None
    return found


CALL = '<tool_call>\n{"name": "ping", "arguments": {"code": "'


def test_a_call_that_begins_where_every_replica_is_spoilt_ends_with_an_error_and_not_unconstrained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compile_module, "_LIMITS", LLParserLimits(max_lexer_states=130))
    own = GrammarCompiler(vocabulary(), num_replicas=1)
    spoiler, later = own.matcher(triggered_source()), own.matcher(triggered_source())
    exhaust(own, spoiler, CALL + "abcdefghijklmnopqrstuvwabcdefghijkl")
    *before, last = tokens("Now: <tool_call>")
    assert all(later.accept(token) for token in before)
    assert later.accept(last)
    assert "too many states" in later.error
    own.close()


def test_a_call_begins_in_a_replica_that_is_good(own: GrammarCompiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_module, "_LIMITS", LLParserLimits(max_lexer_states=130))
    spoiler, later, _ = rows(own, triggered_source(), 3)
    assert spoiler._replica is later._replica
    exhaust(own, spoiler, CALL + "abcdefghijklmnopqrstuvwabcdefghijkl")
    assert all(later.accept(token) for token in tokens("Now: " + CALL + 'axb"}}\n</tool_call>'))
    assert not later.error
    assert not later.is_constrained


def test_who_waits_for_another_row_of_its_lexer_holds_up_no_third(own: GrammarCompiler) -> None:
    own.check(SOURCE)
    masked, waiting = own.matcher(SOURCE), own.matcher(SOURCE)
    assert masked.lexer_lock is waiting.lexer_lock
    questions: list[Callable[[], object]] = [
        lambda: waiting.mask(np.zeros(vocabulary().mask_words, dtype=np.int32)),
        waiting.forced,
        lambda: waiting.accept(tokens('"')[0]),
    ]
    for question in questions:
        with masked.lexer_lock:  # as if its mask were being computed
            thread = threading.Thread(target=question)
            thread.start()
            thread.join(0.01)
            assert thread.is_alive()
            assert waiting.error == ""
            assert not waiting.is_done
        thread.join(20)
        assert not thread.is_alive()
