"""Readers of bodies that are one object of arguments, under a head that named the tool or a counter that did not."""

from __future__ import annotations

from stream_parser import json_value
from stream_parser.bodies import BodyReader, Status
from stream_parser.calls import CallWriter
from stream_parser.grammar import CompiledCall
from stream_parser.json_scanner import JsonScanner, ValueScanner
from stream_parser.repair import NAME_FROM_ARGUMENTS


class ArgumentsReader(BodyReader):
    """H and L: the body is one object, which `scanner` turns into JSON text."""

    __slots__ = ("_complete", "_scanner")

    def __init__(self, compiled: CompiledCall, writer: CallWriter, scanner: ValueScanner) -> None:
        super().__init__(compiled, writer)
        self._scanner = scanner
        self._complete = False

    @property
    def in_string(self) -> bool:
        return not self._complete

    def feed(self, text: str, pos: int) -> int:
        if self._complete:
            return self.read_closers(text, pos)
        scanner = self._scanner
        pos = scanner.feed(text, pos)
        piece = scanner.take()
        if piece:
            self.writer.write(piece)
        while pos < len(text) and not scanner.done:
            if self.ends.boundary.match(text, pos):
                return self._bounded(text, pos)
            if self.ends.boundary_partial.match(text, pos):
                return pos
            pos = scanner.force(text, pos)
            self.writer.write(scanner.take())
        if scanner.done:
            self._finish()
            return self.read_closers(text, pos)
        return pos

    def end(self, text: str, pos: int, natural: bool) -> None:
        if not self._complete:
            self._scanner.end(natural)
            self.writer.write(self._scanner.take())
            if natural:
                self._finish()
        super().end(text, pos, natural)

    def _bounded(self, text: str, pos: int) -> int:
        self._scanner.end(True)
        self.writer.write(self._scanner.take())
        self._finish()
        return self.read_closers(text, pos)

    def _finish(self) -> None:
        self._complete = True
        self.writer.note(*self._scanner.reasons)
        self.writer.end()


class CounterReader(BodyReader):
    """H under a bare counter instead of a name: the arguments' keys tell which tool is meant."""

    __slots__ = ("_kept", "_scanner", "_wire_id")

    def __init__(self, compiled: CompiledCall, writer: CallWriter, wire_id: str) -> None:
        super().__init__(compiled, writer)
        self.confirmed = False
        self._wire_id = wire_id
        self._scanner = JsonScanner(stops=self.ends.stops)
        self._kept: list[str] = []

    @property
    def in_string(self) -> bool:
        return not self.confirmed

    def feed(self, text: str, pos: int) -> int:
        if self.confirmed:
            return self.read_closers(text, pos)
        pos = self._scanner.feed(text, pos)
        self._kept.append(self._scanner.take())
        while pos < len(text) and not self._scanner.done:
            if self.ends.boundary.match(text, pos):
                self._scanner.end(True)
                self._kept.append(self._scanner.take())
                return self._choose(text, pos)
            if self.ends.boundary_partial.match(text, pos):
                return pos
            pos = self._scanner.force(text, pos)
            self._kept.append(self._scanner.take())
        return self._choose(text, pos) if self._scanner.done else pos

    def end(self, text: str, pos: int, natural: bool) -> None:
        self.status = Status.DONE if self.confirmed else Status.REJECTED

    def _choose(self, text: str, pos: int) -> int:
        arguments = "".join(self._kept)
        name = self._infer(arguments)
        if not name:
            self.status = Status.REJECTED
            return pos
        self.writer.begin(name)
        self.writer.write(arguments)
        self.writer.note(*self._scanner.reasons, NAME_FROM_ARGUMENTS)
        self.writer.end()
        self.confirmed = True
        return self.read_closers(text, pos)

    def _infer(self, arguments: str) -> str:
        try:
            value = json_value.parse(arguments)
        except json_value.JsonError:
            return ""
        keys = set(value) if isinstance(value, dict) else set()
        fitting = []
        for name in sorted(self.writer.tools.names):
            tool = self.writer.tools.get(name)
            if tool and keys <= set(tool.params) and tool.required <= keys:
                fitting.append(name)
        return fitting[0] if len(fitting) == 1 else ""
