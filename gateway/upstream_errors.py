"""What an upstream says when it refuses or fails, as this gateway's clients should hear it.

Statuses that are about the request keep their meaning. Those about this gateway itself (its key, its URL) are 502, and
the operator's: a client's own key is a different one. An upstream's words go on only where they are in an error object;
pages of proxies do not. Pure; knows nothing of HTTP libraries.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import orjson

from gateway.errors import (
    EngineDown,
    GatewayError,
    InvalidRequest,
    NotFound,
    Overloaded,
    QuotaExceeded,
    RequestTooLarge,
    TooManyTurns,
    UpstreamFailed,
    UpstreamMisconfigured,
    UpstreamTimeout,
)

_MAX_MESSAGE_CHARS = 2000
_MAX_RETRY_AFTER_S = 86_400.0
# Without one, some agents give up at once.
_DEFAULT_RETRY_AFTER_S = 1.0
_CONTEXT_CODES = ("context_length_exceeded", "exceed_context_size_error", "model_context_window_exceeded")
_CONTEXT_WORDS = re.compile(
    r"context[ _](?:length|size|window)|maximum (?:model|sequence|input) length|max_model_len"
    r"|too many (?:input )?tokens|(?:prompt|input|request)[^.]{0,60}\b(?:too long|exceeds?\b[^.]{0,40}\btokens)",
    re.IGNORECASE,
)
# What agents look for to compact a conversation instead of trying again.
_CONTEXT_HINT = "(The request exceeds the context window: prompt is too long.)"
# What errors within a stream, which have no status of their own, mean by their names.
_STATUS_BY_CODE = {
    "invalid_request_error": 400,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
    "server_is_overloaded": 529,
}
_QUOTA_CODES = ("insufficient_quota", "billing_hard_limit_reached", "insufficient_balance")


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error of the upstream, taken apart. status: HTTP's, or what the error object says. has_words: the message is
    the upstream's own."""

    status: int
    message: str
    code: str | None = None
    param: str | None = None
    retry_after_s: float | None = None
    has_words: bool = True


def refused(status: int, headers: Mapping[str, str], body: bytes, now_s: float) -> GatewayError:
    """For an answer other than 200. now_s: Unix time, for dates in Retry-After."""
    retry_after_s = retry_after(headers, now_s)
    try:
        decoded = orjson.loads(body)
    except orjson.JSONDecodeError:
        decoded = None
    found = _error_object(decoded)
    if found is None:
        message = f"The upstream answered HTTP {status} without words."
        return _mapped(Refusal(status, message, retry_after_s=retry_after_s, has_words=False))
    message, code, param = found
    return _mapped(Refusal(status, message, code, param, retry_after_s))


def failed_within(chunk: Mapping[str, Any]) -> GatewayError | None:
    """For an error that came instead of a chunk; None for a chunk that is none."""
    if not (chunk.get("error") or chunk.get("object") == "error" or chunk.get("type") == "error"):
        return None
    found = _error_object(chunk)
    message, code, param = found if found is not None else ("It gave no reason.", None, None)
    inner = chunk.get("error")
    holder = inner if isinstance(inner, dict) else chunk
    statuses = [holder.get(name) for name in ("status", "status_code", "code")]
    named = _STATUS_BY_CODE.get(code or "", 500)
    status = next((value for value in statuses if type(value) is int and 400 <= value < 600), named)
    return _mapped(Refusal(status, message, code, param))


def _error_object(decoded: object) -> tuple[str, str | None, str | None] | None:
    """Message, code and field of an error body: OpenAI's, vLLM's older flat one, FastAPI's, or a plain string."""
    if not isinstance(decoded, dict):
        return None
    holder: Any = decoded.get("error", decoded)
    if isinstance(holder, dict):
        message = next((holder[name] for name in ("message", "detail", "msg") if holder.get(name)), None)
    else:
        message, holder = holder, {}
    if not message:
        return None
    text = message if isinstance(message, str) else orjson.dumps(message).decode()
    names = [holder.get("code"), holder.get("type")]
    code = next((name for name in names if isinstance(name, str) and name), None)
    param = holder.get("param")
    return text[:_MAX_MESSAGE_CHARS], code, param if isinstance(param, str) else None


