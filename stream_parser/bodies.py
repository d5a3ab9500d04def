"""Readers of a call's body: the part they share, and the two simplest of them.

A reader is fed the text behind a call's head. It writes JSON text through a `CallWriter` as soon as that is certain
and says how far it has read; what it leaves unread is given to it again, with more text behind it. Knows nothing of
regions.
"""

from __future__ import annotations

import re
from enum import Enum, auto

from stream_parser.calls import CallWriter
from stream_parser.grammar import CompiledCall, Ends
from stream_parser.json_text import escaped, quoted
from stream_parser.repair import CUT, UNCLOSED_CALL

_BLANK = re.compile(r"\s*")
_SURPLUS = "}])`"
_SURPLUS_TAIL = re.compile(r"(?:\s*(?:[}\])]|`{3}))*")
_FENCE_PARTIAL = re.compile(r"\s*(?:`{1,2})?\Z")


class Status(Enum):
    OPEN = auto()
    DONE = auto()  # the text from the returned position on belongs to the region behind the call
    REJECTED = auto()  # no call after all; nothing was written


class BodyReader:
    """The contract of all readers, and the phase between a complete body and its closers.

    `confirmed` is False as long as what was read may turn out to be no call; then the caller must be able to give it
    back as text. `in_string` tells that a marker met now would be data.
    """

    __slots__ = ("compiled", "confirmed", "ends", "leftover", "status", "writer")

    def __init__(self, compiled: CompiledCall, writer: CallWriter) -> None:
        self.compiled = compiled
        self.leftover = ""  # text held by the reader that belongs before what it left unread
        self.ends: Ends = compiled.ends
        self.writer = writer
        self.status = Status.OPEN
        self.confirmed = True

    @property
    def in_string(self) -> bool:
        return False

    def feed(self, text: str, pos: int) -> int:
        """Read text[pos:]; return the index up to which it was read. O(len(text) - pos)."""
        raise NotImplementedError

    def end(self, text: str, pos: int, natural: bool) -> None:
        """Input is over with text[pos:] unread. `natural`: the model stopped; else it was cut."""
        if self.writer.is_open:
            if natural:
                self.writer.note(UNCLOSED_CALL)
                self.writer.end()
            else:
                self.writer.cut(CUT)
        else:
            self.give_back(text[pos:], natural)
        self.status = Status.DONE

    def give_back(self, held: str, natural: bool) -> None:
        """The call was whole: what waited behind it is text, unless it began a closer or, when cut, the next call."""
        solid = held.strip()
        closed = self.ends.has_close or self.ends.has_tail
        if solid and not self.ends.partial.match(solid) and (natural or not closed):
            self.leftover = held

    def read_closers(self, text: str, pos: int) -> int:
        """Behind the body: skip surplus brackets and blanks, take the call's closers, then be done."""
        ends = self.ends
        if not (ends.has_close or ends.has_tail):
            return self._read_surplus(text, pos)
        while True:
            start = pos
            pos = _BLANK.match(text, pos).end()  # type: ignore[union-attr]
            if pos == len(text):
                return start
            closed = ends.close.match(text, pos)
            if closed:
                self.status = Status.DONE
                return closed.end()
            tail = ends.tail.match(text, pos)
            if tail:
                pos = tail.end()
                if ends.has_close:
                    continue
                self.status = Status.DONE
                return pos
            if ends.boundary_partial.match(text, pos):
                return start
            if text[pos] not in _SURPLUS or ends.boundary.match(text, pos):
                self.status = Status.DONE
                return start
            pos += 1

    def _read_surplus(self, text: str, pos: int) -> int:
        """A call without closers ends with its body, but for brackets and a fence too many."""
        end = _SURPLUS_TAIL.match(text, pos).end()  # type: ignore[union-attr]
        if _FENCE_PARTIAL.match(text, end):
            return end
        self.status = Status.DONE
        return end


class RawReader(BodyReader):
    """X: everything up to the end of the call is one string."""

    __slots__ = ("_argument", "_complete", "_started")

    def __init__(self, compiled: CompiledCall, writer: CallWriter, argument: str) -> None:
        super().__init__(compiled, writer)
        self._argument = argument
        self._started = False
        self._complete = False

    @property
    def in_string(self) -> bool:
        return not self._complete

    def feed(self, text: str, pos: int) -> int:
        if self._complete:
            return self.read_closers(text, pos)
        if not self._started:
            self._started = True
            self.writer.write("{" + quoted(self._argument) + ': "')

        at = pos
        while at < len(text):
            if text[at] in self.ends.stops:
                if self.ends.boundary.match(text, at):
                    self._write(text[pos:at])
                    self._finish()
                    return self.read_closers(text, at)
                if self.ends.boundary_partial.match(text, at):
                    break
            at = self._next_stop(text, at + 1)
        self._write(text[pos:at])
        return at

    def end(self, text: str, pos: int, natural: bool) -> None:
        if self.writer.is_open and self._started and natural:
            self._write(text[pos:])
            self._finish()
            pos = len(text)
        super().end(text, pos, natural)

    def _next_stop(self, text: str, pos: int) -> int:
        found = [at for at in (text.find(char, pos) for char in self.ends.stops) if at >= 0]
        return min(found, default=len(text))

    def _write(self, text: str) -> None:
        self.writer.write(escaped(text))

    def _finish(self) -> None:
        self._complete = True
        self.writer.write('"}')
        self.writer.end()


class EmptyReader(BodyReader):
    """The head was the whole call."""

    __slots__ = ("_ended",)

    def __init__(self, compiled: CompiledCall, writer: CallWriter) -> None:
        super().__init__(compiled, writer)
        self._ended = False

    def feed(self, text: str, pos: int) -> int:
        if not self._ended:
            self._ended = True
            self.writer.end()
        return self.read_closers(text, pos)
