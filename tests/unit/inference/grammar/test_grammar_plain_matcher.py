"""A matcher keeps what the library told it; at every place of random walks it must answer as one that keeps nothing."""

from __future__ import annotations

import random

import numpy as np
import pytest

from inference.grammar.build import Opening, build_grammar
from inference.grammar.compiled_source import CompiledSource
from inference.grammar.matcher import Matcher
from inference.grammar.policy import CallPolicy, Tool
from inference.grammar.source import GrammarSource
from stream_parser.dialects import DIALECTS
from tests.testkit.grammar_kit import END, SMALL_BOUNDS, SPECIAL_TOKENS, compiler, vocabulary
from tests.testkit.grammar_walks import SCHEMAS
from tests.testkit.plain_matcher import PlainMatcher

# Each reads calls in its own way: a mark of letters, one token, a header, a line's beginning, bare values in tags.
DIALECT_NAMES = ("hermes", "mistral_v13", "harmony", "llama3_json", "pythonic", "qwen3_coder", "glm4", "beam")
POLICIES: dict[str, tuple[CallPolicy, Opening, int | None]] = {
    "demanded": (CallPolicy("required"), "answer", 0),
    "demanded after thoughts": (CallPolicy("required"), "answer", 3),
    "in free text": (CallPolicy("auto"), "answer", None),
    "in free text after thoughts": (CallPolicy("auto"), "reasoning", 4),
    "one in free text": (CallPolicy("auto", parallel=False), "answer", 2),
}


def source_of(dialect: str, policy: str, schema: str) -> GrammarSource:
    demand, opening, max_reasoning_tokens = POLICIES[policy]
    tools = (Tool("do_it", {"type": "object", **SCHEMAS[schema]}, strict=True),)
    found = build_grammar(
        DIALECTS[dialect], CallPolicy(demand.mode, tools, parallel=demand.parallel), opening=opening,
        special_tokens=SPECIAL_TOKENS, end_tokens=["<end>"], bounds=SMALL_BOUNDS,
        max_reasoning_tokens=max_reasoning_tokens,
    )  # fmt: skip
    assert found is not None
    return found


def answers(matcher: Matcher | PlainMatcher) -> tuple[object, ...]:
    row = np.full(vocabulary().mask_words, -1, dtype=np.int32)
    is_masked = matcher.mask(row)
    return is_masked, row.tobytes(), matcher.forced(), matcher.is_done, matcher.is_constrained


def next_token(said: tuple[object, ...], beginning: list[int], rng: random.Random) -> int:
    """One that is forced, the beginning's, or any that may come."""
    forced = said[2]
    assert isinstance(forced, tuple)
    if forced and (beginning or rng.random() < 0.7):
        return int(forced[0])
    if beginning:
        return beginning.pop(0)
    bits = np.unpackbits(np.frombuffer(said[1], dtype=np.uint8), bitorder="little")  # type: ignore[call-overload]
    return int(rng.choice(np.flatnonzero(bits[: vocabulary().vocab_size])))


def walk(compiled: CompiledSource, rng: random.Random, num_tokens: int) -> int:
    """Side by side; returns how many tokens the walk came to inside of the grammar."""
    matcher, plain = Matcher(compiled), PlainMatcher(compiled)
    triggers = compiled.source.triggers
    marks = vocabulary().tokens_of(vocabulary().encode("\n" + triggers[0].text, SPECIAL_TOKENS)) if triggers else []
    num_inside = 0
    for _ in range(num_tokens):
        said = answers(matcher)
        assert said == answers(plain)
        num_inside += matcher._grammar is not None
        for token in (rng.randrange(vocabulary().vocab_size), END) if not marks and rng.random() < 0.2 else ():
            before, taken = answers(matcher), matcher.accept(token)
            assert taken == plain.accept(token)
            assert taken or answers(matcher) == before
        token = next_token(answers(matcher), [] if matcher._is_thinking else marks, rng)
        assert matcher.accept(token) == plain.accept(token)
    return num_inside


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("dialect", DIALECT_NAMES)
def test_a_matcher_answers_as_one_that_asks_the_library_every_time(dialect: str, policy: str) -> None:
    rng = random.Random(f"{dialect} {policy}")
    num_inside = 0
    for schema in rng.sample(list(SCHEMAS), 3):
        compiled = compiler()._compiled(source_of(dialect, policy, schema))
        num_inside += walk(compiled, rng, 40)
    assert num_inside > 10
