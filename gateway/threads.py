"""Work that would hold up all other streams, done beside the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


async def in_thread_if(is_long: bool, function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """What is short is done at once: going to a thread and back takes longer than most of it."""
    if not is_long:
        return function(*args, **kwargs)
    return await asyncio.to_thread(function, *args, **kwargs)
