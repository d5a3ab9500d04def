"""Everything the gateway refuses or reports. Each class is one row: status, type and code say whose fault it is.

The body's words go to the user as they are: they name the field, the value and what helps. Statuses, codes and the
headers that steer retries follow OpenAI's API (error guide, 2026-11).
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from inference.errors import ContextLengthExceeded, EngineUnavailable, InvalidTurn, QueueFull


class GatewayError(Exception):
    """Root. `param` is the path of the field at fault; `retry_after_s` is set when trying again makes sense.

    never_helped_by_retry: although the status says that the fault is not the client's.
    """

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    code: str = "internal_error"
    never_helped_by_retry: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s
        if code is not None:
            self.code = code

    def body(self) -> dict[str, Any]:
        """The inner object of OpenAI's error body."""
        return {"message": self.message, "type": self.type, "param": self.param, "code": self.code}

    @property
    def should_retry(self) -> bool:
        if self.never_helped_by_retry:
            return False
        return self.retry_after_s is not None or self.status >= 500

    def headers(self) -> dict[str, str]:
        """What goes beside the body, on every protocol. OpenAI's and Anthropic's SDKs follow x-should-retry whatever
        the status, and would otherwise repeat each 409 and 429, and everything from 500 on."""
        headers = {**self.own_headers(), "x-should-retry": "true" if self.should_retry else "false"}
        if self.retry_after_s is not None:
            # Retry-After holds whole seconds (RFC 9110, section 10.2.3); the SDKs read the milliseconds first.
            headers["retry-after"] = str(math.ceil(self.retry_after_s))
            headers["retry-after-ms"] = str(math.ceil(self.retry_after_s * 1000))
        return headers

    def own_headers(self) -> dict[str, str]:
        """What this status calls for."""
        return {}


class InvalidRequest(GatewayError):
    """The client's fault: the same request will never succeed."""

    status = 400
    type = "invalid_request_error"
    code = "invalid_value"

    def __init__(self, param: str | None, message: str, *, code: str | None = None) -> None:
        super().__init__(message, param=param, code=code)


class InvalidApiKey(GatewayError):
    status = 401
    type = "invalid_request_error"
    code = "invalid_api_key"

    def own_headers(self) -> dict[str, str]:
        return {"www-authenticate": "Bearer"}


class OriginRefused(GatewayError):
    status = 403
    type = "invalid_request_error"
    code = "origin_not_allowed"


class NotFound(GatewayError):
    status = 404
    type = "invalid_request_error"
    code = "not_found"


class ModelNotFound(NotFound):
    code = "model_not_found"

    def __init__(self, model: str, served: tuple[str, ...]) -> None:
        names = ", ".join(repr(name) for name in served)
        super().__init__(f"The model {model!r} is not served here. Served: {names}.", param="model")


class MethodNotAllowed(GatewayError):
    status = 405
    type = "invalid_request_error"
    code = "method_not_allowed"

    def __init__(self, method: str, path: str, allowed: tuple[str, ...]) -> None:
        super().__init__(f"{method} is not allowed on {path}. Allowed: {', '.join(allowed)}.")
        self.allowed = allowed

    def own_headers(self) -> dict[str, str]:
        return {"allow": ", ".join(self.allowed)}


class Conflict(GatewayError):
    """The request is fine, but something it needs is in use."""

    status = 409
    type = "invalid_request_error"
    code = "conflict"


class RequestTooLarge(GatewayError):
    status = 413
    type = "invalid_request_error"
    code = "request_too_large"


class RequestTimeout(GatewayError):
    """The request began to come and did not go on. What still comes of it cannot be told from the next
    one, so the connection ends with it."""

    status = 408
    type = "invalid_request_error"
    code = "request_timeout"

    def own_headers(self) -> dict[str, str]:
        return {"connection": "close"}


class UnsupportedEncoding(GatewayError):
    """Compressed bodies are not unpacked: a small one can hold more than any limit (RFC 9110, section 15.5.16)."""

    status = 415
    type = "invalid_request_error"
    code = "unsupported_content_encoding"

    def __init__(self, encoding: str) -> None:
        message = f"The body has content-encoding {encoding!r}, which this server does not take: send it uncompressed."
        super().__init__(message, param="content-encoding")

    def own_headers(self) -> dict[str, str]:
        return {"accept-encoding": "identity"}


class FailedDependency(GatewayError):
    """The request is fine, but what it was to follow has failed (RFC 4918, section 11.4)."""

    status = 424
    type = "invalid_request_error"
    code = "previous_turn_failed"


class WebSocketOff(GatewayError):
    """Clients that know the status (RFC 9110, section 15.5.22) go on over HTTP."""

    status = 426
    type = "invalid_request_error"
    code = "websocket_not_supported"

    def own_headers(self) -> dict[str, str]:
        # The status must come with it; it is the only other protocol of this server.
        return {"upgrade": "websocket", "connection": "upgrade, close"}


class TooManyTurns(GatewayError):
    status = 429
    type = "rate_limit_error"
    code = "rate_limit_exceeded"


class InternalError(GatewayError):
    """Our fault. The message carries the request id under which the log has the rest."""


class Overloaded(GatewayError):
    """The reader, the engine or the server cannot keep up with this turn; others are not affected."""

    status = 503
    code = "server_is_overloaded"


class UpstreamFailed(GatewayError):
    """The server that this gateway stands in front of failed, or answered what no client can use."""

    status = 502
    code = "upstream_error"


class UpstreamMisconfigured(UpstreamFailed):
    """The operator's to mend: the upstream refuses this gateway itself, so trying again helps no client."""

    code = "upstream_misconfigured"
    never_helped_by_retry = True


class UpstreamTimeout(GatewayError):
    status = 504
    code = "upstream_timeout"


class QuotaExceeded(GatewayError):
    """No pause helps: an account has to be filled first. Agents stop at this code."""

    status = 429
    type = "rate_limit_error"
    code = "insufficient_quota"
    never_helped_by_retry = True


class NotAvailable(GatewayError):
    never_helped_by_retry = True
    status = 501
    type = "invalid_request_error"
    code = "not_available"


class EngineDown(GatewayError):
    status = 503
    code = "engine_unavailable"


class ShuttingDown(GatewayError):
    status = 503
    code = "server_shutting_down"


def from_inference(error: Exception) -> GatewayError:
    """What the client hears of an error the inference core raised. Anything unknown is our fault."""
    match error:
        case GatewayError():
            return error
        case ContextLengthExceeded():
            return InvalidRequest(error.field, str(error), code="context_length_exceeded")
        case InvalidTurn():
            return InvalidRequest(error.field, str(error))
        case QueueFull():
            return TooManyTurns(str(error), retry_after_s=error.retry_after_s)
        case EngineUnavailable():
            return EngineDown(str(error), retry_after_s=1.0)
        case _:
            return InternalError("The server had an error while processing this request.")
