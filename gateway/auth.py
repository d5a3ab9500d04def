"""Who may use the server: bearer keys, compared in constant time, and web origins."""

from __future__ import annotations

import hashlib
import hmac
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from gateway.errors import InvalidApiKey, OriginRefused


class Authenticator:
    """Without keys everyone passes. A key comes as `Authorization: Bearer KEY`, or as `x-api-key` (Anthropic)."""

    def __init__(self, api_keys: tuple[str, ...]) -> None:
        self._keys = tuple(key.encode() for key in api_keys)

    def check(self, headers: Headers) -> None:
        """Raises InvalidApiKey."""
        if not self._keys:
            return
        given = _given_key(headers)
        if given is None:
            raise InvalidApiKey("This server needs an API key: send it as 'Authorization: Bearer KEY'.")
        # Each key is compared, so that the time says nothing about which one came close.
        matches = [hmac.compare_digest(given, key) for key in self._keys]
        if not any(matches):
            raise InvalidApiKey("The API key is not one of this server's keys.")


def _given_key(headers: Headers) -> bytes | None:
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        return key.strip().encode("latin-1")
    key = headers.get("x-api-key", "")
    return key.encode("latin-1") if key else None


def key_owner(headers: Headers) -> str:
    """Who owns what a request leaves behind: a digest of its key, the same for all requests without one."""
    key = _given_key(headers)
    return "" if key is None else hashlib.sha256(key).hexdigest()


def allows_origin(origin: str, allowed_origins: tuple[str, ...]) -> bool:
    return "*" in allowed_origins or origin in allowed_origins


def check_origin(headers: Headers, allowed_origins: tuple[str, ...]) -> None:
    """Raises OriginRefused. Browsers let any page open a WebSocket to any host, loopback included, and tell only the
    server where the page came from (RFC 6455, section 10.2). Programs send no Origin and pass."""
    origin = headers.get("origin")
    if origin is None or allows_origin(origin, allowed_origins) or urlsplit(origin).netloc == headers.get("host"):
        return
    raise OriginRefused(f"Pages from {origin} may not use this server. Allow them with --allow-origin {origin}.")
