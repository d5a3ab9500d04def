"""A row's matcher that lives in another process: what the engine knows of it, and how it asks for more."""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from inference.grammar_messages import ACCEPTED, IS_DONE, LETS_MOST_THROUGH, WRITES_TEXT, Made

_DEAD = "the process that checks grammars has ended"
_REFUSED = "a token that must come was refused"


class Home(Protocol):
    """The process: see inference.remote_grammars.GrammarProcess."""

    @property
    def is_dead(self) -> bool: ...

    def leave(self, number: int) -> None: ...

    def tell(self, matcher: RemoteMatcher, token_id: int, *, begins: bool) -> None: ...

    def ask_forced(self, matcher: RemoteMatcher) -> tuple[int, ...]: ...

    def read(self) -> bool: ...

    def look_for_news(self, matcher: RemoteMatcher) -> None: ...

    def wait_for_news(self) -> None: ...


class RemoteMatcher:
    """A TokenMatcher of one row, in another process. What is asked of it waits for what it was told before."""

    __slots__ = (
        "__weakref__", "_assumed", "_error", "_expected", "_forced", "_has_mask", "_num_sent", "_serial", "_state",
        "number", "process",
    )  # fmt: skip

    def __init__(self, process: Home, made: Made) -> None:
        self.process, self.number = process, made.matcher
        self._state, self._error = made.state, made.error
        self._forced: tuple[int, ...] | None = made.forced  # None: not known here
        self._has_mask = False
        self._serial = 0  # of the mask that was asked for last
        self._expected: int | None = None
        self._num_sent = 0  # tokens that have not been answered
        self._assumed: deque[bool] = deque()  # of each, whether somebody has been told that it is accepted

    def __del__(self) -> None:
        self.process.leave(self.number)

    @property
    def is_done(self) -> bool:
        self._settle()
        return bool(self._state & IS_DONE)

    @property
    def error(self) -> str:
        self._settle()
        return self._error

    @property
    def lets_most_through(self) -> bool:
        self._settle()
        return bool(self._state & LETS_MOST_THROUGH)

    @property
    def writes_text(self) -> bool:
        self._settle()
        return bool(self._state & WRITES_TEXT)

    @property
    def has_mask(self) -> bool:
        if not self._has_mask:
            self.process.read()
        return self._has_mask

    @property
    def is_answered(self) -> bool:
        if self._num_sent:
            self.process.look_for_news(self)
        return not self._num_sent

    @property
    def is_waiting(self) -> bool:
        """Has something been told to its process that has not been answered?"""
        return self._num_sent > 0

    def expect(self, token_id: int) -> None:
        self._expected = token_id
        self._tell(token_id, begins=True)

    def accept(self, token_id: int) -> bool:
        if self._expected is None:
            if self._forced and self._forced[0] == token_id:
                # No need to wait: it was said that this one comes.
                forced = self._forced[1:]
                self._tell(token_id, is_assumed=True)
                self._forced = forced
                return True
            self._tell(token_id)
        assert self._expected in (None, token_id), "another token was announced"
        self._expected = None
        self._settle()
        return bool(self._state & ACCEPTED)

    def forced(self) -> tuple[int, ...]:
        if self._forced is None:
            is_text = self.lets_most_through or self.writes_text
            self._forced = () if is_text else self.process.ask_forced(self)
        return self._forced

    def mask(self, out: Any) -> bool:
        raise NotImplementedError("its process writes masks where they are wanted: see RemoteMasks")

    def begin_mask(self, serial: int) -> None:
        self._serial = serial

    def mask_came(self, serial: int, forced: tuple[int, ...]) -> None:
        if serial == self._serial:
            self._has_mask, self._forced = True, forced

    def answer(self, state: int, error: str) -> None:
        """To the oldest token that has none."""
        self._num_sent -= 1
        self._state = state
        self._error = error or (_REFUSED if self._assumed.popleft() and not state & ACCEPTED else "")

    def give_up(self) -> None:
        """Nothing will be answered any more."""
        self._num_sent, self._state, self._error = 0, 0, _DEAD
        self._assumed.clear()
        self._has_mask = True

    def _tell(self, token_id: int, *, begins: bool = False, is_assumed: bool = False) -> None:
        self._has_mask, self._forced = False, None
        self._serial = 0
        self._num_sent += 1
        self._assumed.append(is_assumed)
        self.process.tell(self, token_id, begins=begins)

    def _settle(self) -> None:
        while self._num_sent:
            if self.process.is_dead:
                self.give_up()
            else:
                self.process.wait_for_news()
