"""Classes in Rust's spelling: what characters they hold is shown by fixtures/json_schema/string.json."""

from __future__ import annotations

import pytest

from inference.grammar.char_classes import ATOM, rust_atom
from inference.grammar.text_patterns import pattern_fault
from inference.grammar.text_sets import text_set


@pytest.mark.parametrize(
    ("pattern", "atoms"),
    [
        (r"a\.[b\]c]+.\\[^]", [r"\.", r"[b\]c]", ".", r"\\", "[^]"]),
        (r"\x41\u00e9\u{1F600}\cA\p{Lu}\q", [r"\x41", r"\u00e9", r"\u{1F600}", r"\cA", r"\p{Lu}", r"\q"]),
    ],
)
def test_what_stands_for_one_character_is_found(pattern: str, atoms: list[str]) -> None:
    assert [found[0] for found in ATOM.finditer(pattern)] == atoms


@pytest.mark.parametrize(
    ("atom", "inside", "outside"),
    [
        (".", "é\u2028", "\n"),
        (r"\u00e9", "é", "e"),
        (r"\u{1F642}", "🙂", "?"),
        (r"\x41", "A", "x"),
        (r"\cJ", "\n", "J"),
        (r"\0", "\0", "0"),
        (r"[\b]", "\b", "b"),
        (r"[\x41-\x43\u0061-\u{63}]", "ABCabc", "Dd-"),
        (r"[a-c-e]", "ab-e", "d"),
        (r"[-a]", "-a", "b"),
        (r"[\]\[\\^-]", "][\\^-", "a"),
        (r"[\d-x]", "5-x", "ax"[:1]),
        (r"[^\W]", "a_9", "é!"),
        (r"[^\D]", "9", "a٣"),
        (r"[^\S]", " \t", "a\x1c\ufeff"),
        (r"[\p{Lu}\-]", "Ä-", "ä"),
        (r"[^\s\S]", "", "a"),
    ],
)
def test_an_atom_holds_its_characters_and_no_others(atom: str, inside: str, outside: str) -> None:
    held = text_set(rust_atom(atom))
    assert not held.fault
    assert [char for char in inside if char not in held] == []
    assert [char for char in outside if char in held] == []


@pytest.mark.parametrize("pattern", ["[]a]", "[^]a]", "x[]]"])
def test_a_class_of_which_readers_think_differently_is_a_fault(pattern: str) -> None:
    assert "readers take differently" in pattern_fault(pattern)
