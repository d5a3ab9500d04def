"""Keys that an object does not declare: all but the declared ones, and masks within them as quick as in other text."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import numpy as np
import pytest
from llguidance import LLMatcher

from inference.grammar.lark import quoted, regex, sequence
from inference.grammar.nodes import ExtraMembers
from inference.grammar.policy import Bounds, Tool
from inference.grammar.source import GrammarSource
from inference.grammar.text_patterns import FORMATS, whole_pattern
from inference.grammar.values import ValueWriter
from stream_parser.dialects import DIALECTS
from tests.testkit.grammar_kit import END, compiler, schema_source, slices_applied, takes, vocabulary
from tests.testkit.grammar_walks import source_for

NUMBER, TEXT = {"type": "integer"}, {"type": "string"}
MOST_CHARS = 12
BOUNDS = Bounds(key_chars=MOST_CHARS, string_chars=9, integer_digits=3, extra_members=2)
NAMES = {
    "plain": ("get", "get_item", "item", "set"),
    "none": (),
    "empty": ("", "a"),
    "one within another": ("a", "ab", "abc", "abcdefghijkl", "abcdefghijklm"),
    "beyond ASCII": ("été", "ét", "東京", "𝔘", "東"),
    "with escapes": ('a"b', "a\\", "\n", "a", "it's", "/", "a: "),
}
ROWS = {name: dict.fromkeys(names, TEXT) for name, names in NAMES.items()}


def open_object(properties: dict[str, Any], **keywords: object) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": NUMBER, **keywords}


def keys_about(names: tuple[str, ...], rng: random.Random) -> set[str]:
    """The names, what they begin with, what goes on from them, and others."""
    found = {"", "x" * MOST_CHARS, "x" * (MOST_CHARS + 1), "\t", '"', "\\", "é" * MOST_CHARS, *names}
    for name in names:
        found |= {name[: rng.randint(0, len(name))], name + rng.choice("a_é\n"), name + name, name[1:], name.upper()}
        found |= {name[:-1] + rng.choice("xé京"), f" {name}"}
    return found | {"".join(rng.choices("abgetis_ é京'\"\\", k=rng.randint(0, MOST_CHARS + 1))) for _ in range(40)}


def is_plain(key: str) -> bool:
    """Within the bound, and without what JSON escapes, which undeclared keys have none of."""
    return len(key) <= MOST_CHARS and json.dumps(key, ensure_ascii=False) == f'"{key}"'


@pytest.mark.parametrize("name", NAMES)
def test_a_key_is_undeclared_as_a_validator_says(name: str) -> None:
    schema = open_object(ROWS[name])
    source = schema_source(schema, BOUNDS)
    validator = jsonschema.Draft202012Validator(schema)
    num_taken = 0
    for key in sorted(keys_about(NAMES[name], random.Random(name))):
        value = {key: 1}
        is_taken = takes(source, json.dumps(value, ensure_ascii=False))
        assert is_taken == (validator.is_valid(value) and is_plain(key)), key
        num_taken += is_taken
    assert num_taken > 20


@pytest.mark.parametrize("spelled", [r'"\u0067et"', r'"g\u0065t"', r'"ge\t"', r'"x\"y"', r'"\/"'])
def test_an_undeclared_key_has_no_escapes_by_which_it_could_be_a_declared_one(spelled: str) -> None:
    assert not takes(schema_source(open_object(ROWS["plain"])), f"{{{spelled}: 1}}")


@pytest.mark.parametrize(
    ("keywords", "right", "wrong"),
    [
        ({"patternProperties": {"^x_": TEXT}}, ['{"y_": 1}', '{"x_": "a"}', '{"x": 1}'], ['{"x_": 1}', '{"y_": "a"}']),
        ({"patternProperties": {"e": TEXT}}, ['{"the": "a"}', '{"x": 1}'], ['{"the": 1}', '{"get": 1}', '{"x": "a"}']),
        ({"propertyNames": {"maxLength": 4}}, ['{"gets": 1}', '{"get": "a"}'], ['{"get_i": 1}', '{"get": 1}']),
        ({"propertyNames": {"minLength": 3}}, ['{"sets": 1}', '{"se_": 1}'], ['{"se": 1}', '{"set": 1}']),
        ({"propertyNames": {"pattern": "^[est]+$"}}, ['{"sets": 1}'], ['{"set": 1}', '{"get": "a"}', '{"sex": 1}']),
        ({"propertyNames": {"enum": ["get", "z"]}}, ['{"z": 1}', '{"get": "a"}'], ['{"x": 1}', '{"get": 1}']),
    ],
    ids=str,
)  # fmt: skip
def test_what_else_is_asked_of_keys_holds_beside_it(
    keywords: dict[str, object], right: list[str], wrong: list[str]
) -> None:
    source = schema_source(open_object(ROWS["plain"], **keywords), BOUNDS)
    assert [text for text in right if not takes(source, text)] == []
    assert [text for text in wrong if takes(source, text)] == []


def key_as_it_was(writer: ValueWriter, extra: ExtraMembers) -> str:
    """What is ruled out, within the quotes: plainer, and thirty times as slow at 152k tokens."""
    notation, key = writer.notation, extra.key
    parts = [regex(f"{notation.key_char}{{{key.min_chars},{key.max_chars}}}")]
    parts += [regex(f"(?s:{whole_pattern(pattern)})") for pattern in (*extra.patterns, *key.patterns)]
    parts += [regex(FORMATS[name]) for name in key.formats]
    parts += ["~" + regex(f"(?s:{whole_pattern(pattern)})") for pattern in extra.other_patterns]
    parts += ["~" + quoted(name) for name in extra.excluded]
    opens, closes = notation.key_quotes
    inner = "(" + " & ".join(parts) + ")"
    return writer._writer.terminal(sequence([quoted(opens) if opens else "", inner, quoted(closes + notation.key_end)]))


WALKED: dict[str, dict[str, Any]] = {name: open_object(properties) for name, properties in ROWS.items()}
WALKED |= {
    "a declared key that may come no more": open_object(ROWS["one within another"], required=["a", "ab"]),
    "declared keys that may not come": open_object(dict.fromkeys(NAMES["plain"], False)),
    "a pattern": open_object(ROWS["plain"], patternProperties={"^s": TEXT}),
    "short keys": open_object(ROWS["one within another"], propertyNames={"maxLength": 4, "minLength": 1}),
    "keys with a pattern": open_object(ROWS["plain"], propertyNames={"pattern": "^[a-z]*$"}),
}
IN_CALLS = ("lfm2", "gemma4", "mistral_v11")


def in_call(dialect: str, schema: dict[str, Any], bounds: Bounds = BOUNDS) -> GrammarSource:
    arguments = {"type": "object", "properties": {"a": schema}, "required": ["a"], "additionalProperties": False}
    return source_for(DIALECTS[dialect], (Tool("f", arguments),), bounds)


def source_of(name: str) -> GrammarSource:
    return in_call(name, WALKED["plain"]) if name in IN_CALLS else schema_source(WALKED[name], BOUNDS)


@pytest.mark.parametrize("name", [*WALKED, *IN_CALLS])
def test_masks_are_those_of_a_complement_within_the_quotes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Along walks that spell keys like the declared ones, for the most part."""
    source = source_of(name)
    monkeypatch.setattr(ValueWriter, "_extra_key", key_as_it_was)
    lark = source_of(name).lark
    assert lark != source.lark or name == "none"
    rng = random.Random(name)
    names = NAMES.get(name, NAMES["plain"])
    unsliced = vocabulary().tokenizer.with_slices([])
    row = np.zeros(vocabulary().mask_words, dtype=np.int32)
    for _ in range(4):
        matcher, plain = compiler().matcher(source), LLMatcher(unsliced, lark, log_level=0)
        wanted: list[int] = []
        for _ in range(60):
            assert matcher.mask(row)
            assert row.tobytes() == plain.compute_bitmask()
            choices = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist()
            if not wanted or wanted[0] not in choices:
                key = rng.choice(sorted(keys_about(names, rng)))
                wanted = vocabulary().tokens_of(
                    rng.choice([f'"{key}": ', f'{key}": ', f"{key}:", f"{key}': "]).encode()
                )
            token = wanted.pop(0) if wanted[0] in choices else rng.choice(choices)
            if token == END:
                break
            assert matcher.accept(token)
            assert plain.try_consume_tokens([token]) == 1


