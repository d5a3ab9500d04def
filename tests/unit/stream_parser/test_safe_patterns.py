import time

import pytest

from stream_parser.safe_patterns import MAX_SUBJECT, safe_search


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r"^\d{4}-\d{2}-\d{2}$", "2026-01-15", "tomorrow"),
        (r"^[a-z][a-z0-9_-]*$", "my_tool-2", "My tool"),
        (r"^[^@\s]+@[^@\s]+\.[a-z]+$", "a@b.org", "a at b"),
        (r"^(red|green|blue)$", "red", "pink"),
        (r"^(?:https?://)?[\w.]+$", "https://a.b", "a b"),
        (r"^#(?P<hex>[0-9a-f]{6})$", "#00ff99", "#xyz"),
        (r"^(ab)+$", "abab", "aba"),
        (r"^(\d+)?$", "12", "x"),
        (r"^[]()*+]+$", "(]*", "x"),
        (r"\(\d\)\*", "(1)*", "1"),
        (r"(?i)^yes$", "YES", "no"),
        (r"^[[a]$", "[", "b"),
    ],
)
def test_common_patterns_are_enforced(pattern, good, bad):
    assert safe_search(pattern, good)
    assert not safe_search(pattern, bad)


@pytest.mark.parametrize(
    "pattern",
    [
        r"(a+)+$",
        r"(a|aa)+$",
        r"(a?){50}a{50}$",
        r"((a+)x?)*$",
        r"((ab)*c)*$",
        r"(?:(?:a|b)c)*$",
        r"(.*a){20}",
        r"a*a*a*a*a*a*b",
        r"a{1,}a{0,90}a+a*$",
        r"(a)\1*",
        r"(?P<x>a)(?P=x)",
        r"(?=a+)+b",
        r"(?<!a)b",
        "x" * 300,
        "(unclosed",
        "[unclosed",
        "a{99999999999}",
        "*",
    ],
)
def test_a_pattern_that_may_take_long_or_is_none_is_not_enforced_and_costs_nothing(pattern):
    start = time.process_time()
    assert safe_search(pattern, "a" * 60 + "!")
    assert time.process_time() - start < 0.5


def test_the_longest_text_that_is_tried_takes_no_long_time():
    start = time.process_time()
    safe_search(r"^a*a*a*$", "a" * (MAX_SUBJECT - 1) + "!")
    assert time.process_time() - start < 2


def test_longer_text_is_not_tried():
    assert safe_search("^x$", "y" * (MAX_SUBJECT + 1))
