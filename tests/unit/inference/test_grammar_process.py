"""In a process that follows rows, none waits for another's slow mask, and what is asked of a row comes in order. Within
this process here, with matchers that wait for the test."""

from __future__ import annotations

import marshal
import socket
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from inference.grammar_messages import (
    ACCEPT,
    ACCEPTED,
    FORCED,
    FREE,
    IS_DONE,
    MASK,
    MOST_BYTES,
    MOST_ENTRIES,
    MOST_FORCED,
)
from inference.grammar_process import FollowedRows
from inference.shared_masks import SharedMasks, word_of

_VOCAB = 64


class _Compiled:
    """What rows of one grammar share."""


class _Matcher:
    """Accepts all tokens but 13; its mask is what it has accepted, and comes when the gate is open."""

    error = ""
    lets_most_through = writes_text = False

    def __init__(self, compiled: _Compiled, *, mask_may_take_long: bool = False) -> None:
        self.compiled = compiled
        self.mask_may_take_long = mask_may_take_long
        self.lexer_lock = threading.Lock()
        self.gate = threading.Event()
        self.gate.set()
        self.accepted: list[int] = []
        self.makers: list[str] = []

    @property
    def is_done(self) -> bool:
        return len(self.accepted) >= 40

    def accept(self, token_id: int) -> bool:
        with self.lexer_lock:
            self.accepted.append(token_id)
        if token_id == 13:
            self.accepted.pop()
        return token_id != 13

    def mask(self, out: np.ndarray) -> bool:
        self.makers.append(threading.current_thread().name)
        assert self.gate.wait(20)
        out[:] = len(self.accepted)
        return self.accepted[-1] != 7

    def forced(self) -> tuple[int, ...]:
        return tuple(self.accepted[-1:])


class _Process:
    def __init__(self) -> None:
        self.shared = SharedMasks(4, _VOCAB)
        self.ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.ours.settimeout(20)
        self.rows = FollowedRows(theirs, self.shared)
        self._theirs = theirs
        self._thread = threading.Thread(target=self.rows.serve, name="serves")

    def start(self, *matchers: _Matcher) -> None:
        for number, matcher in enumerate(matchers):
            self.rows.add(number, matcher)  # type: ignore[arg-type]
        self._thread.start()

    def tell(self, kind: int, content: Any) -> None:
        self.ours.send(marshal.dumps((kind, content)))

    def hear(self) -> tuple[int, Any]:
        found: tuple[int, Any] = marshal.loads(self.ours.recv(MOST_BYTES))
        return found

    def end(self) -> None:
        self.ours.close()
        self._thread.join(20)
        assert not self._thread.is_alive()
        self._theirs.close()


@pytest.fixture
def process() -> Iterator[_Process]:
    found = _Process()
    yield found
    found.end()


def _proven(process: _Process, number: int) -> None:
    """Its grammar has been quick by now."""
    for token in range(20, 25):
        process.tell(ACCEPT, [(number, token, True)])
        assert process.hear() == (ACCEPT, [(number, ACCEPTED, "")])
        process.tell(MASK, [(number, 3, word_of(1, token, is_open=False), token)])
        kind, (told, _) = process.hear()
        assert (kind, told) == (MASK, [(token, (token,))])


def test_a_mask_is_begun_with_its_token_and_written_where_it_is_wanted(process: _Process) -> None:
    matcher = _Matcher(_Compiled())
    process.start(matcher)
    _proven(process, 0)
    assert process.shared.posted[3] == word_of(1, 24, is_open=False)
    assert process.shared.words[3].tolist() == [5, 5]
    assert matcher.makers == [*["headrace-mask_0"] * 4, "serves"], "the first ones are made apart"
    process.tell(ACCEPT, [(0, 7, True)])
    process.hear()
    process.tell(MASK, [(0, 1, word_of(2, 9, is_open=False), 50)])
    assert process.hear()[0] == MASK
    assert process.shared.posted[1] == word_of(2, 9, is_open=True), "all tokens may come"
    process.tell(ACCEPT, [(0, 13, True)])
    assert process.hear() == (ACCEPT, [(0, 0, "")])
    process.tell(FORCED, 0)
    assert process.hear() == (FORCED, (0, (7,)))


