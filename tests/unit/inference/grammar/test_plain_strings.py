"""Close to a string's bound, masks that the library was not asked for are its own; and which strings that holds for."""

from __future__ import annotations

import random

import numpy as np
import pytest

from inference.grammar import matcher as matcher_module
from inference.grammar.bounded_strings import StringTokens, chars_before_quote
from inference.grammar.build import build_grammar
from inference.grammar.policy import CallPolicy, JsonSchema, Tool
from inference.grammar.source import GrammarSource
from stream_parser.dialects import DIALECTS
from tests.testkit.grammar_kit import SMALL_BOUNDS, SPECIAL_TOKENS, compiler, schema_source, vocabulary
from tests.testkit.grammar_walks import source_for

TEXT = {"type": "string", "maxLength": 9}
LONGER = {"type": "string", "maxLength": 12, "minLength": 3}


def closed(*required: str, **properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


PLAIN = {
    "a text": LONGER,
    "a text, a word or a number": {"type": ["string", "null", "integer"], "maxLength": 9},
    "lists and objects of texts": {"type": "array", "items": {"anyOf": [TEXT, closed("b", a=TEXT, b=LONGER)]}},
    "objects that begin with different keys": {"anyOf": [closed("a", a=TEXT), closed("b", b=LONGER)]},
    "members that nobody declared": {"type": "object", "properties": {"a": LONGER}, "additionalProperties": TEXT},
    "keys with a pattern": {"type": "object", "patternProperties": {"^x": TEXT}, "additionalProperties": LONGER},
    "anything": {},
}
OTHERS = {
    "a pattern": {"type": "string", "pattern": "a", "maxLength": 9},
    "a pattern in a list": {"type": "array", "items": {"type": "string", "pattern": "a"}},
    "a format": {"type": "object", "properties": {"a": {"type": "string", "format": "date"}}},
    "a text or a listed one": {"anyOf": [TEXT, {"enum": ["abcdefghijkl", 3]}]},
    "texts of two kinds": {"anyOf": [{**TEXT, "maxLength": 2}, LONGER]},
    "objects that begin alike": {"anyOf": [closed("a", a=TEXT), closed("a", "b", a=LONGER, b=TEXT)]},
    "objects that may begin alike": {"anyOf": [closed("b", a=TEXT, b=TEXT), closed("a", a=LONGER)]},
    "objects one of which takes any key": {"anyOf": [closed("a", a=TEXT), {"type": "object", "required": ["b"]}]},
    "lists of two kinds": {
        "anyOf": [{"type": "array", "items": TEXT}, {"type": "array", "items": LONGER, "minItems": 2}]
    },
    "a list or a listed one": {"anyOf": [{"type": "array", "items": TEXT}, {"enum": [["abcdefghijkl"]]}]},
}


@pytest.mark.parametrize("name", PLAIN)
def test_strings_of_which_nothing_but_a_length_is_asked_are_plain(name: str) -> None:
    assert schema_source(PLAIN[name]).has_plain_strings


@pytest.mark.parametrize("name", OTHERS)
def test_where_a_string_may_be_another_or_has_more_to_fit_it_is_not_plain(name: str) -> None:
    assert not schema_source(OTHERS[name]).has_plain_strings


def calls(dialect: str, *schemas: dict[str, object]) -> GrammarSource:
    return source_for(DIALECTS[dialect], tuple(Tool(f"f{number}", schema) for number, schema in enumerate(schemas)))


@pytest.mark.parametrize(
    ("dialect", "is_plain"),
    [("hermes", True), ("llama3_json", True), ("mistral_v11", True), ("harmony", True), ("qwen3_coder", False),
     ("lfm2", False), ("gemma4", False), ("minimax_m3", False)],
)  # fmt: skip
def test_calls_have_plain_strings_where_their_arguments_are_in_json(dialect: str, is_plain: bool) -> None:
    assert calls(dialect, closed("a", a=TEXT), closed("a", a=LONGER)).has_plain_strings == is_plain
    assert not calls(dialect, closed("a", a=TEXT), closed("a", a=OTHERS["a pattern"])).has_plain_strings


def test_a_call_that_may_begin_as_an_answer_does_has_no_plain_strings() -> None:
    policy = CallPolicy("auto", (Tool("f", closed("a", a=TEXT)),))
    both = build_grammar(DIALECTS["bare_json"], policy, JsonSchema(TEXT), special_tokens=SPECIAL_TOKENS)
    assert both is not None
    assert not both.has_plain_strings


KEYED = {"type": "object", "properties": {"a": LONGER, "b" * 100: TEXT}, "additionalProperties": TEXT}
NOT_KEYED = {
    "a pattern": {"patternProperties": {"^x": TEXT}},
    "a pattern of names": {"propertyNames": {"pattern": "^x"}, "additionalProperties": TEXT},
    "a format of names": {"propertyNames": {"format": "date"}, "additionalProperties": TEXT},
    "a declared key as long as they may be": {"properties": {"b" * 105: TEXT}},
    "names too short to go past a declared one": {"properties": {"b": TEXT}, "propertyNames": {"maxLength": 24}},
}


@pytest.mark.parametrize("name", NOT_KEYED)
def test_keys_of_which_more_is_asked_than_a_length_are_not_plain(name: str) -> None:
    assert schema_source(KEYED).has_plain_keys
    schema = {"type": "object", "required": ["a"], "properties": {"a": {"type": "object", **NOT_KEYED[name]}}}
    assert not schema_source(schema).has_plain_keys


def test_masks_close_to_the_bound_of_a_key_that_nobody_declared_are_the_librarys() -> None:
    source, rng = schema_source(KEYED), random.Random(1)
    row, expected = np.zeros((2, vocabulary().mask_words), dtype=np.int32)
    opening = vocabulary().tokens_of(b'{"')
    short = [token for token in range(vocabulary().vocab_size) if vocabulary().plain_chars[token] < 4]
    num_derived = 0
    for walk in range(12):
        matcher = compiler().matcher(source)
        assert all(map(matcher.accept, opening))
        # The longest declared key, or another text; both, and what goes on from them, up to the bound.
        beginning = vocabulary().tokens_of(b"b" * (90 + walk) if walk % 2 else b"x" * (96 + walk))
        assert all(map(matcher.accept, beginning))
        for _ in range(60):
            is_derived = matcher._string is not None
            assert matcher.mask(row)
            assert matcher._grammar is not None
            matcher._grammar.unsafe_compute_mask_ptr(expected.ctypes.data, expected.nbytes)
            np.testing.assert_array_equal(row, expected)
            num_derived += is_derived
            allowed = [token for token in short if row.view(np.uint32)[token >> 5] >> (token & 31) & 1]
            if not allowed:
                break
            assert matcher.accept(rng.choice(allowed))
        assert matcher.accept(vocabulary().tokens_of(b'"')[0])
    assert num_derived > 50


WALKED = {name: schema_source(schema, SMALL_BOUNDS) for name, schema in PLAIN.items()}
WALKED |= {name: calls(name, closed("a", a=TEXT, b=LONGER)) for name in ("hermes", "llama3_json", "mistral_v11")}


@pytest.mark.parametrize("name", WALKED)
def test_masks_close_to_a_strings_bound_are_the_librarys(name: str) -> None:
    rng = random.Random(name)
    row, expected = np.zeros((2, vocabulary().mask_words), dtype=np.int32)
    num_derived = num_walks = 0
    while num_derived < 20:
        num_walks += 1
        assert num_walks < 100
        matcher = compiler().matcher(WALKED[name])
        for _ in range(60):
            if matcher.is_done:
                break
            is_derived = matcher._string is not None
            assert matcher.mask(row)
            if is_derived:
                assert matcher._grammar is not None
                assert not matcher.mask_may_take_long
                matcher._grammar.unsafe_compute_mask_ptr(expected.ctypes.data, expected.nbytes)
                np.testing.assert_array_equal(row, expected)
                num_derived += 1
            drawn = rng.choices(np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist(), k=3)
            assert matcher.accept(min(drawn, key=lambda token: len(vocabulary().bytes_of(token))))


@pytest.mark.parametrize(
    ("text", "num_chars"),
    [(b"", 0), (b"ab", 2), (b"\xc3\xa9t", 2), (b"a\xe6\x9d", 2), (b'ab", "c', 2), (b'"', 0), (rb"\"a", 2),
     (rb'\\"a', 1), (b"a\\", 2), (rb"a\u00", 2), (rb'a\u001f"b', 2), (rb"\n\t", 2), (rb'a": "\n', 1)],
)  # fmt: skip
def test_an_escape_or_the_beginning_of_one_or_of_a_character_is_one_character(text: bytes, num_chars: int) -> None:
    assert chars_before_quote(text) == num_chars


def test_only_tokens_of_whole_characters_leave_a_row_in_its_string() -> None:
    texts = [b"set", b"{", "é".encode(), rb"\n\u001f", b"x" * 30, b'"', b'a"', b"\\", rb"\u00", b"\n", b"\xe6", b"\x9d"]
    tokens = StringTokens(texts, [3, *[1 << 20] * 11], 1)
    left = [8 - tokens.num_chars(token_id) for token_id in range(len(texts))]
    assert left[:5] == [5, 7, 7, 6, -22]
    assert all(number < 0 for number in left[5:])


def test_from_the_first_mask_in_a_string_on_the_library_is_asked_for_none_until_its_bound() -> None:
    matcher = compiler().matcher(schema_source(TEXT))
    row = np.zeros(vocabulary().mask_words, dtype=np.int32)
    (quote,), (char,) = vocabulary().tokens_of(b'"'), vocabulary().tokens_of(b"<")
    assert matcher.accept(quote)
    assert matcher.mask(row)
    is_asked = []
    for _ in range(9):
        assert matcher.accept(char)
        is_asked.append(matcher._asks_library)
    assert is_asked == [*[False] * 8, True], "at the bound, again"
    assert matcher.accept(quote)
    assert matcher.is_done


def test_a_row_in_a_string_whose_masks_are_known_leaves_none_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matcher_module, "_ROOM_TO_SKIP", 2)
    known, unknown = (compiler().matcher(schema_source({"type": "string", "maxLength": size})) for size in (9, 60))
    row = np.zeros(vocabulary().mask_words, dtype=np.int32)
    for matcher in (known, unknown):
        assert all(map(matcher.accept, vocabulary().tokens_of(b'"')))
        assert matcher.mask(row)
    assert not known.lets_most_through
    assert unknown.lets_most_through
