import json

import pytest

from stream_parser import repair
from stream_parser.json_text import escaped, is_number, quoted, read_scalar


@pytest.mark.parametrize("text", ["", 'say "hi"', "a\\b", "line\nnext\t\x00", "東京 🙂", "</tool_call>"])
def test_quoted_text_decodes_to_itself(text):
    assert json.loads(quoted(text)) == text
    assert quoted(text) == f'"{escaped(text)}"'


def test_a_lone_surrogate_never_gets_into_a_string():
    assert json.loads(quoted("a\ud83d")) == "a\ufffd"


@pytest.mark.parametrize("word", ["0", "-0", "12", "-1.50", "1e400", "1E+5", "98765432109876543210", "true", "null"])
def test_json_scalars_pass_as_they_are(word):
    scalar = read_scalar(word)
    assert scalar is not None
    assert (scalar.text, scalar.reason) == (word, "")


@pytest.mark.parametrize(
    ("word", "text", "reason"),
    [
        ("True", "true", repair.PYTHON_LITERAL),
        ("None", "null", repair.PYTHON_LITERAL),
        ("undefined", "null", repair.PYTHON_LITERAL),
        ("NaN", "null", repair.NOT_A_NUMBER),
        ("-Infinity", "null", repair.NOT_A_NUMBER),
        ("inf", "null", repair.NOT_A_NUMBER),
        ("+1", "1", repair.NUMBER),
        (".5", "0.5", repair.NUMBER),
        ("-.5", "-0.5", repair.NUMBER),
        ("5.", "5.0", repair.NUMBER),
        ("007", "7", repair.NUMBER),
        ("000", "0", repair.NUMBER),
        ("-01.50e3", "-1.50e3", repair.NUMBER),
        ("1_000_000", "1000000", repair.NUMBER),
        ("0x1F", "31", repair.NUMBER),
        ("-0b101", "-5", repair.NUMBER),
        ("0o17", "15", repair.NUMBER),
        ("-0x0", "0", repair.NUMBER),
    ],
)
def test_other_spellings_of_scalars_become_json(word, text, reason):
    scalar = read_scalar(word)
    assert scalar is not None
    assert (scalar.text, scalar.reason) == (text, reason)
    json.loads(scalar.text)


@pytest.mark.parametrize("word", ["", "+", "-", ".", "e5", ".e5", "1.2.3", "1-2", "12px", "Oslo", "0x", "1__0", "٣"])
def test_other_words_are_text(word):
    assert read_scalar(word) is None


def test_a_number_of_many_thousand_digits_is_read_without_conversion():
    assert read_scalar("0" + "9" * 20_000).text == "9" * 20_000
    assert read_scalar("0x" + "f" * 20_000) is None


def test_only_json_numbers_are_numbers():
    assert is_number("-1.5e3")
    assert not is_number("01")
    assert not is_number("1\n")
