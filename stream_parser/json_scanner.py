"""The incremental, repairing JSON scanner: what it has emitted can always stand.

Valid JSON passes byte for byte, white space included. Everything else is repaired on the way where its meaning is
certain enough; `docs/repair.md` lists the repairs. Input may be cut anywhere, with the same output. Knows nothing of
calls, markers or dialects.

    scanner = JsonScanner()
    index = scanner.feed(piece)       # short of the piece's end once the value is over (`done`) or a stop is met
    certain = scanner.take()
    scanner.end(complete=True)        # and take() again
"""

from __future__ import annotations

from typing import Literal, Protocol

from stream_parser.encoded_json import QUOTES, EncodedJson
from stream_parser.literals import read_literal
from stream_parser.schema_types import TypeSet
from stream_parser.value_machine import ValueMachine
from stream_parser.value_writer import Notation


class ValueScanner(Protocol):
    """What reads one value and writes it as JSON.

    `feed` consumes text[pos:] and returns the index behind the last consumed character: the text's end, or less where
    the value is `done` or, outside of strings, a character of `stops` stands where the value cannot have it. Then
    either `end` the scanner or `force` that character, which consumes at least one and goes on. `take` returns the
    JSON text that is certain since the last call. `end(True)`: the input is over by itself, what is missing is
    supplied; `end(False)`: it was cut, and what is undecided stays unsaid, so that all text taken is the beginning of
    what the whole input would have given. `surplus` is text consumed beyond the value. `reasons` are codes of `repair`.
    """

    surplus: str

    @property
    def done(self) -> bool: ...
    @property
    def reasons(self) -> list[str]: ...
    def feed(self, text: str, pos: int = 0) -> int: ...
    def force(self, text: str, pos: int = 0) -> int: ...
    def take(self) -> str: ...
    def end(self, complete: bool) -> None: ...


_ARGUMENTS = Notation(empty="{}", read_literal=read_literal)
_ANY_VALUE = Notation(read_literal=read_literal)


class JsonScanner:
    """One JSON value. White space in front of it is dropped.

    `expect` "object": null and "" become {}, and a string that holds an object is decoded. With `types`, the schema of
    the value, members of another type are held until they close and brought to it where their meaning is certain.
    """

    surplus = ""  # all that is consumed belongs to the value

    def __init__(
        self, *, stops: str = "", types: TypeSet | None = None, expect: Literal["object", "any"] = "object"
    ) -> None:
        self._types = types
        self._expects_object = expect == "object"
        notation = _ARGUMENTS if self._expects_object else _ANY_VALUE
        self._machine = ValueMachine(notation, stops=stops, types=types, unescapes=self._expects_object)
        self._target: ValueMachine | EncodedJson = self._machine
        self._is_fresh = True

    @property
    def done(self) -> bool:
        return self._target.done

    @property
    def reasons(self) -> list[str]:
        return self._machine.reasons

    def feed(self, text: str, pos: int = 0) -> int:
        """O(characters consumed)."""
        if self._is_fresh and pos < len(text):
            pos = self._start(text, pos)
        return self._decode_rest(text, self._target.feed(text, pos))

    def force(self, text: str, pos: int = 0) -> int:
        self._is_fresh = False
        return self._decode_rest(text, self._target.force(text, pos))

    def take(self) -> str:
        return self._machine.take()

    def end(self, complete: bool) -> None:
        self._target.end(complete)

    def _decode_rest(self, text: str, pos: int) -> int:
        """Where the machine met an escaped quote, everything from there on is escaped."""
        if not self._machine.meets_escape or self._target is not self._machine:
            return pos
        self._machine.unescapes = False
        self._target = EncodedJson(self._machine, "")
        return self._target.feed(text, pos)

    def _start(self, text: str, pos: int) -> int:
        while text[pos] in " \t\r\n":
            pos += 1
            if pos == len(text):
                return pos
        self._is_fresh = False
        if self._expects_object and text[pos] in QUOTES:
            self._machine = ValueMachine(_ARGUMENTS, types=self._types)
            self._target = EncodedJson(self._machine, text[pos])
            return pos + 1
        return pos
