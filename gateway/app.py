"""The gateway as one ASGI application: who may pass, which handler serves, and what an error looks like.

Every HTTP response carries x-request-id (the client's own, when it sent a usable one). No error of ours reaches a
client with more than its request id; the log has the rest. Knows nothing of turns: handlers are in gateway.routes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from gateway.admission import Admission
from gateway.auth import Authenticator, allows_origin
from gateway.backend import Backend
from gateway.config import GatewayConfig
from gateway.errors import GatewayError, InternalError, MethodNotAllowed, NotFound, ShuttingDown
from gateway.exchange import ClientGone, Exchange
from gateway.metrics import Metrics
from gateway.request_ids import request_id as request_id_of
from gateway.responses_store import ResponseStore
from gateway.routes import error_body, find_route, spoken_protocol
from gateway.service import Route, Service
from gateway.sessions import SessionStore
from gateway.streams import StreamHub
from gateway.turn import TurnRunner
from gateway.websocket import serve_websocket

log = logging.getLogger("headrace.app")

_EXPOSED = "x-request-id, request-id, x-headrace-warning, retry-after, retry-after-ms, x-should-retry"


class GatewayApp:
    """clock is monotonic and wall_clock Unix time, both in seconds."""

    def __init__(
        self,
        backend: Backend,
        config: GatewayConfig,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.config = config
        self.metrics = Metrics(clock, lambda: backend.stats, lambda: backend.info)
        self.admission = Admission(config.max_live_turns)
        self.runner = TurnRunner(backend, config, self.metrics, self.admission, wall_clock)
        self._authenticator = Authenticator(config.api_keys)
        self.responses = ResponseStore(
            config.max_stored_responses, config.max_stored_bytes, config.stored_response_age_s, clock
        )
        sessions = SessionStore(config.max_sessions, config.max_session_bytes, config.session_ttl_s, clock)
        self.streams = StreamHub(self.runner, sessions, config)
        self._service = Service(
            backend,
            config,
            self.runner,
            self.admission,
            self.metrics,
            self.responses,
            self.streams,
            wall_clock,
            created_s=int(wall_clock()),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._serve_http(scope, receive, send)
        elif scope["type"] == "websocket":
            await serve_websocket(self._service, self._authenticator, scope, receive, send)
        else:
            # The server starts and ends with its process (gateway.serve); uvicorn takes this as "no lifespan here".
            raise NotImplementedError(f"ASGI scope {scope['type']!r} is not served")

    async def _serve_http(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        request_id = request_id_of(headers)
        route = find_route(scope["path"])
        counted_path = route.path if route else "other"
        id_headers = dict.fromkeys(spoken_protocol(route, headers).request_id_headers, request_id)
        exchange = Exchange(
            scope,
            receive,
            send,
            request_id,
            {**id_headers, **_cors_headers(headers, self.config.allowed_origins)},
            on_start=lambda status: self.metrics.count_response(counted_path, status),
            read_timeout_s=self.config.read_timeout_s,
        )
        try:
            await self._dispatch(exchange, route)
        except ClientGone:
            pass
        except asyncio.CancelledError:
            # The server ends, and this request with it: still half on its way, or stuck in its client.
            if not self.admission.is_draining:
                raise
            await _fail(exchange, route, ShuttingDown("The server is shutting down. Try again.", retry_after_s=1.0))
        except GatewayError as error:
            await _fail(exchange, route, error)
        except Exception:
            log.exception("request %s: %s %s failed", request_id, exchange.method, exchange.path)
            message = f"The server had an error while processing this request (request id {request_id})."
            await _fail(exchange, route, InternalError(message))

    async def _dispatch(self, exchange: Exchange, route: Route | None) -> None:
        if exchange.method == "OPTIONS" and "origin" in exchange.headers:
            await exchange.respond(204, b"")
            return
        if route is None or not route.is_public:
            self._authenticator.check(exchange.headers)
        if route is None:
            raise NotFound(f"There is nothing at {exchange.path}. The API's paths begin with /v1/.")
        # A GET without its body; uvicorn leaves that out.
        method = "GET" if exchange.method == "HEAD" else exchange.method
        handler = route.handlers.get(method)
        if handler is None:
            raise MethodNotAllowed(exchange.method, exchange.path, tuple(route.handlers))
        await handler(self._service, exchange)


async def _fail(exchange: Exchange, route: Route | None, error: GatewayError) -> None:
    if exchange.is_started:
        # Headers are out and the handler gave up: only closing the connection is left, which returning does.
        log.error("request %s ended within its response: %s", exchange.request_id, error)
        return
    body = error_body(spoken_protocol(route, exchange.headers), error, exchange.request_id)
    await exchange.respond(error.status, body, error.headers())


def _cors_headers(headers: Headers, allowed_origins: tuple[str, ...]) -> dict[str, str]:
    """Fetch standard, section 3.3: a browser shows a page the answer only if we name the page's origin."""
    origin = headers.get("origin")
    if origin is None or not allows_origin(origin, allowed_origins):
        return {}
    return {
        "access-control-allow-origin": origin,
        "access-control-allow-methods": "GET, POST, DELETE, OPTIONS",
        "access-control-allow-headers": headers.get("access-control-request-headers", "authorization, content-type"),
        "access-control-expose-headers": _EXPOSED,
        "access-control-max-age": "600",
        "vary": "origin",
    }
