"""Reader for call expressions (P): `[f(a=1), g(b='x')]`, or one call a line.

Names and keywords are read here, each literal by a `PythonScanner`, so a long string argument streams. The head has
consumed the first name and its parenthesis.
"""

from __future__ import annotations

import re
from enum import Enum, auto

from stream_parser.bodies import BodyReader, Status
from stream_parser.calls import CallWriter
from stream_parser.grammar import CompiledCall
from stream_parser.json_scanner import JsonScanner, ValueScanner
from stream_parser.json_text import quoted
from stream_parser.python_args import PythonScanner
from stream_parser.repair import CUT, STRAY_TEXT, UNCLOSED_CALL, WRAPPED_ARGUMENTS

_KEYWORD = re.compile(r"""[\s,]*["']?(?P<key>[A-Za-z_][\w\-]{0,120})["']?\s{0,64}=(?!=)\s*""")
_KEYWORD_PARTIAL = re.compile(r"""[\s,]*["']?(?:[A-Za-z_][\w\-]{0,120}["']?\s{0,64}=?\s*)?\Z""")
_NEXT = re.compile(r"[\s,;]*(?P<name>[A-Za-z_][\w.\-]{0,200})\s{0,64}\(")
_NEXT_PARTIAL = re.compile(r"[\s,;]*(?:[A-Za-z_][\w.\-]{0,200}\s{0,64})?\Z")
_NO_VALUE = "}=:;*"  # no literal begins like this
_GAP = re.compile(r"[\s,]*")


class _Part(Enum):
    ARGUMENTS = auto()
    VALUE = auto()
    WHOLE = auto()  # one dictionary in place of keywords
    BETWEEN = auto()
    CLOSERS = auto()


