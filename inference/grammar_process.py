"""A process that follows constrained rows through their grammars, beside the engine's: it checks their tokens and
writes their masks where the device reads them, and the engine's interpreter is left to the steps.

Started by inference.remote_grammars as `python -m inference.grammar_process TOKENS REQUESTS MASKS`: its ends of two
sockets, and the memory of the masks. A Setup comes first over REQUESTS, and then grammars, to be made matchers of.
TOKENS carries what every step brings, in marshalled tuples. The process ends when TOKENS closes.
"""

from __future__ import annotations

import gc
import logging
import marshal
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from inference import channel
from inference.grammar.compile import GrammarCompiler
from inference.grammar.compiled_source import CompiledSource
from inference.grammar.errors import GrammarError
from inference.grammar.matcher import Matcher
from inference.grammar.source import GrammarSource
from inference.grammar_messages import (
    ACCEPT,
    ACCEPTED,
    FORCED,
    IS_DONE,
    LETS_MOST_THROUGH,
    MASK,
    MOST_BYTES,
    MOST_ERROR_CHARS,
    MOST_FORCED,
    MOST_TOLD_TOKENS,
    SPIN_S,
    WRITES_TEXT,
    Made,
    NotMade,
    Setup,
)
from inference.shared_masks import SharedMasks

logger = logging.getLogger("headrace.engine")

_WAIT_S = 0.00005
# Threads for what may take long, and as many lexers of one grammar.
_NUM_SLOW = 4
# The first masks of a grammar are made where they hold up nobody, and so many after one that took this long.
_FIRST_MASKS, _MASKS_AFTER_SLOW, _SLOW_S = 4, 64, 0.002
_FAILED = "the grammar's library failed"


class _Mask:
    """A matcher's next mask, as it is made. done: None until it is there, then whether anything is ruled out; forced:
    what must come next, then. job: where it is wanted, (row, word, serial). is_slow: another thread is at it, and at
    its matcher."""

    __slots__ = ("done", "forced", "is_slow", "job", "matcher", "words")

    def __init__(self, matcher: Matcher, num_words: int, *, is_slow: bool) -> None:
        self.matcher = matcher
        self.words: npt.NDArray[np.int32] = np.empty(num_words, np.int32)
        self.done: bool | None = None
        self.forced: tuple[int, ...] = ()
        self.job: tuple[int, int, int] | None = None
        self.is_slow = is_slow


