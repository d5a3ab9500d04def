"""A matcher's promises to the engine: masks without padding, forced runs, errors that say why."""

from __future__ import annotations

import json
import pickle
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from inference.grammar import matcher as matcher_module
from inference.grammar.build import build_grammar
from inference.grammar.compile import GrammarCompiler
from inference.grammar.errors import GrammarError, GrammarTooComplex
from inference.grammar.policy import CallPolicy, JsonSchema, Tool
from inference.grammar.source import GrammarSource
from stream_parser.dialects import DIALECTS
from tests.testkit.grammar_kit import (
    END,
    SPECIAL,
    SPECIAL_TOKENS,
    allowed,
    compiler,
    schema_source,
    takes_value,
    text_of,
    vocabulary,
)

NAMES = {
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
    "additionalProperties": False,
}


def strict_source() -> GrammarSource:
    found = build_grammar(
        DIALECTS["hermes"], CallPolicy("auto", (Tool("ping", NAMES, strict=True),)), special_tokens=SPECIAL_TOKENS
    )
    assert found is not None
    return found


def tokens(text: str) -> list[int]:
    return vocabulary().tokens_of(text.encode())


def test_masks_leave_out_padding_special_tokens_and_the_end_until_it_may_come() -> None:
    matcher = compiler().matcher(schema_source({"type": "string"}))
    row = np.full(vocabulary().mask_words, -1, dtype=np.int32)
    assert matcher.mask(row)
    for token in tokens('"any text at all'):
        assert matcher.accept(token)
        found = allowed(matcher)
        assert found is not None
        assert max(found) < len(SPECIAL) + 256 + 120
        assert not set(found) & set(range(len(SPECIAL)))
    assert matcher.accept(tokens('"')[0])
    assert allowed(matcher) == [END]
    assert matcher.is_done


def test_a_token_that_may_not_come_changes_nothing() -> None:
    matcher = compiler().matcher(schema_source(NAMES))
    before = allowed(matcher)
    for wrong in (tokens("x")[0], END, vocabulary().vocab_size - 1):
        assert not matcher.accept(wrong)
    assert allowed(matcher) == before
    assert matcher.error == ""
    for token in tokens('{"name": "x"}'):
        assert matcher.accept(token)
    assert matcher.accept(END)
    assert not matcher.accept(END)


def test_forced_tokens_are_canonical_and_end_where_there_is_a_choice() -> None:
    matcher = compiler().matcher(schema_source(NAMES))
    forced = matcher.forced()
    # The last quote may become part of a longer token, so it is not forced.
    assert text_of(forced) == '{"name": '
    assert list(forced) == tokens('{"name": ')
    for token in forced:
        assert allowed(matcher) == [token]
        assert matcher.accept(token)
    assert matcher.forced() == ()


def test_what_is_forced_needs_no_mask_of_the_library() -> None:
    matcher = compiler().matcher(schema_source(NAMES))
    assert matcher._asks_library
    first, *_ = matcher.forced()
    assert not matcher._asks_library
    assert not matcher.mask_may_take_long
    assert not matcher.has_mask
    assert allowed(matcher) == [first]
    assert matcher.has_mask


