"""Server-sent events in, their data out (WHATWG HTML, section 9.2), at whatever bytes the stream is cut.

Comments, names and ids are dropped. A line that is a JSON object by itself counts as data: servers that fail within a
stream print their error bare. Pure.
"""

from __future__ import annotations

import codecs
import re

_LINE_END = re.compile(r"\r\n|\n|\r")
# Far above any chunk; without a bound, a stream without line ends would fill the memory.
_MAX_EVENT_CHARS = 32 * 1024 * 1024


class EventTooLong(ValueError):
    """The stream is none of events."""


class SseReader:
    """Feed bytes as they come, then `finish`. Raises EventTooLong. O(len(data)) amortised."""

    def __init__(self) -> None:
        # A byte order mark may begin the stream, and is no part of it.
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
        self._tail: list[str] = []  # an unfinished line
        self._num_tail_chars = 0
        self._may_continue_break = False  # the last line ended with \r, and \n may follow
        self._data: list[str] = []
        self._num_data_chars = 0

    def feed(self, data: bytes) -> list[str]:
        return self._read(self._decoder.decode(data))

    def finish(self) -> list[str]:
        """The stream is over. Servers leave the last empty line out, so what is there counts."""
        events = self._read(self._decoder.decode(b"", final=True) + "\n\n")
        self._tail.clear()
        return events

    def _read(self, text: str) -> list[str]:
        if self._may_continue_break and text:
            self._may_continue_break = False
            text = text.removeprefix("\n")
        if not text:
            return []
        self._may_continue_break = text.endswith("\r")
        lines = _LINE_END.split(text)
        events: list[str] = []
        for line in lines[:-1]:
            if self._tail:
                line = "".join([*self._tail, line])
                self._tail.clear()
                self._num_tail_chars = 0
            self._line(line, events)
        if lines[-1]:
            self._tail.append(lines[-1])
            self._num_tail_chars += len(lines[-1])
        if self._num_tail_chars + self._num_data_chars > _MAX_EVENT_CHARS:
            raise EventTooLong(f"an event of more than {_MAX_EVENT_CHARS} characters")
        return events

    def _line(self, line: str, events: list[str]) -> None:
        if not line:
            if self._data:
                events.append("\n".join(self._data))
                self._data.clear()
                self._num_data_chars = 0
        elif line.startswith("{"):
            events.append(line)
        else:
            name, _, value = line.partition(":")
            if name == "data":
                value = value.removeprefix(" ")
                self._data.append(value)
                self._num_data_chars += len(value)
