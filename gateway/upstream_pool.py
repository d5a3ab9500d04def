"""Many connections to one server, in pools small enough to be cheap.

httpcore goes through its whole pool whenever a request begins or ends, and for each idle connection once more: with a
thousand connections that holds the event loop up for a fifth of a second (httpcore 1.0, AsyncConnectionPool). So there
are as many small pools as are needed now, the first of which keeps its connections between turns.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx

_POOL_SIZE = 16


class PooledTransport(httpx.AsyncBaseTransport):
    """max_connections: of all pools together, rounded up; more requests wait for as long as httpx's pool timeout."""

    def __init__(self, max_connections: int, verify: ssl.SSLContext | bool, proxy: str | None, idle_s: float) -> None:
        self._max_pools = -(-max_connections // _POOL_SIZE)
        self._limits = httpx.Limits(
            max_connections=_POOL_SIZE, max_keepalive_connections=_POOL_SIZE, keepalive_expiry=idle_s
        )
        # One context for all: reading the certificates takes longer than connecting.
        self._tls = httpx.create_ssl_context(verify=verify, trust_env=False)
        self._proxy = proxy
        self._pools = [self._new_pool()]

    def _new_pool(self) -> _Pool:
        transport = httpx.AsyncHTTPTransport(verify=self._tls, trust_env=False, limits=self._limits, proxy=self._proxy)
        return _Pool(transport)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        pool = self._pool()
        pool.num_busy += 1
        try:
            response = await pool.transport.handle_async_request(request)
        except BaseException:
            await self._leave(pool)
            raise
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = _Stream(response.stream, lambda: self._leave(pool))
        return response

    def _pool(self) -> _Pool:
        for pool in self._pools:
            if pool.num_busy < _POOL_SIZE:
                return pool
        if len(self._pools) < self._max_pools:
            self._pools.append(self._new_pool())
            return self._pools[-1]
        return min(self._pools, key=lambda pool: pool.num_busy)

    async def _leave(self, pool: _Pool) -> None:
        pool.num_busy -= 1
        if pool.num_busy == 0 and pool is not self._pools[0] and pool in self._pools:
            self._pools.remove(pool)
            await pool.transport.aclose()

    async def aclose(self) -> None:
        for pool in self._pools:
            await pool.transport.aclose()


class _Pool:
    def __init__(self, transport: httpx.AsyncHTTPTransport) -> None:
        self.transport = transport
        self.num_busy = 0


class _Stream(httpx.AsyncByteStream):
    """A response's body that says once when its connection is not in use any more."""

    def __init__(self, inner: httpx.AsyncByteStream, leave: Callable[[], Awaitable[None]]) -> None:
        self._inner = inner
        self._leave = leave
        self._is_open = True

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for data in self._inner:
                yield data
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        if self._is_open:
            self._is_open = False
            await self._inner.aclose()
            await self._leave()