class PythonReader(BodyReader):
    __slots__ = ("_bracketed", "_buffer", "_keys", "_part", "_scanner", "_whole")

    def __init__(self, compiled: CompiledCall, writer: CallWriter, bracketed: bool) -> None:
        super().__init__(compiled, writer)
        self._bracketed = bracketed
        self._buffer = ""  # read, but not yet understood
        self._keys: list[str] = []
        self._part = _Part.ARGUMENTS
        self._scanner: PythonScanner | None = None
        self._whole: JsonScanner | None = None

    @property
    def in_string(self) -> bool:
        return self._part in (_Part.VALUE, _Part.WHOLE)

    def feed(self, text: str, pos: int) -> int:
        if not self._buffer and self._scanner is not None:
            pos = self._scanner.feed(text, pos)
            piece = self._scanner.take()
            if piece:
                self.writer.write(piece)
            if pos == len(text) and not self._scanner.done:
                return pos
        buffer = self._buffer + text[pos:]
        at = 0
        while self.status is Status.OPEN:
            part = self._part
            if part is _Part.VALUE:
                buffer, after = self._read_value(buffer, at)
            elif part is _Part.WHOLE:
                after = self._read_whole(buffer, at)
            elif part is _Part.ARGUMENTS:
                after = self._read_arguments(buffer, at)
            elif part is _Part.BETWEEN:
                after = self._read_between(buffer, at)
            else:
                after = self.read_closers(buffer, at)
            if after == at and self._part is part:
                break
            at = after
        if self.status is Status.DONE:
            self.leftover, self._buffer = buffer[at:], ""
        else:
            self._buffer = buffer[at:]
        return len(text)

    def end(self, text: str, pos: int, natural: bool) -> None:
        scanner = self._scanner or self._whole
        if scanner is not None and not scanner.done:
            self._end_scanner(scanner, natural)
        if self.writer.is_open:
            if natural:
                self.writer.note(UNCLOSED_CALL)
                self._finish()
            else:
                self.writer.cut(CUT)
        else:
            self.give_back(self._buffer, natural)
        self.status = Status.DONE

    def _read_arguments(self, text: str, pos: int) -> int:
        at = _GAP.match(text, pos).end()  # type: ignore[union-attr]
        if at == len(text):
            return at
        if text[at] == ")":
            self._finish()
            self._part = _Part.BETWEEN
            return at + 1
        if self._whole is not None:
            return at + 1  # the dictionary was all there can be
        keyword = _KEYWORD.match(text, pos)
        if keyword and keyword.end() < len(text):
            self._open_value(keyword["key"], keyword=True)
            return keyword.end()
        if keyword or _KEYWORD_PARTIAL.match(text, pos):
            return pos
        if self.ends.boundary.match(text, at):
            return self._bounded(at)
        if self.ends.boundary_partial.match(text, at):
            return pos
        if text[at] == "]":
            return self._bounded(at)
        if text[at] in _NO_VALUE:
            self.writer.note(STRAY_TEXT)
            return at + 1
        return self._open_positional(text, at)

    def _open_positional(self, text: str, at: int) -> int:
        params = self.writer.tool.params if self.writer.tool else ()
        free = [key for key in params if key not in self._keys]
        first = self.writer.tool.param(free[0]) if self.writer.tool and free else None
        if text[at] == "{" and not self._keys and not (first and first.is_object):
            self._whole = JsonScanner(stops=self.ends.stops, types=self.writer.tool.types if self.writer.tool else None)
            self.writer.note(WRAPPED_ARGUMENTS)
            self._part = _Part.WHOLE
            return at
        self._open_value(free[0] if free else f"arg{len(self._keys)}", keyword=False)
        return at

    def _open_value(self, key: str, keyword: bool) -> None:
        tool = self.writer.tool
        lead = ", " if self._keys else "{"
        self._keys.append(key)
        self.writer.write(f"{lead}{quoted(key)}: ")
        types = tool.param(key) if tool else None
        self._scanner = PythonScanner(types=types, stops=self.ends.stops, keyword=keyword)
        self._part = _Part.VALUE

    def _read_value(self, text: str, pos: int) -> tuple[str, int]:
        scanner = self._scanner
        assert scanner is not None
        pos = scanner.feed(text, pos)
        self.writer.write(scanner.take())
        while pos < len(text) and not scanner.done:
            if self.ends.boundary.match(text, pos):
                self._end_scanner(scanner)
                self._scanner = None
                return text, self._bounded(pos)
            if self.ends.boundary_partial.match(text, pos):
                return text, pos
            pos = scanner.force(text, pos)
            self.writer.write(scanner.take())
        if scanner.done:
            self.writer.note(*scanner.reasons)
            self._scanner = None
            self._part = _Part.ARGUMENTS
            return scanner.surplus + text[pos:], 0
        return text, pos

    def _end_scanner(self, scanner: ValueScanner, complete: bool = True) -> None:
        scanner.end(complete)
        self.writer.write(scanner.take())
        self.writer.note(*scanner.reasons)

    def _read_whole(self, text: str, pos: int) -> int:
        scanner = self._whole
        assert scanner is not None
        pos = scanner.feed(text, pos)
        self.writer.write(scanner.take())
        while pos < len(text) and not scanner.done:
            if self.ends.boundary.match(text, pos):
                self._end_scanner(scanner)
                return self._bounded(pos)
            if self.ends.boundary_partial.match(text, pos):
                return pos
            pos = scanner.force(text, pos)
            self.writer.write(scanner.take())
        if scanner.done:
            self.writer.note(*scanner.reasons)
            self._part = _Part.ARGUMENTS
        return pos

    def _read_between(self, text: str, pos: int) -> int:
        found = _NEXT.match(text, pos)
        if found and (self.ends.has_close or found["name"] in self.writer.tools.names):
            self._keys = []
            self._whole = None
            self.writer.begin(found["name"])
            self._part = _Part.ARGUMENTS
            return found.end()
        if found is None and _NEXT_PARTIAL.match(text, pos):
            return pos
        self._part = _Part.CLOSERS
        at = _GAP.match(text, pos).end()  # type: ignore[union-attr]
        return at if at < len(text) and text[at] in "])" else pos

    def _bounded(self, at: int) -> int:
        self.writer.note(UNCLOSED_CALL)
        self._finish()
        self._part = _Part.CLOSERS
        return at

    def _finish(self) -> None:
        if self._whole is None:
            self.writer.write("}" if self._keys else "{}")
        self._whole = None
        self.writer.end()
