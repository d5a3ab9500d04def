import pytest

from gateway.errors import InvalidRequest
from gateway.protocols.json_body import MAX_DEPTH, parse_object


def test_an_object_is_given_back():
    assert parse_object(b'{"a": [1, {"b": null}]}') == {"a": [1, {"b": None}]}


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"nope",
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": 1e999}',
        b'{"a": "\xff\xfe"}',
        b'{"a": "\\ud800"}',
        b'{"a": 1} x',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"\x00\x01",
    ],
    ids=lambda raw: repr(raw[:20]),
)
def test_what_is_not_json_is_refused(raw):
    with pytest.raises(InvalidRequest, match="not valid JSON") as caught:
        parse_object(raw)
    assert caught.value.code == "invalid_json"


@pytest.mark.parametrize(
    ("raw", "got"), [(b"[]", "an array"), (b'"a"', "a string"), (b"null", "null"), (b"1", "an int")]
)
def test_what_is_no_object_is_refused(raw, got):
    with pytest.raises(InvalidRequest, match=got):
        parse_object(raw)


def nested(depth: int) -> bytes:
    return b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


def test_nesting_is_taken_up_to_the_limit():
    parse_object(nested(MAX_DEPTH))
    with pytest.raises(InvalidRequest, match="nested"):
        parse_object(nested(MAX_DEPTH + 1))
