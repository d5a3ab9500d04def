"""Turns over POST /v1/chat/completions with `stream: true`: a request a turn, cancelled by closing it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import httpx

from headrace.chat_chunks import DONE, PATH, ChatChunkDecoder, SSEData
from headrace.errors import ConnectionLost, HeadraceError, ProtocolError
from headrace.events import Event
from headrace.http_requests import send
from headrace.request import TurnRequest
from headrace.turn_source import EventQueue

_CUT_SHORT = "the stream ended before the turn did"
# An answer read to its very end leaves a connection that can be used again.
_END_OF_BODY_S = 0.1


class SSETransport:
    """`first_model` tells which model to ask for when a turn names none."""

    def __init__(
        self, http: httpx.AsyncClient, first_model: Callable[[], Awaitable[str]], idle_timeout_s: float | None
    ) -> None:
        self._http = http
        self._first_model = first_model
        self._idle_timeout_s = idle_timeout_s
        self._turns: set[SSETurn] = set()

    async def open_turn(self, request: TurnRequest) -> SSETurn:
        body = {
            **request.fields,
            "model": request.model or await self._first_model(),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        response = await send(self._http, "POST", PATH, body, timeout_s=self._idle_timeout_s)
        if "text/event-stream" not in response.headers.get("content-type", ""):
            await response.aclose()
            raise ProtocolError(f"{PATH} answered with {response.headers.get('content-type')!r} and not with a stream")
        turn = SSETurn(response, EventQueue(self._idle_timeout_s), self._turns.discard)
        self._turns.add(turn)
        return turn

    async def aclose(self) -> None:
        for turn in list(self._turns):
            await turn.end(ConnectionLost("the client was closed"))


class SSETurn:
    """One turn's receiving end (a `TurnSource`); a task reads the answer, so that cancelling needs no reader."""

    def __init__(self, response: httpx.Response, events: EventQueue, on_end: Callable[[SSETurn], None]) -> None:
        self._response = response
        self._events = events
        self._on_end = on_end
        self._decoder = ChatChunkDecoder()
        self._is_done = False
        self._reader = asyncio.create_task(self._read(), name="headrace: read a stream")

    async def next_event(self) -> Event:
        return await self._events.get()

    async def cancel(self) -> None:
        if await self._stop_reading():
            for event in self._decoder.finish("cancelled"):
                self._events.put(event)

    async def aclose(self) -> None:
        await self._stop_reading()

    async def end(self, error: HeadraceError) -> None:
        """Stop the turn and let its reader see why."""
        if await self._stop_reading():
            self._events.put(error)

    async def _stop_reading(self) -> bool:
        """Close the request; return whether the turn was still running."""
        was_running = not self._is_done and not self._reader.done()
        if self._is_done:
            await asyncio.wait([self._reader], timeout=_END_OF_BODY_S)
        self._reader.cancel()
        await asyncio.wait([self._reader])
        # Not in the reader's `finally`: a task that is cancelled before its first step runs none.
        self._on_end(self)
        await self._response.aclose()
        return was_running

    async def _read(self) -> None:
        try:
            await self._read_chunks()
        except HeadraceError as error:
            self._events.put(error)
        except httpx.HTTPError as error:
            if not self._is_done:
                self._events.put(ConnectionLost(f"{_CUT_SHORT}: {error or type(error).__name__}"))
        finally:
            self._on_end(self)

    async def _read_chunks(self) -> None:
        parser = SSEData()
        async for piece in self._response.aiter_bytes():
            for data in parser.feed(piece):
                self._take(data)
        # Some servers leave [DONE] out; the finish reason is what tells a whole answer from a cut one.
        if not self._decoder.has_finish_reason:
            raise ConnectionLost(_CUT_SHORT)
        self._finish()

    def _take(self, data: str) -> None:
        if self._is_done:
            return
        if data != DONE:
            for event in self._decoder.feed(data):
                self._events.put(event)
        elif self._decoder.has_finish_reason:
            self._finish()

    def _finish(self) -> None:
        if not self._is_done:
            self._is_done = True
            for event in self._decoder.finish():
                self._events.put(event)
