"""Patterns are of texts, and grammars are of how a notation spells them: both must say the same of every text."""

import json
import random
import re
import warnings
from itertools import product

import pytest

from inference.grammar.notations import PYTHON, json_notation
from inference.grammar.policy import Bounds, Tool
from inference.grammar.spelled_patterns import bounded_pattern, num_endless, spelled_pattern
from inference.grammar.text_patterns import whole_pattern
from inference.grammar.text_sets import text_set
from stream_parser.dialects import DIALECTS
from tests.testkit.grammar_kit import random_walk, takes_value
from tests.testkit.grammar_walks import source_for

PATTERNS = [
    '^[^"]*$', '^"[^"]*"$', r"^[^\\]*$", r"^\\$", r'^[^"\\]+$', "^.*$", "^.$", r"^\S+$", r"\S", r"\s", r"^[\s\S]{2}$",
    r"^\w+$", r"[^\W]", r"[\D]", r"^[^a]*$", "a|\"", r"^\n", r"[\x00-\x1f]", r"^[ab\"]+$", r"\t$", "^(?:a|\\\\|\")*$",
    r"^[^\s]+$", "[[]", r"^[a&&b\"]*$", r"^\{[^{}]*\}$", "^é?[^é]$", "/", r"^[\]\"]*$",
    "^[a||b]$", r"^[^[]$", "^[~~a]$",
]  # fmt: skip
ALPHABET = 'ab"\\\n\t\x01é/ [&{}]'
TEXTS = ["".join(chars) for size in range(3) for chars in product(ALPHABET, repeat=size)]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_says_the_same_of_a_text_and_of_its_spelling(pattern: str) -> None:
    with warnings.catch_warnings(action="ignore"):  # Python may one day read `[[` and `&&` as Rust does
        expression = re.compile(pattern.replace("$", r"\Z"), re.ASCII)
    whole = whole_pattern(pattern)
    spellings = [json_notation(compact=True).quotes[0].spelling, PYTHON.quotes[0].spelling]
    in_json, in_python = (text_set(spelled_pattern(whole, one), f"{one.char}*") for one in spellings)
    for text in TEXTS:
        fits = expression.search(text) is not None
        assert (text in text_set(whole)) == fits, text
        assert (json.dumps(text, ensure_ascii=False)[1:-1] in in_json) == fits, text
        escaped = text.translate({ord(char): repr(char)[1:-1] for char in "\\\n\t\x01"}).replace("'", "\\'")
        assert (escaped in in_python) == fits, text


@pytest.mark.parametrize(
    ("pattern", "text", "fits"), [('^[^"]*$', 'a"', False), ('^"[^"]*"$', '"a"', True), ('^"[^"]*"$', '"a""', False)]
)
def test_a_quote_that_a_pattern_rules_out_is_not_written_as_an_escape(pattern: str, text: str, fits: bool) -> None:
    assert takes_value({"type": "string", "pattern": pattern}, text) is fits


@pytest.mark.parametrize(
    ("pattern", "bounded", "num"),
    [
        ("^a+b*$", "a{1,9}b{0,9}", 2),
        ("^a{2,}$", "a{2,9}", 1),
        ("^a{12,}$", "a{12,12}", 1),
        (r"^[+*]\+\*{2}x?$", r"[+*]\+\*{2}x?", 0),
        ("^(?:a+)*$", "(?:a{1,9}){0,9}", 2),
    ],
)
def test_what_repeats_without_an_end_gets_one(pattern: str, bounded: str, num: int) -> None:
    expression = whole_pattern(pattern)
    assert bounded_pattern(expression, 9) == f"(?:(?:{bounded}))"
    assert num_endless(expression) == num


@pytest.mark.parametrize("pattern", ["^[a-z]+$", "o", r"^\w+\.\w+$", '^"[^"]*"$'])
def test_a_string_of_a_pattern_ends_at_the_bound_of_strings(pattern: str) -> None:
    text = {"o": "o" * 7, r"^\w+\.\w+$": "abcd.efg", '^"[^"]*"$': '"' + "x" * 20 + '"'}.get(pattern, "abcdefg")
    schema = {"type": "string", "pattern": pattern}
    assert takes_value(schema, text)
    assert not takes_value(schema, text, Bounds(string_chars=5))


@pytest.mark.parametrize("name", ["hermes", "qwen3_coder", "gemma4", "pythonic"])
def test_a_bound_of_our_own_makes_no_format_impossible(name: str) -> None:
    schema = {"type": "object", "properties": {"id": {"type": "string", "format": "uuid"}}, "required": ["id"]}
    source = source_for(DIALECTS[name], (Tool("f", schema),), Bounds(string_chars=20))
    assert "f" in random_walk(source, random.Random(1))
