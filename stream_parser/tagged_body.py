"""Reader for key/value tags (K): Qwen-Coder's parameters, GLM's pairs, DSML, Kimi K3's arguments and their kin.

A value is text without any escaping, so its end is decided by what follows: a closing tag counts only when the next
parameter, the end of the call or the end of the turn comes behind it. Text values stream as they arrive; others wait
for their end, because only the whole says what type they have.
"""

from __future__ import annotations

import re
from enum import Enum, auto

from stream_parser import schema
from stream_parser.bodies import BodyReader, Status
from stream_parser.calls import CallWriter
from stream_parser.dialect import TaggedArguments
from stream_parser.grammar import CompiledCall
from stream_parser.json_text import escaped, quoted
from stream_parser.repair import DUPLICATE_KEY, UNCLOSED_CALL, UNCLOSED_VALUE, WRAPPED_ARGUMENTS
from stream_parser.tag_plan import CDATA_OPEN, plan_tags

_BLANK = re.compile(r"\s*")
_WRAPPERS = ("arguments", "input")


class _Part(Enum):
    BETWEEN = auto()
    VALUE_START = auto()
    VALUE = auto()
    CDATA = auto()
    CLOSERS = auto()


class TaggedReader(BodyReader):
    __slots__ = (
        "_dropped",
        "_held",
        "_key",
        "_keys",
        "_part",
        "_plan",
        "_rules",
        "_streams",
        "_tags",
        "_types",
        "_wraps",
        "_written",
    )

    def __init__(self, compiled: CompiledCall, writer: CallWriter, tags: TaggedArguments) -> None:
        super().__init__(compiled, writer)
        self._plan = plan_tags(tags, compiled)
        self._tags = tags
        self._part = _Part.BETWEEN
        self._written = False  # some parameter is out, and with it the brace before it
        self._keys: set[str] = set()
        self._types: schema.TypeSet | None = None
        self._rules: schema.TypingRules = "schema"
        self._streams = False  # the value is text, written as it arrives
        self._held: list[str] = []  # the value so far, if it is not
        self._key = ""
        self._dropped = False  # a key given before, whose first value stands
        self._wraps = False  # a parameter that may hold all others

    @property
    def in_string(self) -> bool:
        return self._part in (_Part.VALUE, _Part.CDATA)

    def feed(self, text: str, pos: int) -> int:
        while self.status is Status.OPEN and pos < len(text):
            part = self._part
            if part is _Part.VALUE:
                after = self._read_value(text, pos)
            elif part is _Part.BETWEEN:
                after = self._read_between(text, pos)
            elif part is _Part.VALUE_START:
                after = self._read_value_start(text, pos)
            elif part is _Part.CDATA:
                after = self._read_cdata(text, pos)
            else:
                return self.read_closers(text, pos)
            if after == pos and self._part is part:
                return pos
            pos = after
        return pos

    def end(self, text: str, pos: int, natural: bool) -> None:
        if self._part in (_Part.VALUE_START, _Part.VALUE, _Part.CDATA):
            self._end_value(text, pos, natural)
            pos = len(text)
        if self.writer.is_open and natural:
            self.writer.note(UNCLOSED_CALL)
            self._finish()
            pos = len(text)
        super().end(text, pos, natural)

    def _end_value(self, text: str, pos: int, natural: bool) -> None:
        closed = self._plan.end_of_turn.match(text, pos)
        if not natural:
            return  # what waited may be half a closer, and a value without an end has no type yet
        if not closed:
            last = text[pos:]
            self._take(last.removesuffix("\n") if self._tags.trim == "newline" else last)
            self.writer.note(UNCLOSED_VALUE)
        self._close_value()

    def _read_between(self, text: str, pos: int) -> int:
        pos = _BLANK.match(text, pos).end()  # type: ignore[union-attr]
        if pos == len(text):
            return pos
        param = self._plan.param.match(text, pos)
        if param and not self._plan.param_partial.match(text, pos):
            self._open_value(param)
            return param.end()
        ends = self.ends
        if ends.tail.match(text, pos) or ends.close.match(text, pos):
            self._finish()
            return pos
        if self._plan.param_partial.match(text, pos) or ends.boundary_partial.match(text, pos):
            return pos
        if ends.boundary.match(text, pos):
            self.writer.note(UNCLOSED_CALL)
            self._finish()
            self.status = Status.DONE
            return pos
        stray = self._plan.stray.match(text, pos)
        return stray.end() if stray else pos + 1  # text between parameters is no part of the call

    def _open_value(self, param: re.Match[str]) -> None:
        groups = {name.rstrip("0123456789"): value for name, value in param.groupdict().items() if value is not None}
        key = groups["key"].strip()
        if self._tags.unescape_keys:
            key = key.replace("&quot;", '"').replace("&amp;", "&")
        tool = self.writer.tool
        types = tool.param(key) if tool else None
        self._types = types
        self._streams, self._rules = self._typing(types, groups.get("type"))
        self._wraps = (
            key in _WRAPPERS
            and not self._keys
            and tool is not None
            and types is None
            and "wrapper_arg" in self.compiled.dialect.recovery
        )
        self._held = []
        self._key = key
        self._part = _Part.VALUE_START
        self._dropped = key in self._keys and self._tags.first_duplicate_wins
        if self._wraps or self._dropped:
            self._streams = False
        else:
            self._write_key(key)

    def _typing(self, types: schema.TypeSet | None, wire_type: str | None) -> tuple[bool, schema.TypingRules]:
        if self._tags.typing != "attribute":
            return types is not None and types.is_string_only, "python" if self._tags.typing == "python" else "schema"
        if wire_type is None:
            if types is None:
                return False, "attr_json"
            return types.is_string_only, "schema"
        if wire_type.strip() in self._tags.text_types:
            return types is None or "string" in types.types or not types.types, "schema"
        return False, "attr_json"

    def _write_key(self, key: str) -> None:
        lead = ", " if self._written else "{"
        self._written = True
        if key in self._keys:
            self.writer.note(DUPLICATE_KEY)
        self._keys.add(key)
        self.writer.write(f"{lead}{quoted(key)}: {chr(34) if self._streams else ''}")

    def _read_value_start(self, text: str, pos: int) -> int:
        if self._tags.cdata:
            start = _BLANK.match(text, pos).end()  # type: ignore[union-attr]
            if text.startswith(CDATA_OPEN, start):
                self._part = _Part.CDATA
                return start + len(CDATA_OPEN)
            if CDATA_OPEN.startswith(text[start:]):
                return pos
        self._part = _Part.VALUE
        if self._tags.trim == "newline" and text[pos] == "\n":
            return pos + 1
        if self._tags.trim == "strip":
            return _BLANK.match(text, pos).end()  # type: ignore[union-attr]
        return pos

    def _read_value(self, text: str, pos: int) -> int:
        plan, at = self._plan, pos
        while True:
            hint = plan.hint.search(text, at)
            if hint is None:
                self._take(text[pos:])
                return len(text)
            at = hint.start()
            end = plan.end.match(text, at)
            if end and self._is_end(end):
                self._take(text[pos:at])
                if end.lastgroup != "proper":
                    self.writer.note(UNCLOSED_VALUE)
                self._close_value()
                return end.end()
            if plan.end_partial.match(text, at):
                self._take(text[pos:at])
                return at
            at += 1

    def _is_end(self, end: re.Match[str]) -> bool:
        """A parameter tag without the closer before it is text, unless it names a declared parameter not yet given."""
        groups = end.groupdict()
        if groups.get("next") is None:
            return True
        key = next(value for name, value in groups.items() if name.startswith("key") and value is not None).strip()
        tool = self.writer.tool
        return tool is not None and key in tool.params and key not in self._keys

    def _read_cdata(self, text: str, pos: int) -> int:
        at = text.find("]", pos)
        while at >= 0:
            end = self._plan.cdata_end.match(text, at)
            if end:
                self._take(text[pos:at])
                self._close_value()
                return end.end()
            if re.fullmatch(r"\](?:\](?:>\s*(?:<[^>]*)?)?)?", text[at:]):
                self._take(text[pos:at])
                return at
            at = text.find("]", at + 1)
        self._take(text[pos:])
        return len(text)

    def _take(self, text: str) -> None:
        if not text:
            return
        if self._streams:
            self.writer.write(escaped(text))
        else:
            self._held.append(text)

    def _close_value(self) -> None:
        if self._streams:
            self.writer.write('"')
        else:
            self._write_held("".join(self._held))
        self._part = _Part.BETWEEN

    def _write_held(self, raw: str) -> None:
        if self._dropped:
            self.writer.note(DUPLICATE_KEY)
            return
        if not self._wraps:
            self.writer.write(schema.type_value(raw, self._types, self._rules))
            return
        inner = raw.strip()
        if inner.startswith("{") and schema.check(None, inner, inner)[1] == "ok":
            self.writer.note(WRAPPED_ARGUMENTS)
            self.writer.write(inner[:-1].rstrip())
            self._written = True
            return
        self._write_key(self._key)
        self.writer.write(schema.type_value(raw, self._types, self._rules))

    def _finish(self) -> None:
        self.writer.write("}" if self._written else "{}")
        self.writer.end()
        self._part = _Part.CLOSERS
