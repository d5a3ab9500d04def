"""Reader for key/value tags (K): Qwen-Coder's parameters, GLM's pairs, DSML, Kimi K3's arguments and their kin.

A value is text without any escaping, so its end is decided by what follows: a closing tag counts only when the next
parameter, the end of the call or the end of the turn comes behind it. Text values stream as they arrive; others wait
for their end, because only the whole says what type they have.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache

from stream_parser import patterns as pat
from stream_parser import schema
from stream_parser.bodies import BodyReader, Status
from stream_parser.calls import CallWriter
from stream_parser.dialect import TaggedArguments
from stream_parser.grammar import CompiledCall
from stream_parser.json_text import escaped, quoted
from stream_parser.repair import DUPLICATE_KEY, UNCLOSED_CALL, UNCLOSED_VALUE, WRAPPED_ARGUMENTS

_BLANK = re.compile(r"\s*")
_CDATA_OPEN, _CDATA_CLOSE = "<![CDATA[", "]]>"
_WRAPPERS = ("arguments", "input")


@dataclass(frozen=True, slots=True)
class TagPlan:
    """The compiled form of one dialect's tags."""

    param: re.Pattern[str]
    param_partial: re.Pattern[str]
    hint: re.Pattern[str]  # where something but a parameter's text can begin
    end: re.Pattern[str]
    end_partial: re.Pattern[str]
    end_of_turn: re.Pattern[str]
    stray: re.Pattern[str]  # a value's closer outside of a value
    cdata_end: re.Pattern[str]


@lru_cache(maxsize=256)
def plan_tags(tags: TaggedArguments, compiled: CompiledCall) -> TagPlan:
    call, ends = compiled.call, compiled.ends
    params = [_numbered(pat.template(p, lenient=True), n) for n, p in enumerate(tags.params)]
    param = pat.either(*params)
    trim = {"newline": pat.newlines(1), "strip": pat.space(), "none": None}[tags.trim]
    lead = [trim] if trim else []
    close = pat.either(*(pat.marker(c) for c in tags.closes))

    openers = [pat.tag_start(p) for p in tags.params]
    follow = pat.ahead_of(pat.either(*openers, ends.boundary_pattern))
    proper = pat.sequence(*lead, close, pat.space(), follow)

    alternatives = [proper]
    if "missing_value_close" in compiled.dialect.recovery:
        alternatives += _ends_without_closer(tags, compiled)
    wrapped = [_wrapped(p, group) for p, group in zip(alternatives, ("proper", "next", "tail"), strict=False)]
    end = pat.either(*wrapped)

    base = pat.trigger_regex(_without_blanks(end.heads)).pattern
    blanks = {"newline": r"\n{0,2}", "strip": r"\s*", "none": r"\n?"}[tags.trim]
    held = {"newline": r"\n{1,2}\Z", "strip": r"\s+\Z", "none": r"\n\Z"}[tags.trim]
    last = [*(pat.marker(t) for t in (*tags.closes, *call.tails, *call.closes))]
    any_last = "|".join(p.full for p in last)
    trim_full = trim.full if trim else ""
    return TagPlan(
        re.compile(param.full),
        re.compile(param.partial),
        re.compile(f"{blanks}(?:{base})|{held}"),
        re.compile(end.full),
        re.compile(end.partial),
        re.compile(rf"{trim_full}(?:{any_last})(?:\s*(?:{any_last}))*\s*\Z"),
        re.compile(close.full),
        re.compile(rf"{re.escape(_CDATA_CLOSE)}\s*{close.full}"),
    )


def _ends_without_closer(tags: TaggedArguments, compiled: CompiledCall) -> list[pat.Pattern]:
    """The next parameter, or the whole end of the call with another call behind it, where the closer was forgotten.

    Line breaks that templates write around the closer go with it.
    """
    lead = [pat.space()] if tags.trim == "strip" else [pat.newlines(2 if tags.trim == "newline" else 1)]
    call, ends = compiled.call, compiled.ends
    params = pat.either(*(_anonymous(pat.template(p, lenient=True)) for p in tags.params))
    key = pat.either(*(_numbered(pat.template(p, lenient=True), n) for n, p in enumerate(tags.params)))
    following = pat.Pattern(f"(?={key.full})", params.partial, params.heads)
    found = [pat.sequence(*lead, following)]

    tail = [pat.either(*(pat.marker(t) for t in call.tails)), pat.space()] if call.tails else []
    closers = [pat.either(*(pat.marker(c) for c in call.closes)), pat.space()] if call.closes else []
    if tail or closers:
        whole = pat.sequence(*tail, *closers, pat.ahead_of(ends.boundary_pattern))
        found.append(pat.sequence(*lead, pat.ahead_of(whole)))
    return found


def _without_blanks(heads: frozenset[str]) -> frozenset[str]:
    return frozenset(head for head in heads if not head.isspace())


def _wrapped(pattern: pat.Pattern, group: str) -> pat.Pattern:
    return pat.Pattern(f"(?P<{group}>{pattern.full})", pattern.partial, pattern.heads)


def _numbered(pattern: pat.Pattern, number: int) -> pat.Pattern:
    full = re.sub(r"\(\?P<(\w+)>", lambda m: f"(?P<{m[1]}{number}>", pattern.full)
    return pat.Pattern(full, pattern.partial, pattern.heads)


def _anonymous(pattern: pat.Pattern) -> pat.Pattern:
    return pat.Pattern(re.sub(r"\(\?P<\w+>", "(?:", pattern.full), pattern.partial, pattern.heads)


class _Part(Enum):
    BETWEEN = auto()
    VALUE_START = auto()
    VALUE = auto()
    CDATA = auto()
    CLOSERS = auto()


class TaggedReader(BodyReader):
    __slots__ = (
        "_held",
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
        self._wraps = False

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
        if self.writer.is_open and natural:
            self.writer.note(UNCLOSED_CALL)
            self._finish()
        super().end(text, pos, natural)

    def _end_value(self, text: str, pos: int, natural: bool) -> None:
        closed = self._plan.end_of_turn.match(text, pos)
        if not natural:
            return  # what waited may be half a closer, and a value without an end has no type yet
        if not closed:
            self._take(text[pos:])
            self.writer.note(UNCLOSED_VALUE)
        self._close_value()

    def _read_between(self, text: str, pos: int) -> int:
        pos = _BLANK.match(text, pos).end()  # type: ignore[union-attr]
        if pos == len(text):
            return pos
        param = self._plan.param.match(text, pos)
        if param:
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
        self._part = _Part.VALUE_START
        if self._wraps:
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
            return types is None or "string" in types.types or not types.types, "attr_string"
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
            if text.startswith(_CDATA_OPEN, start):
                self._part = _Part.CDATA
                return start + len(_CDATA_OPEN)
            if _CDATA_OPEN.startswith(text[start:]):
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
        if not self._wraps:
            self.writer.write(schema.type_value(raw, self._types, self._rules))
            return
        inner = raw.strip()
        if inner.startswith("{") and schema.check(None, inner, inner)[1] == "ok":
            self.writer.note(WRAPPED_ARGUMENTS)
            self.writer.write(inner[:-1].rstrip())
            self._written = True
            return
        self._write_key("arguments")
        self.writer.write(schema.type_value(raw, self._types, self._rules))

    def _finish(self) -> None:
        self.writer.write("}" if self._written else "{}")
        self.writer.end()
        self._part = _Part.CLOSERS
