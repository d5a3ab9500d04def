import pytest
from starlette.datastructures import Headers

from gateway.auth import Authenticator, check_origin, key_owner
from gateway.errors import InvalidApiKey, OriginRefused


def test_without_keys_everyone_passes():
    Authenticator(()).check(Headers({}))


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer two"},
        {"authorization": "bearer one"},
        {"authorization": "Bearer   one "},
        {"x-api-key": "one"},
        {"authorization": "Basic abc", "x-api-key": "two"},
    ],
)
def test_any_of_the_keys_opens_in_either_header(headers):
    Authenticator(("one", "two")).check(Headers(headers))


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": "Bearer"},
        {"authorization": "Bearer "},
        {"authorization": "Bearer on"},
        {"authorization": "Bearer onee"},
        {"authorization": "Bearer ONE"},
        {"authorization": "one"},
        {"authorization": "Basic one"},
        {"authorization": "Bearer \xff\xfe"},
        {"x-api-key": "three"},
    ],
)
def test_everything_else_is_refused_with_openais_code(headers):
    with pytest.raises(InvalidApiKey) as caught:
        Authenticator(("one", "two")).check(Headers(headers))
    assert (caught.value.status, caught.value.code) == (401, "invalid_api_key")


def test_a_key_may_have_any_characters():
    Authenticator(("schlüssel",)).check(Headers(raw=[(b"authorization", "Bearer schlüssel".encode())]))


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [(None, ()), ("http://127.0.0.1:8000", ()), ("https://chat.example", ("https://chat.example",)), ("null", ("*",))],
)
def test_programs_our_own_pages_and_allowed_origins_pass(origin, allowed):
    headers = {"host": "127.0.0.1:8000"} | ({"origin": origin} if origin else {})
    check_origin(Headers(headers), allowed)


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:9999", ""])
def test_pages_from_elsewhere_are_refused_and_told_how_to_be_allowed(origin):
    with pytest.raises(OriginRefused, match="--allow-origin"):
        check_origin(Headers({"host": "127.0.0.1:8000", "origin": origin}), ("https://chat.example",))


def test_what_a_request_leaves_behind_belongs_to_its_key_however_it_was_sent():
    as_bearer, as_key = Headers({"authorization": "Bearer k"}), Headers({"x-api-key": "k"})
    assert key_owner(as_bearer) == key_owner(as_key) != key_owner(Headers({"x-api-key": "other"}))
    assert key_owner(Headers({})) == ""
    assert "k" not in (key_owner(as_key), key_owner(as_bearer))
