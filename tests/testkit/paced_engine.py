"""A scripted engine for load: stamped tokens at a steady rate, so that a client can tell what is late, twice or astray.

A turn whose message is `load STREAM NUM_TOKENS` is answered with that many tokens ` STREAM:INDEX:DUE_US`, due at
absolute times of CLOCK_MONOTONIC, which all processes of a machine share. A token that is given late is stamped with
when it was due: what the event loop adds is counted as well.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator

from gateway.pieces import TextPiece
from gateway.scripted import ScriptedBackend, ScriptedPrompt, ScriptLine
from gateway.types import ChatTurn, Prepared, Turn


class PacedBackend(ScriptedBackend):
    """rate_hz: tokens a second of each stream."""

    def __init__(self, rate_hz: float) -> None:
        super().__init__((ScriptLine("", repeat=True),))
        self._interval_s = 1 / rate_hz
        self._clock = StepClock()
        self._orders: dict[str, tuple[int, int]] = {}
        self._phases = itertools.count()

    async def prepare(self, turn: Turn, turn_id: str) -> tuple[Prepared, ...]:
        assert isinstance(turn, ChatTurn)
        _, stream, num_tokens = turn.messages[-1].content.split()
        self._orders[turn_id] = (int(stream), int(num_tokens))
        return await super().prepare(turn, turn_id)

    def generate(self, prepared: Prepared) -> PacedPieces:  # type: ignore[override]
        assert isinstance(prepared, ScriptedPrompt)
        stream, num_tokens = self._orders.pop(prepared.turn_id)
        # Spread over the interval, as streams that began at different times are.
        phase = next(self._phases) * 0.618034 % 1
        delay_s = phase * self._interval_s
        return PacedPieces(self._clock, stream, num_tokens, self._interval_s, delay_s, self._add_running)


class StepClock:
    """Steps of a millisecond, each of which wakes all whose time has come: an engine too tells many streams at once."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[asyncio.Future[None]]] = {}
        self._loop = asyncio.get_event_loop()
        self._next_step = 0
        self._timer: asyncio.TimerHandle | None = None
        self.time = self._loop.time

    def wait_until(self, due_s: float) -> asyncio.Future[None]:
        step = max(int(due_s * 1000) + 1, self._next_step)
        due = self._loop.create_future()
        self._waiting.setdefault(step, []).append(due)
        if self._timer is None:
            self._next_step = step
            self._timer = self._loop.call_at(step / 1000, self._step)
        return due

    def _step(self) -> None:
        now = int(self.time() * 1000)
        while self._next_step <= now:
            for due in self._waiting.pop(self._next_step, ()):
                if not due.done():
                    due.set_result(None)
            self._next_step += 1
        self._timer = self._loop.call_at(self._next_step / 1000, self._step) if self._waiting else None


class PacedPieces:
    def __init__(
        self,
        clock: StepClock,
        stream: int,
        num_tokens: int,
        interval_s: float,
        delay_s: float,
        add_running: Callable[[int], None],
    ) -> None:
        self._clock = clock
        self._due_s = clock.time() + delay_s
        self._interval_s = interval_s
        self._texts = _texts(stream, num_tokens)
        self._num_left = num_tokens
        self._add_running = add_running
        self._is_open = True
        add_running(1)

    async def taken(self, timeout_s: float) -> None:
        """At once."""

    def __aiter__(self) -> PacedPieces:
        return self

    async def __anext__(self) -> TextPiece:
        if self._num_left == 0:
            raise StopAsyncIteration
        await self._clock.wait_until(self._due_s)
        text = f"{next(self._texts)}{int(self._due_s * 1e6)}"
        self._due_s += self._interval_s
        self._num_left -= 1
        return TextPiece(0, text, (), 1, (), "stop" if self._num_left == 0 else None)

    def end_choice(self, choice: int) -> None:
        """Every turn has one choice here."""

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._add_running(-1)


def _texts(stream: int, num_tokens: int) -> Iterator[str]:
    return (f" {stream}:{i}:" for i in range(num_tokens))
