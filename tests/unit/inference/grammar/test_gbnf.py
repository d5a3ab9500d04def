"""GBNF means characters: what llama.cpp takes under a grammar is taken here, and nothing else is."""

from __future__ import annotations

import pytest

from inference.grammar.build import build_grammar
from inference.grammar.errors import GrammarError
from inference.grammar.gbnf import GbnfError, gbnf_to_lark, is_gbnf
from inference.grammar.policy import CallPolicy, TextGrammar
from inference.grammar.source import GrammarSource
from stream_parser.dialects import DIALECTS
from tests.testkit.grammar_kit import SPECIAL_TOKENS, compiler, takes


def source(text: str) -> GrammarSource:
    found = build_grammar(
        DIALECTS["plain"], CallPolicy(), TextGrammar(text), max_reasoning_tokens=0, special_tokens=SPECIAL_TOKENS
    )
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("grammar", "right", "wrong"),
    [
        # A shorter way is open although a longer one begins alike.
        ('root ::= "SELECT" | [A-Z]+', ["SELECT", "SELECTED", "SELEC", "SEX"], ["", "x"]),
        ('root ::= word "b"\nword ::= [a-z]+', ["ab", "abb"], ["b", "a"]),
        ('root ::= part "c"\npart ::= "ab" | "abcd"', ["abc", "abcdc"], ["ab", "abcd"]),
        # Names that differ in case, or in their signs alone.
        ('fooBar ::= "a"\nfoo_bar ::= "b"\nfoo-bar ::= "c"\nroot ::= fooBar foo_bar foo-bar', ["abc"], ["abb"]),
        # Escapes.
        (r'root ::= "\u00e9" "\x41" [\u00e8-\u00ea]', ["éAè", "éAê"], ["éAë", "eAè"]),
        (r'root ::= "\U0001F642" "\"\\" "\n"', ['🙂"\\\n'], ['🙂"\\n']),
        (r"root ::= [a-] [\-+] [\]\[] [\^x] [&&~~/]", ["--]^/", "a+[x&"], ["b+[x&"]),
        (r"root ::= [^\"\\]", ["é", "\n"], ['"', "\\", "ab"]),
        ("root ::= [^] .", ["é\n"], ["é"]),
        # Repetition, groups, nothing.
        ('root ::= "ab" {2} | "c"{1,} | "d"{ 0, 2 }', ["abab", "ccc", "", "dd"], ["ab", "abb", "ddd"]),
        ('root ::= ("a" | ) ( | "b") "" "c"?', ["", "abc", "b"], ["ba"]),
        # Line breaks, and what looks like a rule.
        ('root  ::=\n  "a"   # ::= "x"\n  | "::="\r\n  | "b"\n    rest\nrest ::= "c"', ["a", "::=", "bc"], ["b", "c"]),
        ('root ::= "x" root | "y"', ["y", "xxy"], ["xx"]),
        ('root ::= root "x" | "y"', ["y", "yxx"], ["xx"]),
    ],
)
def test_a_text_is_taken_if_the_grammar_derives_it(grammar: str, right: list[str], wrong: list[str]) -> None:
    found = source(grammar)
    compiler().check(found)
    assert [text for text in right if not takes(found, text)] == []
    assert [text for text in wrong if takes(found, text)] == []


@pytest.mark.parametrize(
    ("grammar", "message"),
    [
        ('root ::= "a" | foo', "line 1: there is no rule 'foo'"),
        ('start ::= "a"', "no rule 'root'"),
        ('root ::= "a"\n\nroot ::= "b"', "line 3: rule 'root' stands here a second time"),
        ('"a"\nroot ::= "a"', "line 1: '\"a\"' stands before the first rule"),
        ('root ::= "a\\', "line 1"),
        ('root ::= "a', "line 1"),
        ("root ::= [a", "line 1"),
        ("root ::= a\na ::= 'x'", "line 2"),
        ("root ::= ((", "not closed"),
        ('root ::= ("a"\nb ::= "c")', "line 2: a group before is not closed"),
        ('root ::= "a")', "closes no group"),
        ("root ::= " + "(" * 65, "more than 64 groups"),
        ('root ::= | * "a"', "repeat"),
        ("root ::= ({3})", "repeat"),
        ("root ::= []", "no character"),
        ("root ::= [z-a]", "ends before it begins"),
        (r'root ::= "\q"', "no escape"),
        (r'root ::= "\u12"', "no escape"),
        (r'root ::= "\uD800"', "is no character"),
        (r"root ::= [\U00110000]", "is no character"),
    ],
)
def test_what_is_wrong_with_a_grammar_is_said(grammar: str, message: str) -> None:
    with pytest.raises(GbnfError) as caught:
        gbnf_to_lark(grammar)
    assert message in str(caught.value)
    with pytest.raises(GrammarError) as refused:
        source(grammar)
    assert refused.value.path == "structured_outputs.grammar"
    assert message in str(refused.value)


def test_a_special_token_that_a_grammar_spells_is_written_as_text() -> None:
    matcher = compiler().matcher(source('root ::= "<|call|>" "."'))
    assert SPECIAL_TOKENS["<|call|>"] not in matcher.forced()
    assert takes(source('root ::= "<" "|" "x"'), "<|x")


@pytest.mark.parametrize(
    ("grammar", "found"),
    [('root ::= "a"', True), ("root\n  ::= [a]", True), ('start: "x ::= y"', False)],
)
def test_gbnf_is_known_by_its_definition_sign(grammar: str, found: bool) -> None:
    assert is_gbnf(grammar) is found


@pytest.mark.parametrize("grammar", ['?start: n ("+" n)*\nn: /[0-9]+/', ' start : "1" "+" "2"'])
def test_larks_modifiers_of_the_first_rule_leave_it_lark(grammar: str) -> None:
    assert takes(source(grammar), "1+2")


@pytest.mark.parametrize("grammar", ["hello", 'root: "a"', '<root> = "a"'])
def test_a_grammar_of_neither_notation_is_refused(grammar: str) -> None:
    with pytest.raises(GrammarError, match="neither Lark"):
        source(grammar)
