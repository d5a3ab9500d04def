"""Brings turns to the engine's queue: those with a grammar once it is compiled, off the step loop."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from inference.grammar.errors import GrammarError
from inference.grammar.source import GrammarSource
from inference.mask_ledger import TokenMatcher
from inference.types import TurnRequest

logger = logging.getLogger("headrace.engine")

# Makes a matcher at its beginning; raises GrammarError. Slow the first time that a source is seen.
MakeMatcher = Callable[[GrammarSource], TokenMatcher]


@dataclass(frozen=True, slots=True)
class Ready:
    """A turn that can run; matchers: one a choice, if it is constrained."""

    request: TurnRequest
    matchers: tuple[TokenMatcher, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """A turn whose grammar cannot be compiled here."""

    turn_id: str
    num_choices: int
    message: str


class Submissions:
    """`submit` and `cancel` are for the thread that reads the gateway's commands; what they put is in `commands`."""

    def __init__(self, commands: queue.SimpleQueue[object], make_matcher: MakeMatcher, num_threads: int = 2) -> None:
        self._commands = commands
        self._make_matcher = make_matcher
        self._threads = ThreadPoolExecutor(num_threads, thread_name_prefix="headrace-grammar")
        self._lock = threading.Lock()
        self._compiling: set[str] = set()

    def submit(self, request: TurnRequest) -> None:
        if request.grammar is None:
            self._commands.put(Ready(request))
            return
        with self._lock:
            self._compiling.add(request.turn_id)
        self._threads.submit(self._compile, request, request.grammar)

    def cancel(self, turn_id: str) -> bool:
        """Whether the turn was still waiting for its grammar: then the engine never hears of it."""
        with self._lock:
            waited = turn_id in self._compiling
            self._compiling.discard(turn_id)
        return waited

    def _compile(self, request: TurnRequest, grammar: GrammarSource) -> None:
        outcome: Ready | Refused
        try:
            matchers = tuple(self._make_matcher(grammar) for _ in range(request.n))
            outcome = Ready(request, matchers)
        except GrammarError as error:
            outcome = Refused(request.turn_id, request.n, str(error))
        except Exception:
            logger.exception("a grammar could not be compiled")
            outcome = Refused(request.turn_id, request.n, "The grammar of this turn could not be compiled.")
        with self._lock:
            if request.turn_id in self._compiling:
                self._compiling.discard(request.turn_id)
                self._commands.put(outcome)
