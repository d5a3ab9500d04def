"""Chooses the reader for a call's body."""

from __future__ import annotations

import re
from typing import assert_never

from stream_parser.argument_bodies import ArgumentsReader
from stream_parser.bodies import BodyReader, EmptyReader, RawReader, Status
from stream_parser.call_objects import CallReader
from stream_parser.calls import CallWriter
from stream_parser.dialect import (
    Body,
    ByFirstChar,
    ElementTree,
    JsonArguments,
    JsonCall,
    LaxArguments,
    NoArguments,
    PythonCalls,
    RawArgument,
    TaggedArguments,
)
from stream_parser.element_body import ElementReader
from stream_parser.grammar import CompiledCall
from stream_parser.json_scanner import JsonScanner
from stream_parser.lax_args import LaxScanner
from stream_parser.python_body import PythonReader
from stream_parser.tagged_body import TaggedReader

_BLANK = re.compile(r"\s*")


def make_reader(compiled: CompiledCall, body: Body, writer: CallWriter) -> BodyReader:
    """The reader of `body`; except for `JsonCall` the call has begun already."""
    stops = compiled.ends.stops
    match body:
        case JsonCall():
            call = compiled.call
            return CallReader(compiled, writer, body, declared_only=not call.opens or call.known_name)
        case JsonArguments():
            types = writer.tool.types if writer.tool else None
            return ArgumentsReader(compiled, writer, JsonScanner(stops=stops, types=types))
        case TaggedArguments():
            return TaggedReader(compiled, writer, body)
        case ElementTree(prefix=prefix):
            return ElementReader(compiled, writer, prefix)
        case LaxArguments(delimiter=delimiter):
            return ArgumentsReader(compiled, writer, LaxScanner(delimiter=delimiter, tool=writer.tool, stops=stops))
        case PythonCalls(brackets=brackets):
            return PythonReader(compiled, writer, brackets)
        case RawArgument(argument=argument):
            return RawReader(compiled, writer, argument)
        case NoArguments():
            return EmptyReader(compiled, writer)
        case ByFirstChar():
            return ChoosingReader(compiled, writer, body)
        case _:
            assert_never(body)


class ChoosingReader(BodyReader):
    """Waits for the body's first character that is no blank and hands over to the reader that it calls for."""

    __slots__ = ("_choice", "_reader")

    def __init__(self, compiled: CompiledCall, writer: CallWriter, choice: ByFirstChar) -> None:
        super().__init__(compiled, writer)
        self._choice = choice
        self._reader: BodyReader | None = None

    @property
    def in_string(self) -> bool:
        return self._reader is not None and self._reader.in_string

    def feed(self, text: str, pos: int) -> int:
        if self._reader is None:
            pos = _BLANK.match(text, pos).end()  # type: ignore[union-attr]
            if pos == len(text):
                return pos
            if self.ends.boundary_partial.match(text, pos):
                return pos
            body: Body = self._choice.otherwise
            for chars, choice in self._choice.choices:
                if text[pos] in chars:
                    body = choice
            self._reader = make_reader(self.compiled, body, self.writer)
        pos = self._reader.feed(text, pos)
        self._adopt(self._reader)
        return pos

    def end(self, text: str, pos: int, natural: bool) -> None:
        if self._reader is None:
            super().end(text, pos, natural)
            return
        self._reader.end(text, pos, natural)
        self._adopt(self._reader)

    def _adopt(self, reader: BodyReader) -> None:
        self.status: Status = reader.status
        self.confirmed = reader.confirmed
        self.leftover = reader.leftover
