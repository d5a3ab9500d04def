"""What can go wrong, as exceptions with one root; knows nothing of sockets.

Every `HeadraceError` carries three facts a program can act on:

- `status`: the HTTP status the server gave (or would have given: frames on the socket carry one too); None where no
  server spoke.
- `code`: the server's machine-readable code ("model_not_found", "context_length_exceeded"), or one of ours, or None.
- `retryable`: whether the same call can succeed later without being changed. The SDK itself repeats nothing, save a
  turn whose connection turned out to be dead before the server had answered it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

_RETRYABLE_STATUSES = frozenset({408, 409, 425, 429})
# Waiting helps neither: the first needs a payment, the second another request.
_FINAL_CODES = frozenset({"insufficient_quota", "context_length_exceeded"})


class HeadraceError(Exception):
    """Root of all exceptions of this package."""

    def __init__(
        self, message: str, *, status: int | None = None, code: str | None = None, retryable: bool = False
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
        self.retryable = retryable

    # Exception's own way calls the constructor with `args` alone, which the subclasses' constructors do not fit.
    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(kind: type[HeadraceError], args: tuple[object, ...], fields: dict[str, object]) -> HeadraceError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error


class ConnectionFailed(HeadraceError):
    """No server could be reached, or it would not take the connection; nothing was sent."""

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message, code="connection_failed", retryable=retryable)


class ConnectionLost(HeadraceError):
    """The connection ended before the turn did. What was received stands; the rest will not come."""

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message, code="connection_lost", retryable=retryable)


class IdleTimeout(HeadraceError):
    """The server said nothing for longer than `idle_timeout_s`: not about this turn, which is cancelled."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="idle_timeout", retryable=True)


class ProtocolError(HeadraceError):
    """The server sent something that the protocol does not allow: a bug there, or not a Headrace server at all."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="protocol_error")


class MaxTurnsExceeded(HeadraceError):
    """An agent used up `max_turns` and the model still wanted tools.

    `messages` is the whole conversation so far, in the chat format and complete (each unanswered call has a result that
    says it was not run), so that it can be given to another `run`.
    """

    def __init__(self, max_turns: int, messages: list[dict[str, object]]) -> None:
        super().__init__(f"the model still calls tools after {max_turns} turn(s)", code="max_turns_exceeded")
        self.max_turns = max_turns
        self.messages = messages


class ToolDefinitionError(HeadraceError):
    """A function can't be offered as a tool; the message names the parameter and what to change."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="tool_definition")


class ToolError(HeadraceError):
    """Raise it in a tool: its message goes to the model as it is, without a class name before it."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="tool_error")


class APIError(HeadraceError):
    """The server answered with an error.

    `kind` is the server's `type` ("invalid_request_error"), `param` the field at fault, `retry_after_s` the seconds the
    server asks to wait; each may be None.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        code: str | None = None,
        kind: str | None = None,
        param: str | None = None,
        retry_after_s: float | None = None,
        retryable: bool | None = None,
    ) -> None:
        if retryable is None:
            retryable = (status in _RETRYABLE_STATUSES or status >= 500) and code not in _FINAL_CODES
        super().__init__(message, status=status, code=code, retryable=retryable)
        self.kind = kind
        self.param = param
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        field = f" (field {self.param!r})" if self.param else ""
        return f"{self.status} {self.code or self.kind or 'error'}: {self.message}{field}"


class InvalidRequestError(APIError):
    """The request itself is at fault (400, 413, 422)."""


class AuthenticationError(APIError):
    """The key is missing, wrong or not allowed to do this (401, 403)."""


class NotFoundError(APIError):
    """No such model or address (404)."""


class RateLimitError(APIError):
    """Too much at once (429): wait for `retry_after_s`."""


class ServerError(APIError):
    """The server failed or is overloaded (500 and above)."""


_BY_STATUS: dict[int, type[APIError]] = {
    400: InvalidRequestError,
    401: AuthenticationError,
    403: AuthenticationError,
    404: NotFoundError,
    413: InvalidRequestError,
    422: InvalidRequestError,
    429: RateLimitError,
}


def api_error(error: object, *, status: int | None = None, headers: Mapping[str, str] | None = None) -> APIError:
    """The exception for an `error` object off the wire. O(1).

    `status` is that of the HTTP answer, where there is one; else the object's own, else 500. Anything goes in: an
    `error` which is no object, or whose fields have the wrong types, still makes an exception that shows it.
    """
    fields = error if isinstance(error, Mapping) else {"message": str(error)}
    stated = fields.get("status")
    if status is None:
        status = stated if isinstance(stated, int) else 500
    kind = _BY_STATUS.get(status, ServerError if status >= 500 else APIError)
    retry_after_s = fields.get("retry_after_s")
    if not isinstance(retry_after_s, int | float):
        retry_after_s = _retry_after_s(headers or {})
    return kind(
        _text_or_none(fields.get("message")) or "the server gave no message",
        status=status,
        code=_text_or_none(fields.get("code")),
        kind=_text_or_none(fields.get("type")),
        param=_text_or_none(fields.get("param")),
        retry_after_s=retry_after_s,
        retryable={"true": True, "false": False}.get((headers or {}).get("x-should-retry", "")),
    )


def _text_or_none(value: object) -> str | None:
    return None if value is None else str(value)


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, from `retry-after-ms` or `retry-after` (RFC 9110 section 10.2.3: seconds or a date)."""
    if (delay_ms := _number(headers.get("retry-after-ms"))) is not None:
        return delay_ms / 1000
    stated = headers.get("retry-after")
    if stated is None or (delay_s := _number(stated)) is not None:
        return None if stated is None else delay_s
    try:
        date = parsedate_to_datetime(stated)
    except ValueError:
        return None
    return max(0.0, (date - datetime.now(UTC)).total_seconds()) if date.tzinfo else None


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else max(0.0, float(text))
    except ValueError:
        return None
