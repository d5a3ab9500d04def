"""Text without markers, as a regex of character classes: it takes nothing that holds a marker, and little less."""

from __future__ import annotations

import random
import re

import pytest

from inference.grammar.build import build_grammar
from inference.grammar.policy import CallPolicy, Tool
from inference.grammar.raw_text import without
from inference.grammar.special_tokens import special_tokens_of
from inference.grammar.text_patterns import anchored_pattern, pattern_fault, whole_pattern
from stream_parser import DIALECTS
from tests.testkit.grammar_kit import SMALL_BOUNDS, SPECIAL_TOKENS, small_kit

SETS = [
    ["</parameter>", "<parameter=", "</function>", "</tool_call>"],
    ["<escape>"],
    ['<|"|>'],
    ["</｜DSML｜parameter>", "<｜DSML｜parameter"],
    ["]<]minimax[>[", "[e~["],
    ["Action:", "Final Answer:"],
    ["ab", "abc", "b"],
    ["x"],
    [],
]
BOUNDS = [(0, 1), (0, 3), (1, 9), (3, 5), (9, 9)]
PIECES = ["a", " ", "\n", "<", "</", "]", "[", "b", "x", "Action", "é", "</p>", "<b>", "/", "|", '"']


@pytest.mark.parametrize("markers", SETS, ids=str)
def test_no_text_that_is_taken_holds_a_marker(markers: list[str]) -> None:
    marked, rng = without(markers), random.Random(5)
    regex, plain = re.compile(marked.text(0, 60)), re.compile(marked.plain_text(60))
    num_taken = num_free = 0
    for _ in range(400):
        parts = PIECES + [m[:cut] for m in markers for cut in (len(m), len(m) - 1, max(len(m) // 2, 1))]
        text = "".join(rng.choices(parts, k=rng.randint(0, 6)))
        holds = any(marker in text for marker in markers)
        taken = regex.fullmatch(text) is not None
        assert not (holds and taken), text
        assert not (holds and plain.fullmatch(text)), text
        num_free += not holds
        num_taken += taken
    assert num_taken > num_free // 4


def test_usual_text_is_taken() -> None:
    regex = re.compile(without(SETS[0]).text(0, 500))
    for text in ("", "a < b", "<p>hi</p>", "x <<= 3 << 1", "</", "<<<<<<< HEAD", "if (a </b/) {}", "<a x='y'>\n</a>"):
        assert regex.fullmatch(text), text


@pytest.mark.parametrize("markers", SETS[:4], ids=str)
def test_plain_text_is_no_other_value(markers: list[str]) -> None:
    regex = re.compile(without(markers).plain_text(40))
    for text in ("Oslo", "", "t", "tru", "nul", "truest", "true story", "no", "New York", "infinite", "é", "inf."):
        assert regex.fullmatch(text), text
    others = ["true", "False", "null ", "None", "NaN", "1", "-2", ".5", "[1]", "{", '"x"', "'x'", " x", "Infinity"]
    others += ["\u3000true", "\x1cnull", "true\x85", "None \x1f"]  # blanks as well
    for text in others:
        assert not regex.fullmatch(text), text


@pytest.mark.parametrize("markers", SETS, ids=str)
def test_simple_text_is_text_of_the_right_length_and_most_of_it(markers: list[str]) -> None:
    marked, rng = without(markers), random.Random(3)
    kinds = [([], re.compile(marked.text(0, 9))), (marked.plain_starts(), re.compile(marked.plain_text(9)))]
    pieces = [*PIECES, "T", "tr", "In", "no", "é é"]
    for starts, text in kinds:
        simple = {(low, high): re.compile(marked.simple_text(starts, low, high)) for low, high in BOUNDS}
        num_simple = num_free = 0
        for _ in range(400):
            written = "".join(rng.choices(pieces, k=rng.randint(0, 6)))
            is_free = not set(written) & marked.heads and text.fullmatch(written) is not None
            for (low, high), regex in simple.items():
                fits = is_free and max(low, 1) <= len(written) <= high
                is_simple = regex.fullmatch(written) is not None
                assert fits or not is_simple, (written, low, high)
                num_free += fits
                num_simple += is_simple
        assert num_free >= num_simple > num_free * (1 if not starts else 0.9) - 1


def test_where_no_text_is_long_enough_there_is_no_simple_one() -> None:
    marked = without(SETS[0])
    assert marked.simple_text([], 0, 0) == ""
    assert marked.simple_text([("ab", 2)], 0, 2) == "ab[^<]{0,0}"
    assert marked.simple_text([("ab", 2)], 0, 1) == ""


@pytest.mark.parametrize(
    ("pattern", "right", "wrong"),
    [
        ("^a", "ab", "ba"),
        ("a$", "ba", "ab"),
        ("a|^b$", "xax", "xb"),
        (r"\$", "a$b", "ab"),
        (r"a\\$", "a\\", "a\\b"),
        ("[$^]", "^", "a"),
        (r"\u0041\x42", "AB", "ab"),
        ("^(a|b)+$", "abba", "abc"),
        ("[|]", "|", "a"),
    ],
)
def test_a_pattern_is_searched_for_within_the_whole_text(pattern: str, right: str, wrong: str) -> None:
    assert pattern_fault(pattern) == ""
    # Python writes code points in braces another way.
    regex = re.compile(re.sub(r"\\x\{(\w+)\}", lambda m: re.escape(chr(int(m[1], 16))), whole_pattern(pattern)))
    assert regex.fullmatch(right)
    assert not regex.fullmatch(wrong)


def test_an_anchored_pattern_is_the_whole_text() -> None:
    assert re.fullmatch(anchored_pattern("a|^b$"), "b")
    assert not re.fullmatch(anchored_pattern("a"), "ab")


def test_markers_are_special_tokens_and_those_in_angle_brackets() -> None:
    text = """{"added_tokens": [
        {"id": 1, "content": "<tool_call>", "special": false}, {"id": 2, "content": "[INST]", "special": true},
        {"id": 3, "content": "[X]", "special": false}, {"id": 4, "content": "<open", "special": false}]}"""
    assert special_tokens_of(text) == {"<tool_call>": 1, "[INST]": 2}
    assert special_tokens_of("{}") == {}


@pytest.mark.parametrize("pattern", ["^[a-z]+$", "a$", "[0-9]{3}$", "^[^<]*$", "^.{3,30}$"])
def test_a_text_with_a_pattern_that_a_token_ends_may_be_as_long_as_its_bound(pattern: str) -> None:
    """There the library used to break: it did not see that nothing more could come."""
    value = {"type": "string", "pattern": pattern}
    schema = {"type": "object", "properties": {"s": value}, "required": ["s"], "additionalProperties": False}
    policy = CallPolicy("required", (Tool("run", schema, strict=True),))
    source = build_grammar(
        DIALECTS["kimi_k3"], policy, special_tokens=SPECIAL_TOKENS, bounds=SMALL_BOUNDS, max_reasoning_tokens=0
    )
    assert source is not None
    for seed in range(3):
        written = small_kit().random_walk(source, random.Random(seed))
        assert 'argument key="s" type="string"<|sep|>' in written
