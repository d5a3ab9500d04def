import copy
import pickle
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from headrace import (
    APIError,
    ConnectionFailed,
    ConnectionLost,
    HeadraceError,
    MaxTurnsExceeded,
    ProtocolError,
    RateLimitError,
    ServerError,
    ToolError,
)
from headrace.errors import api_error
from headrace.http_requests import answer_error


@pytest.mark.parametrize(
    "error",
    [
        HeadraceError("a", status=1, code="c", retryable=True),
        ConnectionFailed("a"),
        ConnectionLost("a", retryable=False),
        ProtocolError("a"),
        ToolError("a"),
        MaxTurnsExceeded(3, [{"role": "user"}]),
        api_error({"message": "m", "code": "c", "param": "p"}, status=429, headers={"retry-after": "2"}),
    ],
)
def test_an_error_survives_pickling_and_copying(error):
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        assert vars(twin) == vars(error)


@pytest.mark.parametrize(
    ("headers", "delay_s"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "soon"}, None),
        ({"retry-after-ms": "soon", "retry-after": "2"}, 2.0),
        ({"retry-after": format_datetime(datetime(2020, 1, 1, tzinfo=UTC), usegmt=True)}, 0.0),
    ],
)
def test_the_time_to_wait_is_read_from_the_headers(headers, delay_s):
    assert api_error({}, status=429, headers=headers).retry_after_s == delay_s


def test_a_date_to_wait_for_becomes_seconds():
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    assert 50 < api_error({}, status=429, headers={"retry-after": date}).retry_after_s <= 60


def test_the_objects_own_time_to_wait_comes_before_the_headers():
    assert api_error({"retry_after_s": 1}, status=429, headers={"retry-after": "5"}).retry_after_s == 1


@pytest.mark.parametrize(("header", "retryable"), [("true", True), ("false", False), ("perhaps", False)])
def test_the_server_may_say_itself_whether_to_retry(header, retryable):
    assert api_error({}, status=400, headers={"x-should-retry": header}).retryable is retryable


@pytest.mark.parametrize("error", [None, "text", 5, [], {}, {"message": {"a": 1}, "code": 5, "status": "x"}])
def test_any_error_object_makes_an_exception(error):
    assert type(api_error(error)) is ServerError
    assert str(api_error(error))


def test_an_error_says_what_it_is_about():
    error = api_error({"message": "must be positive", "code": "invalid_value", "param": "max_tokens"}, status=400)
    assert str(error) == "400 invalid_value: must be positive (field 'max_tokens')"


@pytest.mark.parametrize(
    "body", [b"<html>Bad Gateway</html>", b"", b"\xff\xfe", b"[1]", b'{"detail": "x"}', b"[" * 10**5]
)
def test_an_answer_without_an_error_object_is_shown_by_its_beginning(body):
    error = answer_error(502, body, {})
    assert isinstance(error, ServerError)
    assert len(error.message) <= 500
    assert error.message


def test_the_status_of_the_answer_wins_over_that_of_the_body():
    error = answer_error(429, b'{"error": {"status": 500, "message": "m"}}', {"retry-after": "3"})
    assert isinstance(error, RateLimitError)
    assert (error.status, error.retry_after_s) == (429, 3.0)


def test_a_status_of_no_class_of_its_own_is_an_api_error():
    assert type(api_error({}, status=418)) is APIError
