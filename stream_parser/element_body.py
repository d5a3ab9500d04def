"""Reader for element trees (E): nested tags that become objects and arrays by the schema.

What an element is (an array of one, an object, text) is known only at its end, so each top-level parameter is written
when it closes; a parameter that can only be a string streams.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

from stream_parser import patterns as pat
from stream_parser import schema
from stream_parser.bodies import BodyReader, Status
from stream_parser.calls import CallWriter
from stream_parser.grammar import CompiledCall
from stream_parser.json_text import escaped, quoted
from stream_parser.repair import UNCLOSED_CALL, UNCLOSED_VALUE

MAX_DEPTH = 100  # of nested elements; deeper tags are text


@dataclass(slots=True)
class _Element:
    name: str
    text: list[str] = field(default_factory=list)
    children: list[_Element] = field(default_factory=list)

    @property
    def whole_text(self) -> str:
        return "".join(self.text)


@lru_cache(maxsize=16)
def _tag_patterns(prefix: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    name = pat.Pattern(r"(?P<slash>/?)(?P<key>[^<>/\n]{1,120})", r"/?[^<>/\n]{0,120}\Z", frozenset())
    tag = pat.sequence(pat.lit(prefix), pat.space(), pat.lit("<"), name, pat.lit(">"))
    return re.compile(tag.full), re.compile(tag.partial)


class ElementReader(BodyReader):
    __slots__ = ("_closed", "_held", "_partial", "_prefix", "_stack", "_streams", "_tag", "_written")

    def __init__(self, compiled: CompiledCall, writer: CallWriter, prefix: str) -> None:
        super().__init__(compiled, writer)
        self._prefix = prefix
        self._tag, self._partial = _tag_patterns(prefix)
        self._stack: list[_Element] = []
        self._held: list[_Element] = []  # closed elements of one name that may turn out to be one array
        self._streams = False
        self._written = False
        self._closed = False

    @property
    def in_string(self) -> bool:
        return bool(self._stack)

    def feed(self, text: str, pos: int) -> int:
        while self.status is Status.OPEN and pos < len(text):
            if self._closed:
                return self.read_closers(text, pos)
            at = text.find(self._prefix[0], pos)
            at = self._next_mark(text, at)
            end = len(text) if at < 0 else at
            self._take_text(text[pos:end])
            if at < 0:
                return end
            if self._ends_here(text, at):
                pos = at
                continue
            tag = self._tag.match(text, at)
            if tag is None:
                return at
            self._take_tag(tag)
            pos = tag.end()
        return pos

    def end(self, text: str, pos: int, natural: bool) -> None:
        if self.writer.is_open and natural:
            if self._stack:
                self.writer.note(UNCLOSED_VALUE)
            self.writer.note(UNCLOSED_CALL)
            self._finish()
            pos = len(text)
        super().end(text, pos, natural)

    def _next_mark(self, text: str, at: int) -> int:
        """The next position where a tag or the end of the call is, or may come to be."""
        while at >= 0:
            if self._tag.match(text, at) or self._partial.match(text, at) or self.ends.boundary.match(text, at):
                return at
            at = text.find(self._prefix[0], at + 1)
        return at

    def _ends_here(self, text: str, at: int) -> bool:
        if not self.ends.boundary.match(text, at):
            return False
        if self._stack:
            self.writer.note(UNCLOSED_VALUE)
        self._finish()
        return True

    def _take_text(self, text: str) -> None:
        if not self._stack or not text:
            return
        if self._streams:
            self.writer.write(escaped(text))
        else:
            self._stack[-1].text.append(text)

    def _take_tag(self, tag: re.Match[str]) -> None:
        name = tag["key"].strip()
        if tag["slash"]:
            self._close(name)
            return
        if self._streams or len(self._stack) >= MAX_DEPTH:
            self._take_text(tag[0])
            return
        element = _Element(name)
        if self._stack:
            self._stack[-1].children.append(element)
        else:
            self._open(name)
        self._stack.append(element)

    def _open(self, name: str) -> None:
        if self._held and self._held[0].name != name:
            self._flush()
        types = self._types(name)
        self._streams = types is not None and types.is_string_only and not self._held
        if self._streams:
            self._write_key(name)
            self.writer.write('"')

    def _close(self, name: str) -> None:
        if all(element.name != name for element in self._stack):
            return  # closes nothing that is open
        while True:
            element = self._stack.pop()
            if not self._stack:
                self._close_parameter(element)
            if element.name == name:
                return

    def _close_parameter(self, element: _Element) -> None:
        if self._streams:
            self.writer.write('"')
            self._streams = False
            return
        self._held.append(element)
        types = self._types(element.name)
        if not (types is not None and types.is_array and not element.children):
            self._flush()

    def _flush(self) -> None:
        if not self._held:
            return
        first, types = self._held[0], self._types(self._held[0].name)
        self._write_key(first.name)
        if len(self._held) > 1:
            items = types.items if types else None
            self.writer.write("[" + ", ".join(_value(e, items) for e in self._held) + "]")
        else:
            self.writer.write(_value(first, types))
        self._held = []

    def _write_key(self, name: str) -> None:
        self.writer.write(f"{', ' if self._written else '{'}{quoted(name)}: ")
        self._written = True

    def _types(self, name: str) -> schema.TypeSet | None:
        return self.writer.tool.param(name) if self.writer.tool else None

    def _finish(self) -> None:
        if self._stack:
            self._close(self._stack[0].name)
        self._flush()
        self.writer.write("}" if self._written else "{}")
        self.writer.end()
        self._closed = True


def _value(element: _Element, types: schema.TypeSet | None) -> str:
    """An element as JSON text."""
    if not element.children:
        return _leaf(element.whole_text, types)
    all_items = all(child.name == "item" for child in element.children)
    if types.is_array if types else all_items:
        items = types.items if types else None
        return "[" + ", ".join(_value(child, items) for child in element.children) + "]"

    by_name: dict[str, list[_Element]] = {}
    for child in element.children:
        by_name.setdefault(child.name, []).append(child)
    members = [f"{quoted(name)}: {_member(group, types, name)}" for name, group in by_name.items()]
    text = element.whole_text
    if text.strip():
        members.append(f'"$text": {quoted(text)}')
    return "{" + ", ".join(members) + "}"


def _member(group: list[_Element], types: schema.TypeSet | None, name: str) -> str:
    member = types.property(name) if types else None
    if len(group) == 1:
        return _value(group[0], member)
    items = member.items if member and member.is_array else member
    return "[" + ", ".join(_value(element, items) for element in group) + "]"


def _leaf(text: str, types: schema.TypeSet | None) -> str:
    if types is not None and not text.strip():
        if types.is_array:
            return "[]"
        if types.is_object:
            return "{}"
    value = schema.type_value(text, types, "schema")
    if types is not None and types.is_array and "string" not in types.types and not value.startswith("["):
        return f"[{schema.type_value(text, types.items, 'schema')}]"  # one item, its tag left out
    return value