DECLARED = {"year": NUMBER, "tag": TEXT, "東京": TEXT, 'a"b': TEXT}


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (schema_source({"type": "object", "properties": DECLARED}), '{"a: b'),
        (schema_source({"type": "object", "properties": DECLARED}), '{"year'),
        (schema_source({"type": "object", "properties": DECLARED, "required": ["year"]}), '{"year": 1, "tags'),
        (schema_source({"type": "object", "properties": {"x" * 124: NUMBER}}), '{"xxxx'),
        (schema_source({"type": "object", "properties": {"x" * 129: NUMBER}}), '{"xxxx'),
        (schema_source({"type": "object", "propertyNames": {"minLength": 2}, "properties": DECLARED}), '{"yeti'),
        (schema_source({"type": "object"}), '{"yeti'),
        (in_call("lfm2", open_object(DECLARED), Bounds()), "<|tool_call_start|>[f(a={'yeti"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_slices_of_the_vocabulary_apply_within_an_undeclared_key(source: GrammarSource, text: str) -> None:
    assert not source.searches_text
    assert min(slices_applied(source, text, num_bytes=4)) > 0


@pytest.mark.parametrize(
    "schema",
    [
        open_object({}, patternProperties={"^x": TEXT}),
        open_object({}, patternProperties={"^x": False}),
        open_object({}, propertyNames={"pattern": "^x"}),
        open_object({}, propertyNames={"format": "date"}),
        open_object({"x" * 125: TEXT}),
        open_object({"京" * 42: TEXT}),
        open_object({"abcde": TEXT}, propertyNames={"maxLength": 8}),
    ],
    ids=str,
)
def test_where_none_may_apply_masks_are_said_to_take_long(schema: dict[str, Any]) -> None:
    assert schema_source(schema).searches_text


def test_keys_of_few_characters_are_said_to_take_long_to_mask() -> None:
    """A walk over the vocabulary, as no slice has but letters and digits."""
    assert in_call("gemma4", open_object({})).searches_text
    assert not in_call("gemma4", {"type": "object", "properties": {"b": TEXT}}).searches_text
