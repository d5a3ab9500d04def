"""Free text out of JSON arguments, however they are cut and however the model wrote them."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.protocols.responses_custom import CustomInput


def streamed(pieces, whole=None):
    """What went out while the call ran, and the text in the end."""
    reader = CustomInput()
    parts = [reader.feed(piece) for piece in pieces]
    early = "".join(parts)
    rest = reader.finish("".join(pieces) if whole is None else whole)
    assert early + rest == reader.text
    return early, reader.text


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=20), st.booleans(), st.integers(1, 4))
def test_the_text_is_the_same_for_every_cut_and_streams_while_it_comes(text, is_ascii, size):
    arguments = json.dumps({"input": text}, ensure_ascii=is_ascii)
    pieces = [arguments[i : i + size] for i in range(0, len(arguments), size)]
    assert streamed(pieces) == (text, text)


def test_text_goes_out_before_the_call_ends():
    reader = CustomInput()
    assert [reader.feed(piece) for piece in ('{"inp', 'ut": "a', "\\", "n\\u00", "e9b", '", "x": 1}', "")] == [
        "",
        "a",
        "",
        "\n",
        "éb",
        "",
        "",
    ]
    assert reader.feed("more") == ""


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"note": 1, "input": "late"}', "late"),
        ('"just text"', "just text"),
        ('{"other": "x"}', '{"other": "x"}'),
        ('{"input": 5}', '{"input": 5}'),
        ("no json", "no json"),
        ("[]", "[]"),
        (" " * 300 + '{"input": "after much space"}', "after much space"),
    ],
)
def test_arguments_of_another_shape_come_at_the_end(arguments, text):
    assert streamed([arguments[:300], arguments[300:]]) == ("", text)


@pytest.mark.parametrize(
    ("cut", "text"),
    [('{"input": "ab', "ab"), ('{"input": "ab\\u00', "ab"), ('{"input": "', ""), ('{"input": "a\\ud83d', "a")],
)
def test_a_call_that_was_cut_off_has_the_text_so_far(cut, text):
    assert streamed([cut])[1] == text


def test_an_escape_that_json_does_not_have_stays_as_it_was_written():
    assert streamed(['{"input": "a\\q', '"}'])[1] == "a\\q"


def test_half_a_surrogate_pair_waits_for_the_end_and_loses_nothing():
    early, text = streamed(['{"input": "a\\ud83d', ' b"}'], '{"input": "a? b"}')
    assert (early, text) == ("a", "a? b")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"', ""),
        ('{"inp', ""),
        ('{"input"', ""),
        ('{"input": ', ""),
        ('{"input": "', ""),
        ('{"why": "a", "input": "par', "par"),
        ('{"why": "a", "in', ""),
        ("", ""),
        ("*** Begin Pa", "*** Begin Pa"),
        ('{"input": "whole"', "whole"),
    ],
)
def test_a_call_that_is_cut_has_its_text_so_far_and_nothing_of_what_stands_around_it(arguments, text):
    """Audit of 2026-11-30: one that was cut early gave its own beginning of JSON as the free text."""
    reader = CustomInput()
    early = "".join(map(reader.feed, arguments))
    assert early + reader.finish(arguments, is_cut=True) == reader.text == text
