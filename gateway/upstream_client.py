"""HTTP to an OpenAI-compatible server: streamed POSTs, retries while nothing of an answer has come, its list of models.

As many connections as the gateway's admission has turns. Proxies of the environment, .netrc and cookies are left
alone: what a server connects to is on its command line. Every failure comes out as a GatewayError; the log has the URL
and the cause.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx
import orjson

from gateway import __version__
from gateway.errors import EngineDown, GatewayError, UpstreamFailed, UpstreamTimeout
from gateway.types import ServedModel
from gateway.upstream_errors import refused, retry_after
from gateway.upstream_pool import PooledTransport
from gateway.upstream_settings import UpstreamSettings

log = logging.getLogger("headrace.upstream")

_WRITE_TIMEOUT_S = 60.0
_ERROR_BODY_TIMEOUT_S = 10.0
_MAX_ERROR_BODY_BYTES = 64 * 1024
_LIST_TIMEOUT_S = 10.0
_DRAIN_S = 1.0
_IDLE_CONNECTION_S = 30.0
# The list of models and what is being drained, beside the turns.
_SPARE_CONNECTIONS = 16
# A server that asks for a longer pause asks the client, who may have something else to do.
_MAX_PAUSE_S = 2.0
_RETRIED_STATUSES = frozenset((500, 502, 503, 504))
# No answer can have begun: the connection was not made, or was closed instead of an answer.
_RETRIED_ERRORS = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.RemoteProtocolError,
    httpx.ReadError,
    httpx.WriteError,
)
_CONTEXT_FIELDS = ("max_model_len", "context_length", "context_window", "max_context_length")


class UpstreamClient:
    """Used from one event loop, and made in it. pause_s: the first pause before a retry; each is twice the last."""

    def __init__(self, settings: UpstreamSettings, max_turns: int, pause_s: float) -> None:
        self._settings = settings
        self._pause_s = pause_s
        self._releases: set[asyncio.Task[None]] = set()
        self.lost = asyncio.Event()  # set while the upstream cannot be connected to
        self._client = httpx.AsyncClient(
            base_url=settings.url,
            headers=_headers(settings.api_key),
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
            timeout=httpx.Timeout(
                settings.idle_timeout_s,
                connect=settings.connect_timeout_s,
                write=_WRITE_TIMEOUT_S,
                pool=settings.connect_timeout_s,
            ),
            transport=PooledTransport(
                max_turns + _SPARE_CONNECTIONS, _tls(settings), settings.proxy, _IDLE_CONNECTION_S
            ),
            trust_env=False,
        )

    async def open(self, path: str, body: bytes, turn_id: str) -> httpx.Response:
        """The response of a request that was accepted, its body still to be read. Raises GatewayError.

        Tried again are connections that fail and answers that say the server does; never once an answer has begun.
        """
        pause_s = self._pause_s
        for num_left in range(self._settings.max_retries, -1, -1):
            try:
                response = await self._send(path, body, turn_id)
                self.lost.clear()
            except httpx.HTTPError as error:
                failure, wait_s = self.failure(error), pause_s if isinstance(error, _RETRIED_ERRORS) else None
            else:
                if response.is_success:
                    return response
                failure, wait_s = await self._refusal(response, pause_s)
            if num_left == 0 or wait_s is None:
                raise failure
            log.warning("turn %s: trying again after: %s", turn_id, failure.message)
            # Turns that failed together do not come back together.
            await asyncio.sleep(wait_s * random.uniform(0.75, 1.25))
            pause_s *= 2
        raise AssertionError("the last try raises")

    async def _send(self, path: str, body: bytes, turn_id: str) -> httpx.Response:
        headers = {"content-type": "application/json", "accept": "text/event-stream", "x-request-id": turn_id}
        request = self._client.build_request("POST", path, content=body, headers=headers)
        return await self._client.send(request, stream=True)

    async def _refusal(self, response: httpx.Response, pause_s: float) -> tuple[GatewayError, float | None]:
        """The error, and how long to wait before another try; None where that is left to the client."""
        status, headers, now_s = response.status_code, response.headers, time.time()
        body = await self._error_body(response)
        failure = refused(status, headers, body, now_s)
        # What is wrong with a request is its client's to know.
        level = logging.WARNING if failure.status >= 500 else logging.INFO
        log.log(level, "the upstream answered HTTP %d to %s: %r", status, response.request.url, body[:500])
        asked_s = retry_after(headers, now_s)
        if status not in _RETRIED_STATUSES or (asked_s or 0.0) > _MAX_PAUSE_S:
            return failure, None
        return failure, min(pause_s if asked_s is None else max(asked_s, pause_s), _MAX_PAUSE_S)

    async def _error_body(self, response: httpx.Response) -> bytes:
        body = b""
        try:
            async with asyncio.timeout(_ERROR_BODY_TIMEOUT_S):
                async for data in response.aiter_bytes():
                    body += data
                    if len(body) > _MAX_ERROR_BODY_BYTES:
                        break
        except (httpx.HTTPError, TimeoutError):
            # The status alone has to do.
            pass
        finally:
            await response.aclose()
        return body

    def failure(self, error: httpx.HTTPError) -> GatewayError:
        """What a client hears of a connection that failed."""
        log.warning("the upstream %s failed: %s: %s", self._settings.url, type(error).__name__, error)
        idle_s = self._settings.idle_timeout_s
        match error:
            case httpx.ReadTimeout():
                return UpstreamTimeout(f"The upstream sent nothing for {idle_s:g}s (--upstream-timeout).")
            case httpx.PoolTimeout():
                return EngineDown("All connections to the upstream are in use.", retry_after_s=1.0)
            case httpx.ConnectTimeout() | httpx.ConnectError() | httpx.ProxyError():
                self.lost.set()
                return EngineDown("The upstream cannot be reached.", code="upstream_unreachable", retry_after_s=1.0)
            case httpx.TimeoutException():
                return UpstreamTimeout("The upstream takes no data.")
            case _:
                return UpstreamFailed("The connection to the upstream broke before the answer was whole.")

    async def models(self) -> tuple[ServedModel, ...] | None:
        """None for an upstream that has no such list, or keeps it from us. Raises GatewayError."""
        try:
            response = await self._client.get("/models", timeout=_LIST_TIMEOUT_S)
        except httpx.HTTPError as error:
            raise self.failure(error) from error
        self.lost.clear()
        if response.status_code in (403, 404, 405, 501):
            return None
        if not response.is_success:
            raise refused(response.status_code, response.headers, response.content, time.time())
        try:
            return _models(orjson.loads(response.content))
        except orjson.JSONDecodeError:
            return None

    def release(self, response: httpx.Response, rest: AsyncIterator[bytes] | None) -> None:
        """Closes it at once. rest: given where the answer's end was seen; the connection can serve another turn once
        what is left is read."""
        closing = response.aclose() if rest is None else _drain(response, rest)
        task = asyncio.create_task(closing, name="upstream release")
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)

    async def close(self) -> None:
        if self._releases:
            await asyncio.wait(self._releases)
        await self._client.aclose()


def _tls(settings: UpstreamSettings) -> ssl.SSLContext | bool:
    """The public certificates, or the operator's own. Nothing is loaded where nothing is encrypted: redirects are not
    followed, so a plain upstream stays one."""
    if settings.ca_file is not None:
        return ssl.create_default_context(cafile=settings.ca_file)
    return settings.url.startswith("https:") or (settings.proxy or "").startswith("https:")


def _headers(api_key: str | None) -> Mapping[str, str]:
    # Compressed events would wait in the compressor.
    headers = {"user-agent": f"headrace/{__version__}", "accept-encoding": "identity"}
    return headers if api_key is None else {**headers, "authorization": f"Bearer {api_key}"}


async def _drain(response: httpx.Response, rest: AsyncIterator[bytes]) -> None:
    try:
        async with asyncio.timeout(_DRAIN_S):
            async for _ in rest:
                pass
    except (httpx.HTTPError, TimeoutError):
        # What is left cannot be read: the connection is closed instead.
        pass
    finally:
        await response.aclose()


def _models(decoded: Any) -> tuple[ServedModel, ...]:
    entries = decoded.get("data") if isinstance(decoded, dict) else decoded
    found = [entry for entry in entries or () if isinstance(entry, dict) and isinstance(entry.get("id"), str)]
    return tuple(ServedModel(entry["id"], _context(entry)) for entry in found)


def _context(entry: Mapping[str, Any]) -> int | None:
    values = [entry.get(name) for name in _CONTEXT_FIELDS]
    return next((value for value in values if type(value) is int and value > 0), None)
