"""The answer of an upstream to one prompt, as pieces: chunks of a chat, or the texts of a completion.

The request is on its way when the stream is made. Closing it closes the connection, which is how such servers are told
that nobody listens. A stream that ends without saying so, breaks, hangs or says that it failed ends the turn with an
error. Knows nothing of what the chunks mean to clients.
"""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator
from typing import Literal

import httpx

from gateway.errors import GatewayError, InvalidRequest, UpstreamFailed, UpstreamTimeout
from gateway.pieces import ChunkPiece, ChunksEnd, Piece, TextPiece, UsageReport
from gateway.sse_reader import EventTooLong, SseReader
from gateway.upstream_answer import (
    Chunk,
    completion_piece,
    decode_event,
    logprobs_of,
    num_tokens,
    split_choices,
    stop_string,
    usage_report,
)
from gateway.upstream_client import UpstreamClient
from gateway.upstream_errors import failed_within
from gateway.upstream_habits import UpstreamHabits

_DONE = "[DONE]"
# How long a stream whose answers have all ended may keep us waiting for its usage and its end.
_GRACE_S = 5.0
_FILTERED = re.compile(r"filter|safety|recitation|refusal|blocklist|prohibited", re.IGNORECASE)
_LENGTH = re.compile(r"length|max", re.IGNORECASE)


class NoAnswer:
    """Of a turn that only wants its prompt to be known: an upstream would have to be paid for that."""

    async def taken(self, timeout_s: float) -> None:
        pass

    def __aiter__(self) -> NoAnswer:
        return self

    async def __anext__(self) -> Piece:
        raise StopAsyncIteration

    def end_choice(self, choice: int) -> None:
        pass

    def close(self) -> None:
        pass


