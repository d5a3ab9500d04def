"""Requests over HTTP: their answers, and what goes wrong with them as exceptions of this package.

All waiting is bounded here, by `asyncio.timeout`, and not by httpx: a read that times out within httpx closes its
connection at leisure, and a turn that is left at that moment would cancel the closing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

import httpx

from headrace.config import ClientConfig
from headrace.errors import APIError, ConnectionFailed, ConnectionLost, IdleTimeout, ProtocolError, api_error

_SHOWN_CHARS = 500


def http_client(config: ClientConfig) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=config.http_url,
        headers=config.headers,
        timeout=httpx.Timeout(None, connect=config.connect_timeout_s),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=32),
        trust_env=config.use_proxy,
    )


async def send(
    http: httpx.AsyncClient, method: str, path: str, body: object = None, *, timeout_s: float | None
) -> httpx.Response:
    """Send a request and return the answer, its body unread, for the caller to close.

    Raises APIError for a status that is no success, ConnectionFailed, ConnectionLost, IdleTimeout.
    """
    content = None if body is None else json.dumps(body, allow_nan=False)
    headers = {} if content is None else {"content-type": "application/json"}
    request = http.build_request(method, path, content=content, headers=headers)
    try:
        async with asyncio.timeout(timeout_s):
            response = await http.send(request, stream=True)
            if response.is_success:
                return response
            answer = await response.aread()
    except TimeoutError:
        raise IdleTimeout(f"no answer from {request.url} within {timeout_s} s") from None
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol, httpx.ProxyError) as error:
        raise ConnectionFailed(f"can't connect to {request.url}: {error or type(error).__name__}") from error
    except httpx.TransportError as error:
        raise ConnectionLost(f"no answer from {request.url}: {error or type(error).__name__}") from error
    raise answer_error(response.status_code, answer, response.headers)


async def fetch_json(http: httpx.AsyncClient, path: str, *, timeout_s: float | None) -> object:
    """GET a JSON value. Raises as `send` does, and ProtocolError for what is no JSON."""
    response = await send(http, "GET", path, timeout_s=timeout_s)
    try:
        async with asyncio.timeout(timeout_s):
            return json.loads(await response.aread())
    except TimeoutError:
        raise IdleTimeout(f"{path} was not answered in full within {timeout_s} s") from None
    except httpx.TransportError as error:
        raise ConnectionLost(f"the answer of {path} was cut short: {error}") from error
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"{path} answered with no JSON: {error}") from error


def answer_error(status: int, body: bytes, headers: Mapping[str, str]) -> APIError:
    """The exception for an answer that is no success; a body that is no error object is shown by its beginning."""
    text = body.decode("utf-8", "replace")
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        answer = None
    if isinstance(answer, Mapping) and answer.get("error") is not None:
        return api_error(answer["error"], status=status, headers=headers)
    return api_error(text.strip()[:_SHOWN_CHARS] or "no body", status=status, headers=headers)
