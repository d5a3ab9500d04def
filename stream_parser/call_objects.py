"""Reader for JSON objects (J) that name their tool themselves, alone, in an array or one after another.

The arguments go through `JsonScanner` as they arrive. Of the object around them only keys and short strings are read
here; a value nobody needs is skipped by a scanner too, so long ones cost no second look.
"""

from __future__ import annotations

import re
from enum import Enum, auto

from stream_parser.bodies import BodyReader, Status
from stream_parser.calls import CallWriter
from stream_parser.dialect import JsonCall
from stream_parser.grammar import CompiledCall
from stream_parser.json_keys import KEY, KEY_PARTIAL, TEXT, TEXT_PARTIAL, unquoted
from stream_parser.json_scanner import JsonScanner
from stream_parser.repair import ALIAS_KEY, CUT, UNCLOSED_CALL

_SEPARATORS = re.compile(r"[\s,;]*")
_BLANK = re.compile(r"\s*")
_ENVELOPE_KEYS = frozenset({"type", "id", "function", "tool_calls", "tool_call_id", "index"})
_ARGUMENT_KEYS = frozenset({"arguments", "parameters", "args", "input"})


class _Part(Enum):
    ELEMENTS = auto()  # before or between the objects of an array or lines
    KEY = auto()
    VALUE = auto()
    ARGUMENTS = auto()
    SKIPPED = auto()
    AFTER = auto()