@pytest.mark.parametrize("is_proven", [True, False])
def test_no_row_waits_for_anothers_slow_mask(process: _Process, is_proven: bool) -> None:
    slow, quick = _Matcher(_Compiled(), mask_may_take_long=is_proven), _Matcher(_Compiled())
    process.start(slow, quick)
    _proven(process, 1)
    slow.gate.clear()
    process.tell(ACCEPT, [(0, 5, True), (1, 6, True)])
    assert process.hear() == (ACCEPT, [(0, ACCEPTED, ""), (1, ACCEPTED, "")])
    process.tell(MASK, [(0, 0, word_of(1, 1, is_open=False), 1), (1, 1, word_of(1, 1, is_open=False), 2)])
    assert process.hear()[1][0] == [(2, (6,))]
    assert process.shared.posted.tolist()[:2] == [0, word_of(1, 1, is_open=False)]
    slow.gate.set()
    assert process.hear()[1][0] == [(1, (5,))]
    assert process.shared.posted[0] == word_of(1, 1, is_open=False)


def test_a_token_whose_lexer_is_in_use_is_answered_when_it_can_be_and_others_before(process: _Process) -> None:
    waiting, quick = _Matcher(_Compiled()), _Matcher(_Compiled())
    process.start(waiting, quick)
    for begins in (True, False):
        with waiting.lexer_lock:
            process.tell(ACCEPT, [(0, 5, begins), (1, 6, False)])
            assert process.hear() == (ACCEPT, [(1, ACCEPTED, "")])
        assert process.hear() == (ACCEPT, [(0, ACCEPTED, "")])
        process.tell(MASK, [(0, 0, word_of(1, 1, is_open=False), 1)])
        assert process.hear()[1][0] == [(1, (5,))]


def test_a_grammar_that_was_slow_once_is_kept_apart_for_a_while(
    process: _Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    matcher = _Matcher(_Compiled())
    process.start(matcher)
    _proven(process, 0)
    monkeypatch.setattr("inference.grammar_process._SLOW_S", 0.0)
    process.tell(ACCEPT, [(0, 5, True)])
    process.hear()
    process.tell(MASK, [(0, 0, word_of(1, 1, is_open=False), 1)])
    process.hear()
    monkeypatch.undo()
    process.tell(ACCEPT, [(0, 6, True)])
    process.hear()
    process.tell(MASK, [(0, 0, word_of(1, 2, is_open=False), 2)])
    process.hear()
    assert matcher.makers[-2:] == ["serves", "headrace-mask_0"]


def test_what_fails_is_said_and_the_row_goes_on_without_a_mask(
    process: _Process, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(_Matcher):
        def accept(self, token_id: int) -> bool:
            if token_id == 8:
                raise RuntimeError("no tokens today")
            return super().accept(token_id)

        def mask(self, out: np.ndarray) -> bool:
            raise RuntimeError("no masks today")

    process.start(Broken(_Compiled()))
    process.tell(ACCEPT, [(0, 5, True)])
    process.hear()
    process.tell(MASK, [(0, 0, word_of(1, 1, is_open=False), 1)])
    process.hear()
    assert process.shared.posted[0] == word_of(1, 1, is_open=True)
    process.tell(ACCEPT, [(0, 8, True)])
    assert process.hear() == (ACCEPT, [(0, 0, "the grammar's library failed: no tokens today")])
    assert "a mask could not be computed" in caplog.text


def test_a_row_that_is_left_while_its_mask_is_made_takes_nobody_along(process: _Process) -> None:
    left, quick = _Matcher(_Compiled(), mask_may_take_long=True), _Matcher(_Compiled())
    process.start(left, quick)
    left.gate.clear()
    process.tell(ACCEPT, [(0, 5, True)])
    process.hear()
    process.tell(FREE, [0])
    process.tell(ACCEPT, [(1, token, False) for token in range(20, 60)])
    assert process.hear()[1][-1] == (1, ACCEPTED | IS_DONE, "")
    left.gate.set()


def test_what_is_told_of_many_rows_fits_its_messages(process: _Process) -> None:
    class Wordy(_Matcher):
        error = "x" * 100_000

        def forced(self) -> tuple[int, ...]:
            return tuple(range(100_000, 200_000))

    rows = [Wordy(_Compiled()) for _ in range(MOST_ENTRIES)]
    process.start(*rows)
    process.tell(ACCEPT, [(number, 5, False) for number in range(len(rows))])
    kind, content = process.hear()
    assert (kind, [number for number, _, _ in content]) == (ACCEPT, list(range(len(rows))))
    process.tell(MASK, [(number, 0, word_of(1, 1, is_open=False), number) for number in range(len(rows))])
    told: dict[int, int] = {}
    while len(told) < len(rows):
        kind, (content, _) = process.hear()
        assert kind == MASK
        told |= {serial: len(forced) for serial, forced in content}
    assert set(told.values()) == {MOST_FORCED}
