"""WebSockets: who may open one, where, and how one is refused. What is spoken on it is the handler's matter."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from gateway.auth import Authenticator, check_origin, key_owner
from gateway.errors import GatewayError, NotFound, WebSocketOff
from gateway.header_text import header_value
from gateway.native_connection import serve_native
from gateway.protocols import native
from gateway.protocols.frames import openai_error_body
from gateway.protocols.responses_request import PATH as RESPONSES_PATH
from gateway.request_ids import request_id
from gateway.responses_websocket import serve_responses
from gateway.service import Service

# Gets the owner of what the socket leaves behind (see key_owner), and accepts the socket itself.
SocketHandler = Callable[[Service, str, Scope, Receive, Send], Awaitable[None]]

_HANDLERS: Mapping[str, SocketHandler] = {native.PATH: serve_native, RESPONSES_PATH: serve_responses}


async def serve_websocket(
    service: Service, authenticator: Authenticator, scope: Scope, receive: Receive, send: Send
) -> None:
    await receive()  # websocket.connect
    headers = Headers(scope=scope)
    try:
        authenticator.check(headers)
        check_origin(headers, service.config.allowed_origins)
        handler = _HANDLERS.get(scope["path"].rstrip("/"))
        if handler is None:
            raise NotFound(f"There is no WebSocket at {scope['path']}: connect to {', '.join(_HANDLERS)}.")
        if handler is serve_responses and not service.config.serves_responses_socket:
            raise WebSocketOff(f"WebSockets are switched off here: use POST {RESPONSES_PATH}.")
    except GatewayError as error:
        await _refuse(scope, send, error)
        return
    with service.metrics.open_stream("websocket"):
        await handler(service, key_owner(headers), scope, receive, send)


async def _refuse(scope: Scope, send: Send, error: GatewayError) -> None:
    """As an HTTP response where the server can send one before the upgrade; as a close code otherwise."""
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008, "reason": error.code})
        return
    body = openai_error_body(error, "")
    headers = {
        "content-type": "application/json",
        "content-length": str(len(body)),
        "x-request-id": request_id(Headers(scope=scope)),
        **error.headers(),
    }
    raw = [(name.encode("ascii"), header_value(value)) for name, value in headers.items()]
    await send({"type": "websocket.http.response.start", "status": error.status, "headers": raw})
    await send({"type": "websocket.http.response.body", "body": body, "more_body": False})