class UpstreamStream(ABC):
    """Base of both kinds. Make it in the event loop; iterate in one task."""

    def __init__(
        self,
        client: UpstreamClient,
        habits: UpstreamHabits,
        path: str,
        body: bytes,
        turn_id: str,
        n: int,
        deadline_s: float,
    ) -> None:
        self._client = client
        self._habits = habits
        self._num_body_bytes = len(body)
        self._loop = asyncio.get_running_loop()
        self._limit_s = deadline_s
        self._deadline_at = self._loop.time() + deadline_s
        self._response: httpx.Response | None = None
        self._data: AsyncIterator[bytes] | None = None
        self._opening: asyncio.Task[bytes | None] | None = asyncio.create_task(
            self._begin(path, body, turn_id), name=f"upstream {turn_id}"
        )
        self._opening.add_done_callback(_retrieve)
        self._reader = SseReader()
        self._pieces: deque[Piece | UsageReport] = deque()
        self._open = set(range(n))  # choices whose end has not been given
        self._reasons: dict[int, str] = {}  # what the upstream said ended them
        self._seen: set[int] = set()
        self._grace_at: float | None = None
        self._report: UsageReport | None = None
        self._failure: GatewayError | None = None  # said by the upstream, or of its connection
        self._is_over = False

    async def _begin(self, path: str, body: bytes, turn_id: str) -> bytes | None:
        """The first bytes of the answer; None at its end."""
        self._response = await self._client.open(path, body, turn_id)
        self._data = self._response.aiter_bytes()
        return await anext(self._data, None)

    async def taken(self, timeout_s: float) -> None:
        """Waits for the first bytes too: some servers accept every request and then say in the stream what is wrong."""
        assert self._opening is not None
        await asyncio.wait([self._opening], timeout=max(timeout_s, 0.0))
        if self._opening.done():
            await self._read()
            if self._failure is not None and not self._seen:
                raise self._failure

    def __aiter__(self) -> UpstreamStream:
        return self

    async def __anext__(self) -> Piece | UsageReport:
        while not self._pieces:
            if self._is_over:
                raise StopAsyncIteration
            await self._read()
        return self._pieces.popleft()

    def end_choice(self, choice: int) -> None:
        """The upstream writes all of them in one request: this one's chunks are dropped."""
        self._open.discard(choice)
        kept = [piece for piece in self._pieces if isinstance(piece, UsageReport) or piece.choice != choice]
        self._pieces = deque(kept)

    def close(self) -> None:
        self._is_over = True
        self._pieces.clear()
        self._release(is_done=False)

    def _release(self, is_done: bool) -> None:
        if self._opening is not None and not self._opening.done():
            # Whatever it waits for, httpx closes the connection.
            self._opening.cancel()
        elif self._response is not None and not self._response.is_closed:
            self._client.release(self._response, self._data if is_done else None)

    # Reading

    async def _read(self) -> None:
        """Waits for bytes, and takes them apart. Raises GatewayError of a request that was refused."""
        until = self._deadline_at if self._grace_at is None else min(self._deadline_at, self._grace_at)
        try:
            async with asyncio.timeout_at(until):
                data = await self._next_bytes()
            events = self._reader.finish() if data is None else self._reader.feed(data)
        except TimeoutError:
            if self._grace_at is not None and until == self._grace_at:
                self._end(is_done=False, failure=None)
                return
            message = f"The turn took longer than {self._limit_s:g}s (--upstream-deadline)."
            self._end(is_done=False, failure=UpstreamTimeout(message, code="deadline_exceeded"))
            return
        except httpx.HTTPError as error:
            self._end(is_done=False, failure=self._client.failure(error))
            return
        except EventTooLong:
            self._end(is_done=False, failure=UpstreamFailed("The upstream's answer is no stream of events."))
            return
        self._take(events)
        if data is None and not self._is_over:
            self._end(is_done=False, failure=None)

    async def _next_bytes(self) -> bytes | None:
        if self._opening is None:
            assert self._data is not None
            return await anext(self._data, None)
        # Whoever is cancelled here leaves the task to `close`, which knows what to do with its response.
        await asyncio.wait([self._opening])
        opening, self._opening = self._opening, None
        return opening.result()

    def _take(self, events: list[str]) -> None:
        for event in events:
            if event.strip() == _DONE:
                self._end(is_done=True, failure=None)
                return
            for chunk in decode_event(event):
                failure = failed_within(chunk)
                if failure is not None:
                    self._end(is_done=False, failure=failure)
                    return
                self._take_chunk(chunk)

    def _take_chunk(self, chunk: Chunk) -> None:
        self._report = usage_report(chunk) or self._report
        for number, alone, choice in split_choices(chunk):
            if number not in self._open:
                continue
            self._seen.add(number)
            reason = choice.get("finish_reason")
            if isinstance(reason, str) and reason:
                self._reasons[number] = reason
            self._pieces.append(self._piece(number, alone, choice))
        if self._grace_at is None and self._reasons.keys() >= self._open:
            self._grace_at = self._loop.time() + _GRACE_S

    def _end(self, is_done: bool, failure: GatewayError | None) -> None:
        self._is_over = True
        self._failure = failure
        if self._report is not None:
            self._habits.note_usage(self._num_body_bytes, self._report)
            self._pieces.append(self._report)
        for number in sorted(self._open):
            self._pieces.append(
                self._last(number, is_done and number in self._seen, failure or self._unfinished(number))
            )
        self._release(is_done)

    def _unfinished(self, number: int) -> GatewayError:
        """What is wrong with an answer that no error of the upstream explains, should anything be."""
        reason = self._reasons.get(number)
        if reason is not None and _FILTERED.search(reason):
            return InvalidRequest(None, f"The upstream ended its answer: {reason}.", code="content_filter")
        if reason is not None:
            return UpstreamFailed(f"The upstream ended its answer: {reason}.")
        if self._seen and number not in self._seen:
            message = f"The upstream gave {len(self._seen)} answers and was asked for more: it does not know n."
            return UpstreamFailed(message)
        return UpstreamFailed("The upstream's stream ended before its answer did.", code="upstream_stream_cut")

    @abstractmethod
    def _piece(self, number: int, chunk: Chunk, choice: Chunk) -> Piece: ...

    @abstractmethod
    def _last(self, number: int, is_done: bool, failure: GatewayError) -> Piece: ...


class ChatStream(UpstreamStream):
    """Chunks, for the normalizer to make sense of; it also decides whether an answer has ended well."""

    def _piece(self, number: int, chunk: Chunk, choice: Chunk) -> ChunkPiece:
        self._habits.note_choice(choice)
        logprobs = logprobs_of(choice)
        return ChunkPiece(number, chunk, num_tokens(choice, logprobs), logprobs, stop_string(choice))

    def _last(self, number: int, is_done: bool, failure: GatewayError) -> ChunksEnd:
        return ChunksEnd(number, is_done, failure)


class CompletionStream(UpstreamStream):
    """Plain text. A choice's finish reason comes last, behind the usage."""

    _broken: GatewayError | None = None

    def _piece(self, number: int, chunk: Chunk, choice: Chunk) -> TextPiece:
        return completion_piece(number, choice)

    def _last(self, number: int, is_done: bool, failure: GatewayError) -> TextPiece:
        reason = self._reasons.get(number)
        if (reason is None and not is_done) or (reason is not None and _FILTERED.search(reason)):
            self._broken = failure
        ended: Literal["stop", "length"] = "length" if reason is not None and _LENGTH.search(reason) else "stop"
        return TextPiece(number, "", (), 0, (), ended)

    async def __anext__(self) -> Piece | UsageReport:
        piece = await super().__anext__()
        if self._broken is not None and not isinstance(piece, UsageReport) and piece.is_last:
            raise self._broken
        return piece


def _retrieve(task: asyncio.Task[bytes | None]) -> None:
    """A request that nobody waits for any more may fail without a word."""
    if not task.cancelled():
        task.exception()
