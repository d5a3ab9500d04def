"""One turn from admission to its last item, in one task. Every protocol and transport reads the same outbox.

Whatever happens, the outbox ends with exactly one TurnDone or TurnFailed, the engine's part is closed by then, and the
task is over soon after. Knows nothing of wire formats and connections.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import count
from secrets import token_hex
from typing import TypeVar

from gateway.admission import Admission
from gateway.backend import Backend, PieceStream
from gateway.config import GatewayConfig
from gateway.errors import GatewayError, InternalError, Overloaded, from_inference
from gateway.generation import Generation, StopStrings, total
from gateway.metrics import Metrics
from gateway.outbox import Outbox
from gateway.pieces import UsageReport
from gateway.protocols.frames import TurnLabels
from gateway.protocols.unforced import Unforced
from gateway.schema_checks import SchemaChecks
from gateway.served_models import FixedModels
from gateway.sessions import Recorder
from gateway.types import ChatTurn, Prepared, Turn, TurnDone, TurnEvent, TurnFailed, TurnStarted, TurnText, Usage

log = logging.getLogger("headrace.turn")

_TurnT = TypeVar("_TurnT", bound=Turn)


def slow_reader(timeout_s: float) -> GatewayError:
    message = f"The client of this turn has read nothing for {timeout_s:g}s while its buffer was full."
    return Overloaded(message, code="slow_reader")


class LiveTurn:
    """A turn whose task runs. `stop` ends it from outside; `join` waits until nothing of it is left."""

    def __init__(
        self, runner: TurnRunner, turn: Turn, labels: TurnLabels, outbox: Outbox, recorder: Recorder | None = None
    ) -> None:
        self.labels = labels
        self._recorder = recorder
        self._runner = runner
        self._turn = turn
        self._outbox = outbox
        self._generations: list[Generation] = []
        self._checks: SchemaChecks | None = None
        self._warnings: list[str] = []
        self._meter = runner.metrics.meter()
        self._has_begun = False
        self._is_stopped = False
        self._stop_error: GatewayError | None = None
        self._task = asyncio.create_task(self._run(), name=f"turn {labels.turn_id}")

    def stop(self, error: GatewayError | None = None) -> None:
        """Cancels the turn, or fails it with `error`. At once, from any state; the first call counts."""
        if self._is_stopped or self._outbox.is_closed:
            return
        self._is_stopped = True
        self._stop_error = error
        if not self._has_begun:
            # A task cancelled before its first step never enters its body.
            self._end_stopped()
        self._task.cancel()

    async def join(self) -> None:
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        self._has_begun = True
        try:
            with self._runner.admitted(self):
                await self._generate()
            self._end_done()
        except asyncio.CancelledError:
            if not self._is_stopped:
                self._end_failed(InternalError("The server cancelled this turn."))
                raise
            self._end_stopped()
        except GatewayError as error:
            self._end_failed(error)
        except Exception as error:
            failure = from_inference(error)
            if isinstance(failure, InternalError):
                turn_id = self.labels.turn_id
                log.exception("turn %s failed", turn_id)
                failure = InternalError(f"The server had an error while processing this turn (id {turn_id}).")
            self._end_failed(failure)

    def _end_done(self) -> None:
        usage = self._usage()
        self._meter.done(usage)
        if self._recorder is not None:
            # Before the client hears of the end: it may go on with the session at once.
            self._recorder.done()
        self._outbox.put(TurnDone(usage, tuple(self._warnings)))

    def _end_stopped(self) -> None:
        if self._stop_error is not None:
            self._end_failed(self._stop_error)
            return
        for generation in self._generations:
            for item in generation.cancel():
                self._give(item)
        self._end_done()

    def _end_failed(self, error: GatewayError) -> None:
        self._meter.failed(error, self._usage())
        if self._recorder is not None:
            self._recorder.failed()
        self._outbox.put(TurnFailed(error))

    def _give(self, item: TurnEvent | TurnText) -> None:
        self._meter.item(item)
        if self._recorder is not None:
            self._recorder.item(item)
        self._outbox.put(item)
        if self._checks is not None:
            self._check(self._checks, item)

    def _check(self, checks: SchemaChecks, item: TurnEvent | TurnText) -> None:
        found = checks.item(item)
        if found is not None:
            self._meter.violation(found)
            self._warnings.append(found.text)
            log.warning("turn %s: %s", self.labels.turn_id, found.text)

    def _usage(self) -> Usage:
        return total([generation.usage for generation in self._generations])

    async def _generate(self) -> None:
        turn, backend = self._turn, self._runner.backend
        ends_after_call = isinstance(turn, ChatTurn) and not turn.parallel_calls
        stop = StopStrings(turn.stop, turn.include_stop, ends_after_call)
        prompts = await backend.prepare(turn, self.labels.turn_id)
        partly = next((prepared.partly_enforced for prepared in prompts if prepared.partly_enforced), None)
        self._checks = SchemaChecks(partly) if partly else None

        with ExitStack() as open_streams:
            pumps: list[tuple[Generation, PieceStream]] = []
            warm_ups: list[PieceStream] = []
            for i, prepared in enumerate(prompts):
                generation = Generation(prepared, stop, i * turn.n)
                self._generations.append(generation)
                if self._recorder is not None:
                    self._recorder.prepared(prepared)
                is_empty = prepared.params.max_tokens == 0
                if is_empty and not isinstance(turn, ChatTurn):
                    continue
                pieces = backend.generate(prepared)
                open_streams.callback(pieces.close)
                if is_empty:
                    warm_ups.append(pieces)
                else:
                    pumps.append((generation, pieces))
            await self._taken([*warm_ups, *(pieces for _, pieces in pumps)])
            self._outbox.put(TurnStarted(sum(prepared.num_prompt_tokens for prepared in prompts)))
            self._begin_texts(prompts)
            for pieces in warm_ups:
                # A chat turn without an answer fills the prefix cache; what the engine writes all the same is dropped.
                async for _ in pieces:
                    pass
            await self._pump_all(pumps)

    async def _taken(self, streams: list[PieceStream]) -> None:
        """A backend that says nothing for long does not keep the headers back: keepalives need them."""
        deadline_s = asyncio.get_running_loop().time() + self._runner.config.keepalive_s
        for pieces in streams:
            await pieces.taken(deadline_s - asyncio.get_running_loop().time())

    def _begin_texts(self, prompts: tuple[Prepared, ...]) -> None:
        """What a completion's text starts with, before or without the engine's part."""
        if isinstance(self._turn, ChatTurn):
            return
        for prompt_index, prepared in enumerate(prompts):
            is_empty = prepared.params.max_tokens == 0
            if not (self._turn.echo or is_empty):
                continue
            text = prepared.prompt_text if self._turn.echo else ""
            for i in range(prepared.n):
                item = TurnText(prompt_index * prepared.n + i, text, "length" if is_empty else None)
                self._meter.item(item)
                self._outbox.put(item)

    async def _pump_all(self, pumps: list[tuple[Generation, PieceStream]]) -> None:
        if len(pumps) == 1:
            await self._pump(*pumps[0])
            return
        try:
            async with asyncio.TaskGroup() as group:
                for generation, pieces in pumps:
                    group.create_task(self._pump(generation, pieces))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _pump(self, generation: Generation, pieces: PieceStream) -> None:
        outbox, meter, recorder = self._outbox, self._meter, self._recorder
        async for piece in pieces:
            if isinstance(piece, UsageReport):
                generation.report(piece)
                continue
            meter.piece(piece)
            if recorder is not None:
                recorder.piece(piece)
            for item in generation.feed(piece):
                self._give(item)
            if generation.is_done:
                # Other prompts of the turn may go on: this one's choices hold nothing while they do.
                pieces.close()
                if generation.failure is not None:
                    raise generation.failure
                return
            if not piece.is_last and generation.has_ended(piece.choice):
                pieces.end_choice(piece.choice)
            if outbox.is_full:
                await self._wait_for_reader()
        raise InternalError("The engine ended this turn without a finish reason.")

    async def _wait_for_reader(self) -> None:
        timeout_s = self._runner.config.slow_reader_timeout_s
        try:
            await self._outbox.wait_for_room(timeout_s)
        except TimeoutError:
            raise slow_reader(timeout_s) from None


class TurnRunner:
    """Starts turns. One an app; holds what all turns share."""

    def __init__(
        self,
        backend: Backend,
        config: GatewayConfig,
        metrics: Metrics,
        admission: Admission,
        wall_clock: Callable[[], float],
    ) -> None:
        self.backend = backend
        self.config = config
        self.metrics = metrics
        self.models = backend.models or FixedModels(config.served_names, lambda: backend.max_model_len)
        self._admission = admission
        self._wall_clock = wall_clock
        self._live: set[LiveTurn] = set()
        self._all_ended = asyncio.Event()
        self._all_ended.set()
        # Ids are unique over restarts by their random part, and within a run by their number.
        self._run_id = token_hex(8)
        self._numbers = count(1)

    def labels(self, turn: Turn, id_prefix: str, request_id: str = "") -> TurnLabels:
        """Raises ModelNotFound, InvalidRequest."""
        model = self.models.resolve(turn.model)
        turn_id = f"{id_prefix}{self._run_id}{next(self._numbers):08x}"
        return TurnLabels(turn_id, model, int(self._wall_clock()), request_id)

    def accepted(self, turn: _TurnT) -> _TurnT:
        """The turn, without warnings that do not hold for this backend."""
        if not self.backend.forces or not turn.warnings:
            return turn
        return replace(turn, warnings=tuple(text for text in turn.warnings if not isinstance(text, Unforced)))

    def start(self, turn: Turn, labels: TurnLabels, outbox: Outbox, recorder: Recorder | None = None) -> LiveTurn:
        return LiveTurn(self, turn, labels, outbox, recorder)

    @contextmanager
    def admitted(self, live: LiveTurn) -> Iterator[None]:
        """Raises ShuttingDown, TooManyTurns."""
        self._admission.admit()
        self._live.add(live)
        self._all_ended.clear()
        try:
            yield
        finally:
            self._admission.release()
            self._live.discard(live)
            if not self._live:
                self._all_ended.set()

    async def drain(self, timeout_s: float, error: GatewayError) -> None:
        """Takes no new turns, lets running ones end, then ends those that are left with `error`."""
        self._admission.is_draining = True
        try:
            async with asyncio.timeout(timeout_s):
                await self._all_ended.wait()
        except TimeoutError:
            for live in tuple(self._live):
                live.stop(error)
            await self._all_ended.wait()