class FollowedRows:
    """The matchers of this process. Most masks are made as soon as a token is accepted, before anybody asks: by the
    thread that serves, or by another if that may take long, as may a token whose lexer is in use."""

    def __init__(self, tokens: socket.socket, shared: SharedMasks) -> None:
        self._tokens = tokens
        self._words, self._posted = [row.data for row in shared.words], shared.posted.data
        self._num_words = shared.words.shape[1]
        self._matchers: dict[int, Matcher] = {}
        self._masks: dict[int, _Mask] = {}
        self._lock = threading.Lock()  # of `done` and `job`
        # How many masks more of a grammar are to be made apart.
        self._unproven: WeakKeyDictionary[CompiledSource, int] = WeakKeyDictionary()
        self._slow = ThreadPoolExecutor(_NUM_SLOW, thread_name_prefix="headrace-mask")
        self._seconds = 0.0

    def add(self, number: int, matcher: Matcher) -> None:
        self._matchers[number] = matcher

    def serve(self) -> None:
        """Until the other side is gone."""
        while data := self._receive():
            kind, content = marshal.loads(data)
            if kind == ACCEPT:
                self._accept(content)
            elif kind == MASK:
                self._post(content)
            elif kind == FORCED:
                self._settled(content)
                self._send((FORCED, (content, _forced(self._matchers[content]))))
            else:
                for number in content:
                    del self._matchers[number]
                    self._masks.pop(number, None)

    def _receive(self) -> bytes:
        give_up_at = time.perf_counter() + SPIN_S
        while self._matchers and time.perf_counter() < give_up_at:
            try:
                return self._tokens.recv(MOST_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                continue
        return self._tokens.recv(MOST_BYTES)

    def _accept(self, tokens: list[tuple[int, int, bool]]) -> None:
        accepted = []
        for number, token_id, begins in tokens:
            self._settled(number)
            matcher = self._matchers[number]
            if matcher.lexer_lock.locked():
                mask = self._masks[number] = _Mask(matcher, self._num_words, is_slow=True)
                self._slow.submit(self._accept_slowly, number, mask, token_id, begins)
            else:
                accepted.append((number, *_accepted(matcher, token_id), begins))
        self._send((ACCEPT, [(number, state, error) for number, state, error, _ in accepted]))
        for number, state, error, begins in accepted:
            if begins and _wants_mask(state, error):
                self._begin(number)

    def _accept_slowly(self, number: int, mask: _Mask, token_id: int, begins: bool) -> None:
        state, error = _accepted(mask.matcher, token_id)
        if begins and _wants_mask(state, error):
            self._send((ACCEPT, [(number, state, error)]))
            self._make_slowly(mask)
        else:
            self._masks.pop(number, None)
            mask.is_slow = False
            self._send((ACCEPT, [(number, state, error)]))

    def _settled(self, number: int) -> None:
        """The matcher is nobody's but the caller's, and its mask, if there is one, is forgotten."""
        mask = self._masks.get(number)
        while mask is not None and mask.is_slow:
            time.sleep(_WAIT_S)
        self._masks.pop(number, None)

    def _begin(self, number: int) -> _Mask:
        matcher = self._matchers[number]
        is_slow = matcher.mask_may_take_long or self._unproven.get(matcher.compiled, _FIRST_MASKS) > 0
        mask = self._masks[number] = _Mask(matcher, self._num_words, is_slow=is_slow)
        if is_slow:
            self._slow.submit(self._make_slowly, mask)
        else:
            self._make(mask)
        return mask

    def _make(self, mask: _Mask) -> None:
        matcher, counts = mask.matcher, not mask.matcher.mask_may_take_long
        started = time.perf_counter()
        try:
            done = matcher.mask(mask.words)
            mask.forced = () if matcher.is_done else matcher.forced()[:MOST_FORCED]
        except BaseException:
            # No row must wait for ever: what it draws without a mask is refused, and the turn ends with that.
            logger.exception("a mask could not be computed")
            done = False
        seconds = time.perf_counter() - started
        self._seconds += seconds
        if counts:
            left = self._unproven.get(matcher.compiled, _FIRST_MASKS)
            if seconds > _SLOW_S or left:
                self._unproven[matcher.compiled] = _MASKS_AFTER_SLOW if seconds > _SLOW_S else left - 1
        with self._lock:
            mask.done = done

    def _make_slowly(self, mask: _Mask) -> None:
        self._make(mask)
        if mask.job is not None:  # it came before the mask
            self._finish([(mask, mask.job)])
        mask.is_slow = False

    def _post(self, jobs: list[tuple[int, int, int, int]]) -> None:
        ready = []
        for number, row, word, serial in jobs:
            mask = self._masks.get(number) or self._begin(number)
            with self._lock:
                if mask.done is None:
                    mask.job = (row, word, serial)
                else:
                    ready.append((mask, (row, word, serial)))
        if ready:
            self._finish(ready)

    def _finish(self, ready: list[tuple[_Mask, tuple[int, int, int]]]) -> None:
        for mask, (row, word, _) in ready:
            if mask.done:
                self._words[row][:] = mask.words.data
            # Behind the mask, in which order a device takes them.
            self._posted[row] = word | (not mask.done)
        told: list[tuple[int, tuple[int, ...]]] = []
        num_tokens = 0
        for mask, (_, _, serial) in ready:
            told.append((serial, mask.forced))
            num_tokens += len(mask.forced)
            if num_tokens > MOST_TOLD_TOKENS:
                self._tell(told)
                told, num_tokens = [], 0
        self._tell(told)

    def _tell(self, told: list[tuple[int, tuple[int, ...]]]) -> None:
        """That these masks are there."""
        seconds, self._seconds = self._seconds, 0.0
        self._send((MASK, (told, seconds)))

    def _send(self, message: tuple[int, Any]) -> None:
        try:
            self._tokens.send(marshal.dumps(message))
        except OSError:
            os._exit(0)  # the engine is gone


def _accepted(matcher: Matcher, token_id: int) -> tuple[int, str]:
    """The state that a token leaves, and what is wrong with it."""
    try:
        accepted = matcher.accept(token_id)
        return state_of(matcher, accepted), matcher.error[:MOST_ERROR_CHARS]
    except BaseException as failure:  # the library's panics are no Exceptions
        logger.exception("a token could not be checked")
        return 0, f"{_FAILED}: {failure}"[:MOST_ERROR_CHARS]


def _wants_mask(state: int, error: str) -> bool:
    return state & (ACCEPTED | IS_DONE | LETS_MOST_THROUGH) == ACCEPTED and not error


def state_of(matcher: Matcher, accepted: bool) -> int:
    passes = matcher.lets_most_through * LETS_MOST_THROUGH | matcher.writes_text * WRITES_TEXT
    return accepted * ACCEPTED | matcher.is_done * IS_DONE | passes


def _forced(matcher: Matcher) -> tuple[int, ...]:
    """() as well where finding out would take long: then what is forced is drawn."""
    try:
        return () if matcher.is_done or matcher.lexer_lock.locked() else matcher.forced()[:MOST_FORCED]
    except BaseException:
        logger.exception("what is forced could not be found out")
        return ()


def _answer(requests: socket.socket, compiler: GrammarCompiler, rows: FollowedRows) -> None:
    """Makes matchers, in a thread of its own."""
    number = 0
    try:
        while True:
            source: GrammarSource = channel.receive(requests)
            answer: Made | NotMade
            try:
                matcher = compiler.matcher(source)
                number += 1
                rows.add(number, matcher)
                answer = Made(number, state_of(matcher, True), matcher.error, _forced(matcher))
            except GrammarError as error:
                answer = NotMade(str(error))
            except BaseException:
                logger.exception("a grammar could not be compiled")
                answer = NotMade("The grammar of this turn could not be compiled.")
            requests.sendall(channel.encode(answer))
    except (EOFError, OSError):
        return


def main(argv: Iterable[str]) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the engine decides when to end
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    tokens_end, requests_end, masks = map(int, argv)
    tokens, requests = socket.socket(fileno=tokens_end), socket.socket(fileno=requests_end)
    try:
        setup: Setup = channel.receive(requests)
    except EOFError:
        return 0
    try:
        compiler = GrammarCompiler.from_folder(
            setup.folder, setup.vocab_size, setup.end_token_ids, num_replicas=_NUM_SLOW
        )
    except Exception as error:
        logger.error("grammars cannot be followed: %s: %s", setup.folder / "tokenizer.json", error)
        return 1
    gc.collect()
    gc.freeze()  # lists as long as the vocabulary, which stay
    rows = FollowedRows(tokens, SharedMasks.attached(setup.num_rows, setup.vocab_size, masks))
    threading.Thread(target=_answer, args=(requests, compiler, rows), daemon=True).start()
    with suppress(ConnectionError):
        rows.serve()
    os._exit(0)  # whatever its threads are at


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
