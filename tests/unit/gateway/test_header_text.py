import pytest

from gateway.header_text import MAX_VALUE_CHARS, header_value, warning_headers


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain; text", b"plain; text"),
        ("a\r\nset-cookie: b", rb"a\r\nset-cookie: b"),
        ("nul\0 tab\t del\x7f", rb"nul\x00 tab\t del\x7f"),
        ("é日🙂\ud800", rb"\xe9\u65e5\U0001f642\ud800"),
    ],
)
def test_header_values_are_one_line_of_printable_ascii(text, value):
    assert header_value(text) == value


@pytest.mark.parametrize("text", ["x" * 10_000_000, "日" * 5_000, "\n" * MAX_VALUE_CHARS])
def test_header_values_are_bounded(text):
    value = header_value(text)
    assert len(value) == MAX_VALUE_CHARS
    assert value.endswith(b"...")


def test_warnings_that_are_too_many_are_counted():
    warnings = tuple(f"the field number {i} is ignored" for i in range(1000))
    value = warning_headers(warnings)["x-headrace-warning"]
    named = value.split("; ")
    assert tuple(named[:-1]) == warnings[: len(named) - 1]
    assert named[-1] == f"and {1000 - len(named) + 1} more"
    assert len(value) < 1100
    assert warning_headers(()) == {}


def test_one_warning_that_is_too_long_is_cut():
    assert len(warning_headers(("x" * 5000, "y"))["x-headrace-warning"]) < 1100