@pytest.mark.parametrize(
    ("text", "is_slow"), [("12 d", False), ("12 da", True), ("1[>d", False), ("1[>da", True), ("12 days", True)]
)
def test_a_mask_is_thought_to_take_long_close_to_a_texts_bound_whatever_stands_before(
    text: str, is_slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mask at the text's beginning tells the bound; letters of markers in between change nothing."""
    monkeypatch.setattr(matcher_module, "_SLOW_TO_MASK", 4)
    source = replace(schema_source({"type": "string", "maxLength": 8}), has_plain_strings=False)
    matcher = compiler().matcher(source)
    assert vocabulary().most_room > 8
    assert matcher.accept(tokens('"')[0])
    allowed(matcher)
    for char in text:
        assert matcher.accept(vocabulary().tokens_of(char.encode())[0])
    assert matcher.mask_may_take_long == is_slow
    assert matcher.accept(tokens('"')[0])
    assert not matcher.mask_may_take_long


@pytest.mark.parametrize("extra", [{"pattern": "a$"}, {"format": "date"}, {}])
def test_masks_take_long_where_some_text_must_match_a_pattern(extra: dict[str, str]) -> None:
    source = schema_source({"type": "array", "items": {"type": "string", **extra}})
    assert source.searches_text == bool(extra)
    matcher = compiler().matcher(source)
    assert matcher.accept(tokens("[")[0])
    assert matcher.mask_may_take_long == bool(extra)


def test_a_source_travels_and_is_a_key() -> None:
    source = strict_source()
    copy = pickle.loads(pickle.dumps(source))
    assert copy == source
    assert hash(copy) == hash(source)
    assert compiler().matcher(copy).accept(tokens("x")[0])


def test_compiled_grammars_are_kept_and_the_least_used_go_first() -> None:
    own = GrammarCompiler(vocabulary(), cache_size=2)
    sources = [schema_source({"const": name}) for name in ("a", "b", "c")]
    first = own._compiled(sources[0])
    own.check(sources[1])
    assert own._compiled(sources[0]) is first
    own.check(sources[2])
    assert own._compiled(sources[0]) is first
    assert sources[1] not in own._cache
    own.close()


def test_what_takes_too_long_is_given_up_and_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    own = GrammarCompiler(vocabulary(), num_threads=1)
    gate = threading.Event()
    prototype = own._prototype

    def slow(lark: str) -> object:
        if "slow" in lark:
            gate.wait(20)
        return prototype(lark)

    monkeypatch.setattr(own, "_prototype", slow)
    with pytest.raises(GrammarTooComplex, match="takes longer"):
        own.check(schema_source({"const": "slow"}), timeout_s=0.05)
    own.check(schema_source({"const": "fast"}))
    gate.set()
    own.close()


HOSTILE = {
    "10,000 listed values": {"enum": [f"value {number * 7919 % 100_003}" for number in range(10_000)]},
    "long listed values": {"enum": ["x" * 400 + str(number) for number in range(400)]},
    "60 levels": json.loads('{"type": "object", "required": ["a"], "properties": {"a": ' * 60 + "{}" + "}}" * 60),
    "catastrophic pattern": {"type": "string", "pattern": "^(a|a?)+$"},
    "counted pattern": {"type": "string", "pattern": "^((a{0,40}){0,40}){0,40}b$"},
    "tail pattern": {"type": "string", "pattern": "(x|y)*x(x|y){25}$"},
    "recursive references": {
        "$ref": "#/$defs/d0",
        "$defs": {
            f"d{i}": {"type": "object", "properties": {f"p{j}": {"$ref": f"#/$defs/d{j}"} for j in range(9)}}
            for i in range(9)
        },
    },
    "300 optional members": {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(300)}},
    "wide unions": {"anyOf": [{"type": "string", "pattern": f"^{i}.*{i}$"} for i in range(200)]},
    "nested arrays": json.loads('{"type": "array", "items": ' * 40 + "{}" + "}" * 40),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_schema_is_served_or_refused_in_time(name: str) -> None:
    begun_s = time.monotonic()
    refusal = _try_out(HOSTILE[name])
    assert time.monotonic() - begun_s < 5
    assert refusal is None or str(refusal)


def _try_out(schema: dict[str, object]) -> GrammarError | None:
    """Some tokens under the schema's grammar; or why there is none."""
    try:
        source = schema_source(schema)
        compiler().check(source)
    except GrammarError as error:
        return error
    matcher = compiler().matcher(source)
    for _ in range(8):
        choices = allowed(matcher)
        assert choices or matcher.error
        if not choices or choices == [END]:
            break
        assert matcher.accept(choices[len(choices) // 2])
    return None


def test_other_threads_run_while_a_grammar_compiles_and_masks() -> None:
    source = schema_source({"anyOf": [{"type": "string", "pattern": f"^{i}.*{i}{{3}}$"} for i in range(60)]})
    done = threading.Event()

    def work() -> None:
        for _ in range(3):
            matcher = GrammarCompiler(vocabulary()).matcher(source)
            for token in tokens('"3 and more 33'):
                allowed(matcher)
                matcher.accept(token)
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    num_rounds = 0
    while not done.wait(0.0005):
        num_rounds += 1
    thread.join()
    assert num_rounds > 3


def test_special_tokens_that_a_schema_spells_are_text() -> None:
    source = build_grammar(
        DIALECTS["plain"], CallPolicy(), JsonSchema({"enum": ["<|end|>", "b"]}), special_tokens=SPECIAL_TOKENS,
        max_reasoning_tokens=0,
    )  # fmt: skip
    assert source is not None
    matcher = compiler().matcher(source)
    for token in tokens('"'):
        assert matcher.accept(token)
    assert SPECIAL_TOKENS["<|end|>"] not in (allowed(matcher) or [])
    for char in "<|end|>":
        assert matcher.accept(vocabulary().tokens_of(char.encode())[0])
    assert allowed(matcher) == tokens('"')


def test_a_grammar_for_another_tokenizer_is_refused() -> None:
    source = build_grammar(DIALECTS["mistral_v13"], CallPolicy("auto", (Tool("ping", {}, strict=True),)))
    assert source is not None
    with pytest.raises(GrammarError, match=r"another tokenizer: '\[TOOL_CALLS\]'"):
        compiler().check(source)


def test_a_lone_surrogate_in_a_schema_is_refused() -> None:
    with pytest.raises(GrammarError, match="surrogate"):
        schema_source({"const": "\ud800"})


def test_a_member_order_other_than_the_schemas_is_refused() -> None:
    schema = {"type": "object", "properties": {"a": {}, "b": {}}}
    assert takes_value(schema, {"a": 1, "b": 2})
    assert not takes_value(schema, {"b": 2, "a": 1})


def test_rules_in_a_long_row_are_compiled_without_the_end_of_the_process():
    # The library recurses natively: without a stack of its own this is no exception but a segmentation fault.
    members = {f"m{number}": {"type": "integer"} for number in range(1_999)}
    source = schema_source({"type": "object", "properties": members, "additionalProperties": False})
    own = GrammarCompiler(vocabulary())
    for compile_it in (own.check, own.matcher):
        compile_it(source)
    own.close()
    new = GrammarCompiler(vocabulary())
    matcher = new.matcher(source)
    assert all(matcher.accept(token) for token in vocabulary().tokens_of(b'{"m7": 1, "m1998": 2}'))
    assert not matcher.error
    new.close()
