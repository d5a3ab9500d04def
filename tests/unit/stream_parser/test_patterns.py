"""Patterns: what matches, what may still match, and where to look for it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_parser import patterns as pat
from stream_parser.patterns import MAX_NAME, MAX_SPACE, Pattern

FIELDS = {
    "name": "get_weather-2.x",
    "word": "brave_search",
    "id": "functions.look:3",
    "skip": "any words, 1",
    "index": "12",
    "key": "two words",
    "type": "list[str], str | int",
    "suffix": ":v2",
    "ws": "\n \\n",
}
# What may stand behind any field: no field's characters contain it.
LITERALS = ["<", ">", "<call>", "<|sep|>", "</arg_key>", "<a=", "<\n", ">\\"]


def full(pattern: Pattern, text: str) -> bool:
    """`pattern` matches all of `text`."""
    return re.fullmatch(pattern.full, text) is not None


def waits(pattern: Pattern, text: str) -> bool:
    """`text` may become a match."""
    return re.match(pattern.partial, text) is not None


def proper_prefixes(text: str) -> list[str]:
    return [text[:end] for end in range(len(text))]


def parts() -> st.SearchStrategy[list[tuple[str, str]]]:
    """A template as (template, text that it matches) pairs, in which literals part the fields."""
    field = st.sampled_from(sorted(FIELDS)).map(lambda f: (f"{{{f}}}", FIELDS[f]))
    literal = st.sampled_from(LITERALS).map(lambda text: (text, text))
    unit = st.tuples(literal, field).map(list) | literal.map(lambda pair: [pair])
    return st.lists(unit, min_size=1, max_size=4).map(lambda units: [pair for unit in units for pair in unit])


def compiles_once(source: str) -> bool:
    """No field occurs twice; groups of one expression have different names."""
    fields = [f.replace("word", "name") for f in re.findall(r"\{(\w+)\}", source) if f not in ("ws", "suffix")]
    return len(fields) == len(set(fields))


@given(parts(), st.booleans())
def test_partial_matches_exactly_the_beginnings_of_what_full_matches(
    pairs: list[tuple[str, str]], lenient: bool
) -> None:
    source, text = "".join(p[0] for p in pairs), "".join(p[1] for p in pairs)
    if not compiles_once(source):
        source, text = "<call>{name}>", "<call>ping>"
    pattern = pat.template(source, lenient=lenient)
    assert full(pattern, text)
    assert [prefix for prefix in proper_prefixes(text) if not waits(pattern, prefix)] == []
    for end in range(1, len(text)):
        # Between two literals no field and blanks hold all three of these: what goes on like that is something else.
        assert not waits(pattern, text[:end] + '"\n"'), end


@given(parts())
def test_the_trigger_finds_a_match_from_its_first_characters_on(pairs: list[tuple[str, str]]) -> None:
    source, text = "".join(p[0] for p in pairs), "".join(p[1] for p in pairs)
    trigger = pat.trigger_regex(pat.marker(source).heads)
    if not any(f"{{{field}}}" in source for field in FIELDS if field not in ("ws", "suffix")):
        for end in range(1, len(text) + 1):
            assert trigger.match(text[:end]), end


@pytest.mark.parametrize(
    ("pattern", "matches", "waiting", "neither"),
    [
        (pat.lit("<a>"), ["<a>"], ["", "<", "<a"], ["a", "<b", "<a ", " <a>"]),
        (pat.lit("x"), ["x"], [""], ["y", "xx"]),
        (pat.lit("a.b"), ["a.b"], ["a."], ["axb", "ax"]),
        (pat.space(), ["", " \n\t", "\\n \\n", " " * MAX_SPACE], ["", " ", "\\"], ["a", " a", "\\t", " " * 65]),
        (pat.newlines(2), ["", "\n", "\n\n"], ["", "\n"], [" ", "\n\n\n"]),
        (pat.optional(pat.lit("ab")), ["", "ab"], ["", "a"], ["b", "aa"]),
        (pat.one_of_chars("\"'"), ["", '"', "'"], [""], ["a", "''"]),
        (pat.either(pat.lit("abc"), pat.lit("abd")), ["abc", "abd"], ["a", "ab"], ["b", "abe"]),
        (pat.either(pat.lit("ab")), ["ab"], ["a"], ["b"]),
        (pat.capture("name", r"\w", 3), ["a", "abc"], ["", "ab", "abc"], ["-", "abcd"]),
        (pat.sequence(pat.lit("a")), ["a"], [""], ["b"]),
        (pat.sequence(pat.lit("a"), pat.space(), pat.lit("b")), ["ab", "a b", "a\\nb"], ["a", "a ", "a\\"], ["a c"]),
        (pat.marker("<t{suffix}>"), ["<t>", "<t:v1>", "<t:a.b-c>"], ["<t", "<t:", "<t:v"], ["<t:!", "<t v>"]),
        (pat.marker("<a{ws}b>"), ["<ab>", "<a \nb>"], ["<a", "<a ", "<ab"], ["<ac"]),
        (pat.template("<a> <b>"), ["<a><b>", "<a>\n<b>"], ["<a>", "<a> <"], ["<a>x"]),
        (pat.template("f({name}"), ["f(x"], ["f", "f(", "f(x"], ["f()"]),
        (pat.template("a{b"), ["a{b"], ["a", "a{"], ["ab"]),
        (pat.template("[{key}] "), ["[a b]", "[a] "], ["[", "[a", "[a]"], ["[]", "[a]]"]),
        (pat.template("f:{id}/{name}"), ["f:a:1/b"], ["f:a", "f:a/", "f:a/b"], ["f:a|", "f:/b"]),
        (pat.template('<f="{name}">'), ['<f="x">'], ['<f="'], ["<f=x>", "<f='x'>", '< f="x">']),
        (
            pat.template('<f="{name}">', lenient=True),
            ['<f="x">', "<f='x'>", "<f=x>", "< f = x >"],
            ["<", "< f", "<f ", '<f="', '<f="x', '<f="x"'],
            ["<g", "<f x"],
        ),
        (pat.template('<f "{name}">', lenient=True), ['<f "x">', "<f x>", "<f'x'>"], ["<f "], ["< f", "<f x >"]),
        (pat.template('("{name}")', lenient=True), ["('x')"], ["('x"], ["[x]"]),
        (pat.tag_start('<f="{name}">'), ["<f", "< f"], ["<", "< "], ["f", "<g"]),
        (pat.tag_start("<f {name}>"), ["<f"], ["<"], ["< f", "<g"]),
        (pat.tag_start('<{name} n="1">'), ["<"], [""], ["f"]),
        (pat.tag_start("key={key}>"), ["key"], ["ke"], ["=", "<key"]),
    ],
)
def test_text_matches_waits_or_neither(
    pattern: Pattern, matches: list[str], waiting: list[str], neither: list[str]
) -> None:
    assert [text for text in matches if not full(pattern, text)] == []
    assert [text for text in waiting if not waits(pattern, text)] == []
    assert [text for text in neither if full(pattern, text) or waits(pattern, text)] == []


def test_a_name_takes_all_its_characters_and_no_more_than_its_limit() -> None:
    pattern = pat.sequence(pat.capture("name", pat.NAME_CHARS), pat.lit(">"))
    found = re.match(pattern.full, "a" * MAX_NAME + ">")
    assert found is not None
    assert found["name"] == "a" * MAX_NAME
    assert re.match(pattern.full, "a" * (MAX_NAME + 1) + ">") is None
    assert not waits(pattern, "a" * (MAX_NAME + 1))


def test_the_first_of_alternatives_that_matches_wins() -> None:
    found = re.match(pat.either(pat.lit("abc"), pat.lit("ab")).full, "abc")
    assert found is not None
    assert found[0] == "abc"


def test_what_is_ahead_is_seen_and_not_consumed() -> None:
    chars = pat.sequence(pat.lit("a"), pat.ahead("[{"))
    assert re.match(chars.full, "a{").group() == "a"  # type: ignore[union-attr]
    assert re.match(chars.full, "a(") is None
    assert waits(chars, "a")
    assert not waits(chars, "a(")

    marker = pat.sequence(pat.lit("a"), pat.ahead_of(pat.lit("<b>")))
    assert re.match(marker.full, "a<b>").group() == "a"  # type: ignore[union-attr]
    assert waits(marker, "a<b")
    assert not waits(marker, "a<c")

    other = pat.sequence(pat.lit("a"), pat.ahead_negative(r"[{\s]"))
    assert re.match(other.full, "ab").group() == "a"  # type: ignore[union-attr]
    assert re.match(other.full, "a{") is None
    assert re.match(other.full, "a") is None
    assert waits(other, "a")


@pytest.mark.parametrize(
    ("pattern", "heads", "nullable"),
    [
        (pat.lit("<a>"), {"<a"}, False),
        (pat.lit("x"), {"x"}, False),
        (pat.space(), set(), True),
        (pat.newlines(1), {"\n"}, True),
        (pat.one_of_chars("\"'"), {'"', "'"}, True),
        (pat.ahead("[{"), {"[", "{"}, False),
        (pat.ahead_of(pat.lit("ab")), {"ab"}, False),
        (pat.ahead_negative("x"), set(), True),
        (pat.capture("name", r"\w"), {""}, False),
        (pat.either(pat.lit("ab"), pat.lit("cd")), {"ab", "cd"}, False),
        (pat.either(pat.lit("ab"), pat.space()), {"ab"}, True),
        (pat.sequence(pat.optional(pat.lit("ab")), pat.space(), pat.lit("cd"), pat.lit("ef")), {"ab", "cd"}, False),
        (pat.sequence(pat.space(), pat.newlines(1)), {"\n"}, True),
    ],
)
def test_heads_are_the_first_characters_up_to_what_must_be_there(
    pattern: Pattern, heads: set[str], nullable: bool
) -> None:
    assert pattern.heads == heads
    assert pattern.nullable == nullable


@pytest.mark.parametrize(
    ("heads", "text", "at"),
    [
        ({"<a", "<b"}, "x<c <b", 4),
        ({"<a", "<b"}, "x <", 2),
        ({"<a", "<"}, "x<c", 1),
        ({"<a", "[T"}, "a[T<a", 1),
        ({"x", "]<"}, "] ]<x", 2),
        ({"<\\", "<]"}, "<a<]", 2),
        ({""}, " \n a", 3),
        (set(), "anything", -1),
        ({"<a"}, "nothing", -1),
    ],
)
def test_the_trigger_finds_the_next_place_to_look_at(heads: set[str], text: str, at: int) -> None:
    found = pat.trigger_regex(frozenset(heads)).search(text)
    assert (found.start() if found else -1) == at


@pytest.mark.parametrize(
    ("template", "literal"),
    [
        ("<function={name}>", "<function"),
        ("<tool: {skip}>", "<tool:"),
        ('<f "{name}">', "<f"),
        ("{name}<sep>", ""),
        ("<t{suffix}>{name}", "<t{suffix}>"),
        ("<a{ws}b>{id}", "<a{ws}b>"),
        ("call", "call"),
    ],
)
def test_the_first_literal_ends_at_the_first_field_blank_or_quote(template: str, literal: str) -> None:
    assert pat.first_literal(template) == literal


def test_a_plain_marker_is_one_without_what_varies() -> None:
    assert pat.plain("<|open|>{ws}think{suffix}>") == "<|open|>think>"
    assert pat.plain("<think>") == "<think>"
