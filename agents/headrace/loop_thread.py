"""An event loop on a thread of its own, so that plain code can use what is written for asyncio."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Generator
from concurrent.futures import Future
from typing import Any, TypeVar, cast

T = TypeVar("T")

_NO_MORE = object()


class LoopThread:
    """Runs coroutines for callers on any number of other threads, until `close` or the interpreter's end."""

    def __init__(self) -> None:
        started: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(target=_serve, args=(started,), name="headrace", daemon=True)
        self._thread.start()
        self._loop = started.result()
        self._stop = weakref.finalize(self, _stop, self._loop, self._thread)

    @property
    def is_open(self) -> bool:
        return self._stop.alive

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Wait for the coroutine's result. Interrupted (Ctrl-C), it is cancelled, and has ended when this raises."""
        problem = "the client is closed" if not self.is_open else ""
        if threading.current_thread() is self._thread:
            problem = "an async function on the client's own thread can't block on it: make it a plain function"
        if problem:
            coroutine.close()
            raise RuntimeError(problem)
        ended = threading.Event()
        tasks: list[asyncio.Task[T]] = []

        def start() -> None:
            tasks.append(self._loop.create_task(coroutine))
            tasks[0].add_done_callback(lambda _: ended.set())

        def stop() -> None:
            if tasks:
                tasks[0].cancel()
            else:
                coroutine.close()
                ended.set()

        # An interrupt may come at any line here, also before `start` is on its way.
        try:
            self._loop.call_soon_threadsafe(start)
            ended.wait()
        except BaseException:
            self._loop.call_soon_threadsafe(stop)
            ended.wait()
            raise
        task = tasks[0]
        if task.cancelled():
            raise RuntimeError("the client was closed meanwhile")
        return task.result()

    def iterate(self, items: AsyncIterator[T]) -> Generator[T, None, None]:
        """The items, one at a time. Leaving early closes an asynchronous generator."""
        try:
            while (item := self.run(_next(items))) is not _NO_MORE:
                yield cast(T, item)
        finally:
            if isinstance(items, AsyncGenerator) and self.is_open:
                self.run(_aclose(items))

    def close(self) -> None:
        """Stop the loop; what still runs there is cancelled. Idempotent."""
        self._stop()


def _serve(started: Future[asyncio.AbstractEventLoop]) -> None:
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        started.set_result(loop)
        loop.run_forever()
        # What was handed over just before the stop becomes a task, which the runner's end cancels: none waits for ever.
        loop.run_until_complete(asyncio.sleep(0))


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    # The garbage collector may call this on the loop's own thread.
    if thread is not threading.current_thread():
        thread.join()


async def _next(items: AsyncIterator[T]) -> T | object:
    return await anext(items, _NO_MORE)


async def _aclose(items: AsyncGenerator[Any, None]) -> None:
    await items.aclose()
