"""The engine's side of the processes that follow constrained rows (inference.grammar_process): what is told to and by
them. Of the sockets, those with tokens are the engine thread's; matchers may be made in any thread."""

from __future__ import annotations

import logging
import marshal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Any

from inference import channel
from inference.grammar.errors import GrammarError
from inference.grammar.source import GrammarSource
from inference.grammar_messages import (
    ACCEPT,
    FORCED,
    FREE,
    MASK,
    MOST_BYTES,
    MOST_ENTRIES,
    SPIN_S,
    Made,
    NotMade,
    Setup,
)
from inference.mask_ledger import MaskJob
from inference.remote_matcher import RemoteMatcher
from inference.shared_masks import SharedMasks, word_of

logger = logging.getLogger("headrace.engine")

# For a token's answer the engine waits so long; then others go on, and the row when it comes.
_PATIENCE_S = 0.001
_MOST_COMPILED = 256  # as GrammarCompiler keeps


class GrammarProcess:
    """One of them, and its matchers. num_computed, seconds: masks, and what they took."""

    def __init__(self, siblings: GrammarProcesses, setup: Setup, shared: SharedMasks) -> None:
        self._siblings = siblings
        self.is_dead = False
        self.num_computed, self.seconds = 0, 0.0
        self.finished: list[int] = []  # serials of masks that have come and that nobody has been told of
        self._matchers: weakref.WeakValueDictionary[int, RemoteMatcher] = weakref.WeakValueDictionary()
        self._wanted: dict[int, weakref.ref[RemoteMatcher]] = {}  # masks, by their serials
        self._to_tell: list[tuple[int, int, bool]] = []
        self._told_at = 0.0
        self._left: deque[int] = deque()  # matchers that nobody has any more
        self._making = threading.Lock()
        self._compiled: OrderedDict[GrammarSource, None] = OrderedDict()  # here, the latest last
        self._answered: tuple[int, tuple[int, ...]] | None = None
        self._tokens, their_tokens = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._requests, their_requests = socket.socketpair()
        theirs = (their_tokens.fileno(), their_requests.fileno(), shared.descriptor)
        with their_tokens, their_requests:
            # Before it can have ended.
            self._requests.sendall(channel.encode(setup))
            self._process = subprocess.Popen(
                [sys.executable, "-m", "inference.grammar_process", *map(str, theirs)], pass_fds=theirs,
                stdin=subprocess.DEVNULL, start_new_session=True,  # a terminal's Ctrl-C is the gateway's
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def num_matchers(self) -> int:
        return len(self._matchers)

    def make(self, source: GrammarSource) -> RemoteMatcher:
        """Raises GrammarError, and EOFError if the process has ended. Waits for the first ones of a source."""
        with self._making:
            try:
                self._requests.sendall(channel.encode(source))
                answer: Made | NotMade = channel.receive(self._requests)
            except OSError as error:
                raise EOFError from error
            if isinstance(answer, NotMade):
                raise GrammarError("", answer.message)
            matcher = self._matchers[answer.matcher] = RemoteMatcher(self, answer)
            self._compiled[source] = None
            self._compiled.move_to_end(source)
            while len(self._compiled) > _MOST_COMPILED:
                self._compiled.popitem(last=False)
        return matcher

    def has_compiled(self, source: GrammarSource) -> bool:
        return source in self._compiled

    def leave(self, number: int) -> None:
        self._left.append(number)

    def tell(self, matcher: RemoteMatcher, token_id: int, *, begins: bool) -> None:
        """Sent with the next thing that is, or once somebody waits for its outcome."""
        self._to_tell.append((matcher.number, token_id, begins))

    def send_told(self) -> None:
        if self._to_tell:
            told, self._to_tell = self._to_tell, []
            self._told_at = time.perf_counter()
            self._send_all(ACCEPT, told)
        if self._left:
            self._send_all(FREE, [self._left.popleft() for _ in range(len(self._left))])

    def begin(self, jobs: Sequence[tuple[MaskJob, int]]) -> None:
        """Have these masks made, each with its serial. A row's matcher is one of this process's."""
        self.send_told()
        asked = []
        for job, serial in jobs:
            matcher = job.matcher
            assert isinstance(matcher, RemoteMatcher)
            matcher.begin_mask(serial)
            self._wanted[serial] = weakref.ref(matcher)
            asked.append((matcher.number, job.row, word_of(job.holder, job.position, is_open=False), serial))
        self._send_all(MASK, asked)
        if self.is_dead:
            self._finish_all()

    def ask_forced(self, matcher: RemoteMatcher) -> tuple[int, ...]:
        self.send_told()
        self._answered = None
        self._send((FORCED, matcher.number))
        while self._answered is None:
            if self.is_dead:
                return ()
            self.wait_for_news()
        assert self._answered[0] == matcher.number
        return self._answered[1]

    def wait_for_news(self) -> None:
        """Until something has been told; what is to be told goes first, to all processes."""
        self._siblings.send_told()
        self.send_told()  # if this one has been replaced
        stop_looking_at = time.perf_counter() + SPIN_S
        while not self.read() and not self.is_dead:
            if time.perf_counter() > stop_looking_at:
                self._take(self._receive(0))
                return

    def look_for_news(self, matcher: RemoteMatcher) -> None:
        """Of what it was told, for a moment: until there is, or all have waited long enough since they were told."""
        self._siblings.send_told()
        self.send_told()
        self.read()
        while matcher.is_waiting and not self.is_dead and time.perf_counter() < self._told_at + _PATIENCE_S:
            self.read()
        if self.is_dead:
            matcher.give_up()

    def read(self) -> bool:
        """Take in what has been told by now; whether there was anything."""
        found = False
        while not self.is_dead:
            try:
                data = self._receive(socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            self._take(data)
            found = True
        return found

    def close(self) -> None:
        self._tokens.close()
        self.close_requests()

    def close_requests(self) -> None:
        """It is ending. From any thread; idempotent."""
        self._requests.close()
        self._process.wait()

    def _receive(self, flags: int) -> bytes:
        try:
            return self._tokens.recv(MOST_BYTES, flags)
        except BlockingIOError:
            raise
        except OSError:
            return b""

    def _take(self, data: bytes) -> None:
        if not data:
            self._die()
            return
        kind, content = marshal.loads(data)
        if kind == ACCEPT:
            for number, state, error in content:
                matcher = self._matchers.get(number)
                if matcher is not None:
                    matcher.answer(state, error)
        elif kind == MASK:
            told, seconds = content
            self.num_computed += len(told)
            self.seconds += seconds
            for serial, forced in told:
                matcher = self._wanted.pop(serial)()
                if matcher is not None:
                    matcher.mask_came(serial, forced)
                self.finished.append(serial)
        else:
            self._answered = content

    def _send_all(self, kind: int, entries: list[Any]) -> None:
        for start in range(0, len(entries), MOST_ENTRIES):
            self._send((kind, entries[start : start + MOST_ENTRIES]))

    def _send(self, message: tuple[int, Any]) -> None:
        if self.is_dead:
            return
        try:
            self._tokens.send(marshal.dumps(message))
        except OSError:
            self._die()

    def _die(self) -> None:
        """Its turns end with an error, each at its next token."""
        if self.is_dead:
            return
        self.is_dead = True
        logger.error("a process that checks grammars has ended, with its turns; another one takes its place")
        for reference in self._matchers.valuerefs():  # a list, as others may be making matchers
            matcher = reference()
            if matcher is not None:
                matcher.give_up()
        self._finish_all()
        self._tokens.close()

    def _finish_all(self) -> None:
        self.finished += self._wanted
        self._wanted.clear()


class GrammarProcesses:
    """As many as `count`; one that ends is replaced when the next matcher is made."""

    def __init__(self, setup: Setup, shared: SharedMasks, count: int) -> None:
        self._setup, self.shared = setup, shared
        self._lock = threading.Lock()
        self.all = [GrammarProcess(self, setup, shared) for _ in range(count)]
        self._replaced: list[GrammarProcess] = []

    def matcher(self, source: GrammarSource) -> RemoteMatcher:
        """At its beginning, in the process that follows fewest rows; of several, in one that has compiled the source.

        Raises GrammarError.
        """
        for _ in range(len(self.all) + 1):
            process = min(self.all, key=lambda process: (process.num_matchers, not process.has_compiled(source)))
            try:
                return process.make(source)
            except EOFError:
                self._replace(process)
        raise GrammarError("", "the processes that check grammars end as soon as they begin: see the engine's log.")

    def send_told(self) -> None:
        for process in self.all:
            process.send_told()

    def close(self) -> None:
        for process in (*self.all, *self._replaced):
            process.close()

    def _replace(self, dead: GrammarProcess) -> None:
        with self._lock:
            if dead in self.all:
                self.all[self.all.index(dead)] = GrammarProcess(self, self._setup, self.shared)
                dead.close_requests()
                # What the engine's thread reads of it, it closes, if it ever does.
                self._replaced = [process for process in (*self._replaced, dead) if not process.is_dead]