class CallReader(BodyReader):
    """J: an object with name and arguments, an array of such objects, or several in a row.

    Nothing is written before a name is known; arguments that came first are kept until then. With `declared_only` the
    text counts as a call only if its keys look like one and the name is a declared tool's.
    """

    __slots__ = (
        "_args_seen",
        "_array",
        "_begun",
        "_declared_only",
        "_depth",
        "_kept",
        "_key",
        "_name",
        "_part",
        "_reasons",
        "_scanner",
        "_shape",
        "_wire_id",
    )

    def __init__(self, compiled: CompiledCall, writer: CallWriter, shape: JsonCall, declared_only: bool) -> None:
        super().__init__(compiled, writer)
        self.confirmed = False
        self._shape = shape
        self._declared_only = declared_only
        self._part = _Part.ELEMENTS
        self._array = False
        self._scanner: JsonScanner | None = None
        self._reset()

    def _reset(self) -> None:
        self._depth = 0
        self._key = ""
        self._name = ""
        self._wire_id = ""
        self._kept: list[str] | None = None  # arguments that came before the name
        self._args_seen = False
        self._begun = False
        self._reasons: list[str] = []

    @property
    def in_string(self) -> bool:
        return self._part in (_Part.ARGUMENTS, _Part.SKIPPED)

    def feed(self, text: str, pos: int) -> int:
        if self._begun and self._scanner is not None and self._part is _Part.ARGUMENTS:
            pos = self._scanner.feed(text, pos)
            piece = self._scanner.take()
            if piece:
                self.writer.write(piece)
            if pos == len(text) and not self._scanner.done:
                return pos
        while self.status is Status.OPEN:
            part = self._part
            if part is _Part.ARGUMENTS or part is _Part.SKIPPED:
                after = self._scan(text, pos)
            elif part is _Part.KEY:
                after = self._read_key(text, pos)
            elif part is _Part.VALUE:
                after = self._read_value(text, pos)
            elif part is _Part.ELEMENTS:
                after = self._read_elements(text, pos)
            else:
                return self.read_closers(text, pos)
            if after == pos and self._part is part:
                return pos
            pos = after
        return pos

    def end(self, text: str, pos: int, natural: bool) -> None:
        if self._scanner is not None:
            self._end_scanner(self._scanner, natural)
        if not self.confirmed:
            self.status = Status.REJECTED
            return
        if natural and self._begun:
            self._reasons.append(UNCLOSED_CALL)
            self._finish_object()
        elif self._begun:
            self.writer.cut(CUT)
        self.status = Status.DONE

    def _read_elements(self, text: str, pos: int) -> int:
        pos = _SEPARATORS.match(text, pos).end()  # type: ignore[union-attr]
        if pos == len(text):
            return pos
        char = text[pos]
        if char == "{":
            self._reset()
            self._depth = 1
            self._part = _Part.KEY
            return pos + 1
        if char == "[" and not self._array and not self.confirmed:
            self._array = True
            return pos + 1
        if not self.confirmed:
            self.status = Status.REJECTED
            return pos
        if char == "]" and self._array:
            self._array = False
            self._part = _Part.AFTER
            return pos + 1
        if self.ends.partial.match(text, pos) and not self.ends.boundary.match(text, pos):
            return pos
        self._part = _Part.AFTER
        return pos

    def _read_key(self, text: str, pos: int) -> int:
        pos = _SEPARATORS.match(text, pos).end()  # type: ignore[union-attr]
        if pos == len(text):
            return pos
        if text[pos] == "}":
            return self._close_brace(pos + 1)
        key, string = KEY.match(text, pos), TEXT.match(text, pos)
        waits = not (key or string) and KEY_PARTIAL.match(text, pos)
        if self.confirmed and (key or string or waits):
            last = key or string
            end = self.ends.boundary.search(text, pos, last.end() if last else len(text))
            if end:
                return self._bounded(end.start())  # no key holds a marker
        if key:
            return self._take_key(unquoted(key), key.end())
        if waits or (string and KEY_PARTIAL.match(text, pos)):
            return pos
        return self._stuck(text, pos, string.end() if string else pos + 1)

    def _take_key(self, key: str, pos: int) -> int:
        envelope = key in _ENVELOPE_KEYS or key in self._shape.name_keys or self._holds_arguments(key)
        if self._declared_only and not envelope and not self.confirmed and not self._shape.name_is_key:
            self.status = Status.REJECTED
        self._key = key
        self._part = _Part.VALUE
        return pos

    def _read_value(self, text: str, pos: int) -> int:
        pos = _BLANK.match(text, pos).end()  # type: ignore[union-attr]
        if pos == len(text):
            return pos
        key, shape, char = self._key, self._shape, text[pos]
        if shape.name_is_key and self._depth == 1:
            self._name = key
            return self._start_arguments(pos)
        if key in shape.name_keys or key == "function":
            if char in "\"'":
                return self._read_name(text, pos)
            if char == "{":
                self._depth += 1
                self._part = _Part.KEY
                return pos + 1
        if key == "tool_calls" and char == "[" and not self.confirmed:
            self._array = True
            self._part = _Part.ELEMENTS
            return pos + 1
        if self._holds_arguments(key) and not self._args_seen:
            if key not in shape.argument_keys:
                self._reasons.append(ALIAS_KEY)
            return self._start_arguments(pos)
        if key == shape.id_key and char in "\"'" and not self._begun:
            match = TEXT.match(text, pos)
            if match:
                self._wire_id = unquoted(match)
                self._part = _Part.KEY
                return match.end()
            if TEXT_PARTIAL.match(text, pos):
                return pos
        self._scanner = JsonScanner(stops=self.ends.stops, expect="any")
        self._part = _Part.SKIPPED
        return pos

    def _holds_arguments(self, key: str) -> bool:
        return key in self._shape.argument_keys or key in _ARGUMENT_KEYS

    def _read_name(self, text: str, pos: int) -> int:
        match = TEXT.match(text, pos)
        if match is None:
            if not TEXT_PARTIAL.match(text, pos):
                self.status = Status.REJECTED if not self.confirmed else Status.DONE
            return pos
        name = unquoted(match).strip()
        if not self._name:
            self._name = name
            self._part = _Part.KEY
            self._confirm_name()
        self._part = _Part.KEY
        return match.end()

    def _confirm_name(self) -> None:
        if not self._name:
            return
        if self._declared_only and not self.confirmed:
            if self._name not in self.writer.tools.names:
                self.status = Status.REJECTED
                return
            if not self._args_seen:
                return  # a declared name alone does not make a call
        self._begin()

    def _begin(self) -> None:
        if self._name in self._shape.ignored_names:
            self.confirmed = True  # a call by its form, of which nobody is told
            return
        self.writer.begin(self._name, self._wire_id)
        self._begun = self.confirmed = True
        if self._kept is not None:
            self.writer.write("".join(self._kept))
            self._kept = None

    def _start_arguments(self, pos: int) -> int:
        self._args_seen = True
        if self._name and not self._begun:
            self._confirm_name()
        types = self.writer.tool.types if self._begun and self.writer.tool else None
        self._scanner = JsonScanner(stops=self.ends.stops, types=types)
        if not self._begun:
            self._kept = []
        self._part = _Part.ARGUMENTS
        return pos

    def _scan(self, text: str, pos: int) -> int:
        scanner = self._scanner
        assert scanner is not None
        pos = scanner.feed(text, pos)
        self._take(scanner)
        while pos < len(text) and not scanner.done:
            if self.ends.boundary.match(text, pos):
                self._end_scanner(scanner)
                return self._bounded(pos)
            if self.ends.boundary_partial.match(text, pos):
                return pos
            pos = scanner.force(text, pos)
            self._take(scanner)
        if scanner.done:
            self._close_value(scanner)
        return pos

    def _take(self, scanner: JsonScanner) -> None:
        piece = scanner.take()
        if self._part is not _Part.ARGUMENTS or not piece:
            return
        if self._begun:
            self.writer.write(piece)
        else:
            assert self._kept is not None
            self._kept.append(piece)

    def _end_scanner(self, scanner: JsonScanner, complete: bool = True) -> None:
        scanner.end(complete)
        self._take(scanner)
        self._close_value(scanner)

    def _close_value(self, scanner: JsonScanner) -> None:
        if self._part is _Part.ARGUMENTS:
            self._reasons += scanner.reasons
        self._scanner = None
        self._part = _Part.KEY

    def _close_brace(self, pos: int) -> int:
        self._depth -= 1
        if self._depth > 0:
            self._part = _Part.KEY
            return pos
        self._finish_object()
        return pos

    def _finish_object(self) -> None:
        if self._name and not self._begun and self.status is Status.OPEN:
            tool = self.writer.tools.get(self._name)
            if not self._declared_only or self.confirmed or self._args_seen or (tool and not tool.required):
                self._begin()
        if self._begun:
            self.writer.note(*self._reasons)
            self.writer.end()
        elif not self.confirmed and not self._array:
            self.status = Status.REJECTED
        self._begun = False
        self._scanner = None
        self._depth = 0
        self._name = ""
        more = self._array or not self._declared_only
        self._part = _Part.ELEMENTS if more else _Part.AFTER

    def _stuck(self, text: str, pos: int, after: int) -> int:
        """No key and no brace: a marker that ends the call, or garbage up to `after`."""
        if not self.confirmed:
            self.status = Status.REJECTED
            return pos
        if self.ends.boundary.match(text, pos):
            return self._bounded(pos)
        if self.ends.boundary_partial.match(text, pos):
            return pos
        if text[pos] == "]" and self._array:
            self._finish_object()
            return pos
        return after

    def _bounded(self, pos: int) -> int:
        self._part = _Part.AFTER
        if not self._begun and not self.confirmed:
            self.status = Status.REJECTED
            return pos
        if self._begun:
            self._reasons.append(UNCLOSED_CALL)
        self._finish_object()
        self._part = _Part.AFTER
        return pos
