"""Under a real vocabulary, whose tokens straddle every border of the syntax: random walks still make valid calls."""

from __future__ import annotations

import pytest

from stream_parser.dialects import DIALECTS
from tests.testkit.grammar_kit import Kit
from tests.testkit.grammar_walks import SCHEMAS, check_walk, default_model_kit

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def kit() -> Kit:
    return default_model_kit()


@pytest.mark.parametrize("name", ["hermes", "qwen3_coder"])
def test_random_tokens_of_a_real_vocabulary_make_valid_calls(name: str, kit: Kit) -> None:
    for seed, schema in enumerate(SCHEMAS.values()):
        check_walk(DIALECTS[name], schema, seed, kit)


def test_the_library_and_we_take_the_same_tokens_for_markers(kit: Kit) -> None:
    vocabulary = kit.compiler.vocabulary
    found = {number for number in range(vocabulary.vocab_size) if vocabulary.tokenizer.is_special_token(number)}
    assert found == set(vocabulary.special_tokens.values())