def _mapped(refusal: Refusal) -> GatewayError:
    if refusal.code in _QUOTA_CODES:
        return QuotaExceeded(refusal.message)
    if refusal.status in (400, 413, 422) or refusal.code in _CONTEXT_CODES:
        is_context = refusal.code in _CONTEXT_CODES or _CONTEXT_WORDS.search(refusal.message)
        if is_context:
            return _context_exceeded(refusal)
    return _BY_STATUS.get(refusal.status, _failed)(refusal)


def _context_exceeded(refusal: Refusal) -> GatewayError:
    message = f"{refusal.message} {_CONTEXT_HINT}"
    return InvalidRequest(refusal.param or "messages", message, code="context_length_exceeded")


def _invalid(refusal: Refusal) -> GatewayError:
    # Types as vLLM's BadRequestError are no codes that a client could know.
    code = refusal.code if refusal.code and refusal.code.islower() and refusal.code != "invalid_request_error" else None
    return InvalidRequest(refusal.param, refusal.message, code=code)


def _misconfigured(refusal: Refusal) -> GatewayError:
    message = f"The upstream refuses this server's own key (HTTP {refusal.status}). That is the operator's to mend: "
    return UpstreamMisconfigured(message + "see --upstream-key-env.", code="upstream_unauthorized")


def _not_found(refusal: Refusal) -> GatewayError:
    if refusal.has_words and "model" in refusal.message.lower():
        return NotFound(refusal.message, param="model", code="model_not_found")
    return _wrong_url(refusal)


def _wrong_url(refusal: Refusal) -> GatewayError:
    message = f"The upstream has no such API at its URL (HTTP {refusal.status}). That is the operator's to mend: see "
    return UpstreamMisconfigured(message + "--upstream.")


def _too_large(refusal: Refusal) -> GatewayError:
    return RequestTooLarge(refusal.message, param="body")


def _timed_out(refusal: Refusal) -> GatewayError:
    return UpstreamTimeout(f"The upstream gave up (HTTP {refusal.status}): {refusal.message}")


def _rate_limited(refusal: Refusal) -> GatewayError:
    wait_s = _DEFAULT_RETRY_AFTER_S if refusal.retry_after_s is None else refusal.retry_after_s
    return TooManyTurns(refusal.message, retry_after_s=wait_s)


def _unavailable(refusal: Refusal) -> GatewayError:
    wait_s = _DEFAULT_RETRY_AFTER_S if refusal.retry_after_s is None else refusal.retry_after_s
    return EngineDown(f"The upstream takes no turns now: {refusal.message}", retry_after_s=wait_s)


def _overloaded(refusal: Refusal) -> GatewayError:
    wait_s = _DEFAULT_RETRY_AFTER_S if refusal.retry_after_s is None else refusal.retry_after_s
    return Overloaded(f"The upstream is overloaded: {refusal.message}", retry_after_s=wait_s)


def _failed(refusal: Refusal) -> GatewayError:
    if 300 <= refusal.status < 400:
        return _wrong_url(refusal)
    return UpstreamFailed(f"The upstream failed (HTTP {refusal.status}): {refusal.message}")


_BY_STATUS: Mapping[int, Callable[[Refusal], GatewayError]] = {
    400: _invalid,
    401: _misconfigured,
    402: lambda refusal: QuotaExceeded(refusal.message),
    403: _misconfigured,
    404: _not_found,
    405: _wrong_url,
    408: _timed_out,
    410: _not_found,
    413: _too_large,
    422: _invalid,
    429: _rate_limited,
    503: _unavailable,
    504: _timed_out,
    529: _overloaded,
}


def retry_after(headers: Mapping[str, str], now_s: float) -> float | None:
    """Seconds (RFC 9110, section 10.2.3: a number or a date; OpenAI's milliseconds go first)."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return min(milliseconds / 1000, _MAX_RETRY_AFTER_S)
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is None and value:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - now_s
        except (ValueError, OverflowError):
            return None
    return None if seconds is None else min(max(seconds, 0.0), _MAX_RETRY_AFTER_S)


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None
