"""The body of a request, read, parsed and decoded: one of many messages beside the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from gateway.exchange import Exchange
from gateway.protocols.json_body import parse_object
from gateway.threads import in_thread_if

# Decoding this much takes 20 ms where it is nothing but short messages.
INLINE_BYTES = 128 * 1024
_T = TypeVar("_T")


async def read_request(exchange: Exchange, max_bytes: int, decode: Callable[[dict[str, Any]], _T]) -> _T:
    """`decode` may run in another thread. Raises what it raises, InvalidRequest for what is no JSON object, and what
    `Exchange.read_body` raises."""
    raw = await exchange.read_body(max_bytes)
    return await in_thread_if(len(raw) > INLINE_BYTES, _decoded, raw, decode)


def _decoded(raw: bytes, decode: Callable[[dict[str, Any]], _T]) -> _T:
    return decode(parse_object(raw))
