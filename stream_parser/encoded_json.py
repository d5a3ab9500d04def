"""JSON that was encoded once too often: a JSON string that holds the object, or an object whose quotes are escaped.

It is decoded as it arrives and handed to the machine that reads the object.
"""

from __future__ import annotations

import re
from typing import Literal

from stream_parser import repair
from stream_parser.string_style import read_escape
from stream_parser.value_machine import ValueMachine

_RUN = re.compile(r"[^\"'\\“”‘’]+")
_SIMPLE = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_CLOSERS = {'"': '"', "'": "'", "“": "”", "”": "”", "‘": "’", "’": "’"}

QUOTES = frozenset(_CLOSERS)

# blank: not known yet; encoded: an object with escaped quotes; unescaped: an object that merely has a quote in front,
# and behind it (tail) perhaps another one; plain: a string that holds no object.
_Mode = Literal["blank", "encoded", "unescaped", "tail", "plain"]


def decode_escape(text: str) -> str:
    """The text that an escape, as `read_escape` gives it, stands for."""
    if text.startswith("\\u"):
        return "".join(chr(int(code, 16)) for code in text.split("\\u")[1:])
    return _SIMPLE.get(text[1:], text[1:]) if text.startswith("\\") else text


class EncodedJson:
    """Feeds `machine` with what the text between `quote`s decodes to. Without a quote, everything is decoded.

    The machine must be fresh where there is a quote. Text that turns out to be a plain string is passed on as one.
    """

    def __init__(self, machine: ValueMachine, quote: str) -> None:
        self.done = False
        self.stopped = False
        self._machine = machine
        self._quote = quote
        self._closer = _CLOSERS.get(quote, "")
        self._held = ""  # an escape that is not whole
        self._start = ""  # text before the first sign of what this is
        self._mode: _Mode = "blank" if quote else "encoded"
        if not quote:
            machine.output.note(repair.DOUBLE_ENCODED)

    def feed(self, text: str, pos: int) -> int:
        self.stopped = False
        while pos < len(text) and not self.done and not self.stopped:
            if self._mode == "plain":
                pos = self._machine.feed(text, pos)
                self.done = self._machine.done
            elif self._mode == "unescaped":
                pos = self._machine.feed(text, pos)
                self._mode = "tail" if self._machine.done else "unescaped"
            elif self._mode == "tail":
                pos = self._read_tail(text, pos)
            elif self._held:
                self._held += text[pos]
                pos += 1
                self._read_escape()
            else:
                pos = self._read(text, pos)
        return pos

    def force(self, text: str, pos: int) -> int:
        self._machine.force(text[pos])
        self._update()
        return self.feed(text, pos + 1)

    def end(self, complete: bool) -> None:
        if self.done or not complete:
            return
        if self._held:
            held, self._held = self._held, ""
            self._pass(held, held)
        self._close()

    def _read(self, text: str, pos: int) -> int:
        run = _RUN.match(text, pos)
        if run is not None:
            return pos + self._pass(run[0], run[0])
        char = text[pos]
        if char == "\\":
            self._held = char
            return pos + 1
        if not self._closer or not self._ends_at(char):
            return pos + self._pass(char, char)
        if char == '"' and self._start == "{":
            # The quotes inside are not escaped, so the one in front was a stray one.
            self._machine.output.note(repair.QUOTES)
            self._mode = "unescaped"
            return pos
        self._close()
        return pos + 1

    def _ends_at(self, char: str) -> bool:
        """Quotes of other kinds than JSON's end the string behind a whole object only: they are apostrophes as well."""
        return char == self._closer and (char == '"' or self._machine.done)

    def _read_escape(self) -> None:
        escape = read_escape(self._held, "json")
        if escape is not None:
            raw, rest = self._held[: escape.length], self._held[escape.length :]
            self._held = ""
            decoded = decode_escape(escape.text)
            if self._pass(decoded, raw) < len(decoded) and self._machine.stopped:
                self._machine.force(decoded)
                self._update()
            end = self.feed(rest, 0)
            while self.stopped:
                end = self.force(rest, end)

    def _pass(self, text: str, raw: str) -> int:
        """Hand decoded text on; returns how much of it was read. `raw`: the same before decoding."""
        machine = self._machine
        if self._mode == "blank":
            return self._begin(text, raw)
        end = machine.feed(text)
        if self._quote and text[end:].strip():
            machine.output.note(repair.STRAY_TEXT)
        self._start = (self._start + text.strip())[:2]
        self._update()
        return len(text) if self._quote else end

    def _read_tail(self, text: str, pos: int) -> int:
        if text[pos] in " \t\r\n":
            return pos + 1
        self.done = True
        return pos + (text[pos] == self._closer)

    def _update(self) -> None:
        self.stopped = self._machine.stopped
        self.done = self._machine.done and not self._quote

    def _begin(self, text: str, raw: str) -> int:
        """The first text that is not blank says whether the string holds an object."""
        word = text.lstrip()
        if not word:
            self._start += raw
        elif word[0] in "{[":
            self._mode = "encoded"
            self._start = ""
            self._machine.output.note(repair.DOUBLE_ENCODED)
            self._pass(word, word)
        else:
            self._mode = "plain"
            self._machine.feed(self._quote + self._start + raw)
        return len(text)

    def _close(self) -> None:
        machine = self._machine
        if self._mode == "blank":
            machine.output.note(repair.EMPTY_ARGUMENTS)
            machine.output.write("{}")
        else:
            machine.end(True)
        self.done = True
