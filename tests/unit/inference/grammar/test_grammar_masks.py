"""What a mask allows where the text is forced, and that a limit is noticed in it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from llguidance import LLParserLimits

from inference.grammar import compile as compile_module
from inference.grammar.compile import GrammarCompiler
from tests.testkit.grammar_kit import SPECIAL_TOKENS, allowed, compiler, schema_source, text_of, vocabulary

SCHEMA = {
    "type": "object",
    "properties": {"timeout": {"enum": [10, 100]}, "city": {"enum": ["Oslo", "Ottawa"]}},
    "required": ["timeout", "city"],
    "additionalProperties": False,
}


def tokens(text: str) -> list[int]:
    return vocabulary().tokens_of(vocabulary().encode(text, SPECIAL_TOKENS))


@pytest.mark.parametrize("written", [{"timeout": 10, "city": "Oslo"}, {"timeout": 100, "city": "Ottawa"}])
def test_where_one_text_may_come_its_mask_allows_its_own_tokens_and_no_other_spelling(
    written: dict[str, object],
) -> None:
    matcher, num_forced, num_others = compiler().matcher(schema_source(SCHEMA)), 0, 0
    for token in tokens(json.dumps(written)):
        may_come = allowed(matcher)
        assert matcher.has_mask
        if forced := matcher.forced():
            assert may_come == [forced[0]]
            num_forced += 1
            assert matcher._grammar is not None
            text = text_of(forced[:1])
            num_others += sum(
                bool(matcher._grammar.validate_tokens(vocabulary().tokens_of(text[:size].encode())))
                for size in range(1, len(text))
            )
        else:
            assert len(may_come) > 1
        assert token in may_come
        assert matcher.accept(token)
        assert not matcher.has_mask
    assert matcher.is_done
    assert num_forced > 4
    assert num_others > 4, "the grammar would accept other spellings"


def test_a_row_that_meets_a_limit_in_its_mask_says_so_and_no_other_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_module, "_LIMITS", LLParserLimits(max_lexer_states=60))
    own = GrammarCompiler(vocabulary(), num_replicas=1)
    source = schema_source({"type": "string", "pattern": "^[a-z]{0,40}(x|y)[a-z]{0,9}$"})
    failing, other = own.matcher(source), compiler().matcher(schema_source({"type": "integer"}))
    row = np.zeros(vocabulary().mask_words, dtype=np.int32)
    for token in tokens('"abcdefghijklmnop'):
        failing.mask(row)
        if failing.error or not failing.accept(token):
            break
    assert "too many states" in failing.error
    assert own._compiled(source) is not failing._compiled
    assert other.mask(row)
    assert not other.error
    assert row.any()
    own.close()
