"""Arguments in tags: key and value pairs (K), and trees of elements (E). Knows the body's declaration, no dialect.

A string in a tag is bare text up to the closing tag, so it is one lexeme with it. What else stands in tags must not
be read as a string, and a string beside other types must not be read as one of them: the parser's typing rules.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, TypeAlias

from inference.grammar.lark import LarkWriter, either, quoted, regex, repeated, sequence
from inference.grammar.members import member_list
from inference.grammar.nodes import (
    ExtraMembers,
    Items,
    Literals,
    Member,
    Members,
    Node,
    NumberRange,
    OneOf,
    Text,
    flat_options,
)
from inference.grammar.notations import PYTHON, json_notation
from inference.grammar.policy import Bounds
from inference.grammar.raw_text import Start, without
from inference.grammar.text_patterns import FORMATS, whole_pattern
from inference.grammar.text_sets import text_set
from inference.grammar.values import ValueWriter, literals
from stream_parser.dialect import TaggedArguments
from stream_parser.patterns import KEY_CHARS, MAX_NAME, plain

TypeName: TypeAlias = Literal["string", "boolean", "null", "number", "object", "array"]
# Not as a complement: with a length bound beside it, that takes the lexer minutes to build.
_NO_EDGES = r"(?s:[^\s\x1c-\x1f](?:.*[^\s\x1c-\x1f])?)?"
_KEY = re.compile(f"{KEY_CHARS}{{1,{MAX_NAME}}}")
_TAG = re.compile(r"[^<>/\n]{1,120}")


class RawText:
    """Bare strings in which none of `markers` occurs."""

    def __init__(self, writer: LarkWriter, markers: Sequence[str], *, cdata: bool = False, trims: bool = False) -> None:
        self._writer = writer
        self._markers = [marker for marker in markers if marker]
        self._trims = trims  # where nothing is said of a string, a trimmed one is as good
        # Those that hold tokens are not to be spelled either: the parser reads the text.
        self._marked = without(self._markers)
        self._start = without([*self._markers, "<!"]) if cdata else None

    def expression(self, node: Text, tail: str, *, beside_others: bool) -> str | None:
        """`tail` ends the text; None: no text fits. beside_others: values of other types may stand in its place."""
        low, high = node.min_chars, node.max_chars
        is_searched = bool(node.patterns or node.formats)
        self._writer.searches_text |= is_searched
        # Where others meet, the bound is one of them: of a counted unit that has come as often as it may, and of what
        # the others would still take, the library does not see that they have nothing in common, and panics.
        is_bounded_apart = node.is_bounded_by_schema or is_searched
        if beside_others:
            text = self._marked.plain_text(high)
        elif self._start is not None:
            text = self._marked.text_after(self._start, high)
        elif is_bounded_apart:
            text = self._marked.text_of_any_length()
        else:
            text = self._marked.text(low, high)
        parts = [text]
        if self._trims and (low or is_searched):
            parts.append(_NO_EDGES)
        if is_bounded_apart:
            parts.append(f"(?s:.{{{low},{high}}})")
        parts += [f"(?s:{whole_pattern(pattern)})" for pattern in node.patterns]
        parts += [FORMATS[name] for name in node.formats]
        if is_searched and text_set(*parts).is_empty:
            return None
        inner = "(" + " & ".join(map(regex, parts)) + ")" if len(parts) > 1 else regex(text)
        whole = ended(self._writer, inner, tail, may_be_empty=low == 0)
        simple = self._simple(node, beside_others)
        return either([ended(self._writer, regex(simple), tail, may_be_empty=False), whole]) if simple else whole

    def _simple(self, node: Text, beside_others: bool) -> str:
        """Most of what `expression` takes, where that is an intersection for its length alone: the vocabulary's slices
        apply to none, but to a second lexeme beside it (docs/adr/0006)."""
        if not node.is_bounded_by_schema or node.patterns or node.formats or (self._trims and node.min_chars):
            return ""
        starts: list[Start] = []
        if beside_others:
            starts = self._marked.plain_starts()
        elif self._start is not None:
            starts = self._marked.starts_after(self._start)
        return self._marked.simple_text(starts, node.min_chars, node.max_chars)

    def held(self, node: Literals) -> list[str | None]:
        """Listed strings, those left out that would end early."""
        texts = [value for value in node.values if isinstance(value, str)]
        return [text for text in texts if not any(marker in text for marker in self._markers)]


def ended(writer: LarkWriter, text: str, tail: str, *, may_be_empty: bool) -> str:
    """`text`, a regular expression, and `tail`, which ends it. Up to the tail's first token they are one lexeme."""
    first, is_special = (writer.pieces(tail) or [("", False)])[0]
    if first and not is_special:
        return sequence([writer.terminal(f"{text} {quoted(first)}"), writer.literal(tail.removeprefix(first))])
    lexeme = writer.terminal(f"({text}) & {regex('(?s:.+)')}" if may_be_empty else text)
    return sequence([f"({lexeme})?" if may_be_empty else lexeme, writer.literal(tail)])


class TagWriter:
    """Key and value tags. `markers`: what else in the dialect would end a value."""

    def __init__(self, writer: LarkWriter, body: TaggedArguments, markers: Sequence[str], bounds: Bounds) -> None:
        self._writer = writer
        self._body = body
        notation = PYTHON if body.typing == "python" else json_notation(compact=bounds.compact_json)
        self._values = ValueWriter(writer, notation, bounds)
        # Beside strings, the parser takes JSON alone for another type.
        self._json = ValueWriter(writer, json_notation(compact=bounds.compact_json), bounds)
        self._raw = RawText(writer, markers, cdata=body.cdata, trims=body.trim == "strip")
        edge = "\n" if body.trim == "newline" else ""
        self._edge, self._tail = edge, edge + plain(body.closes[0]) + body.separator
        has_types = "{type}" in body.params[-1]
        self._template = plain(body.params[-1] if has_types else body.params[0])

    def members(self, node: Members) -> str | None:
        return member_list(self._writer, node, self._member, self._extra)

    def _member(self, member: Member) -> str | None:
        if not can_be_key(member.key):
            return None
        key = member.key
        if self._body.unescape_keys:
            key = key.replace("&", "&amp;").replace('"', "&quot;")
        return self._either(flat_options(member.value), key)

    def _extra(self, _extra: ExtraMembers) -> None:
        """Undeclared parameters have no type, and so no reading that is certain."""

    def _either(self, options: Sequence[Node], key: str) -> str | None:
        parts = [part for option in options for part in _by_type(option)]
        names = {type_name(part) for part in parts}
        found = []
        for part in parts:
            opener = self._template.replace("{key}", key).replace("{type}", self._type_word(type_name(part)))
            beside_text = "string" in names and len(names) > 1 and "{type}" not in self._template
            value = self._value(part, beside_text)
            if value is not None:
                found.append(sequence([self._writer.literal(opener + self._edge), value]))
        return self._writer.rule(either(found)) if found else None

    def _type_word(self, name: TypeName) -> str:
        if self._body.text_types[0] == "true":
            return "true" if name == "string" else "false"
        return name

    def _value(self, node: Node, beside_text: bool) -> str | None:
        if isinstance(node, Text):
            return self._raw.expression(node, self._tail, beside_others=beside_text)
        values = self._json if beside_text else self._values
        if isinstance(node, Literals):
            is_text = type_name(node) == "string"
            spelled = self._raw.held(node) if is_text else [values.notation.literal(value) for value in node.values]
            return literals(self._writer, spelled, self._tail)
        found = values.value(node)
        return None if found is None else sequence([found, self._writer.literal(self._tail)])


class ElementWriter:
    """Nested elements, each of whose tags has `prefix` before it."""

    def __init__(self, writer: LarkWriter, prefix: str, markers: Sequence[str], bounds: Bounds) -> None:
        self._writer = writer
        self._prefix = prefix
        self._values = ValueWriter(writer, json_notation(compact=bounds.compact_json), bounds)
        self._raw = RawText(writer, [prefix, *markers])
        self._memo: dict[tuple[Node, str, bool], str | None] = {}

    def members(self, node: Members) -> str | None:
        return member_list(self._writer, node, self._member, self._extra)

    def _member(self, member: Member) -> str | None:
        return self._element(member.key, member.value) if _can_be_tag(member.key) else None

    def _extra(self, _extra: ExtraMembers) -> None:
        """A closing tag repeats its key, which no grammar can remember of a key that it does not know."""

    def _element(self, key: str, node: Node) -> str | None:
        tail = f"{self._prefix}</{key}>"
        options = flat_options(node)
        several = len({type_name(option) for option in options}) > 1
        found = [self._value(part, tail, several) for option in options for part in _by_type(option)]
        possible = [value for value in found if value is not None]
        if not possible:
            return None
        return self._writer.rule(sequence([self._writer.literal(f"{self._prefix}<{key}>"), either(possible)]))

    def _value(self, node: Node, tail: str, beside_others: bool) -> str | None:
        key = (node, tail, beside_others)
        if key not in self._memo:
            self._memo[key] = self._written(node, tail, beside_others)
        return self._memo[key]

    def _written(self, node: Node, tail: str, beside_others: bool) -> str | None:
        end = self._writer.literal(tail)
        match node:
            case Text():
                return self._raw.expression(node, tail, beside_others=beside_others)
            case Members():
                inner = self.members(node)
            case Items():
                inner = self._items(node)
            case Literals(values=values) if type_name(node) == "string":
                return literals(self._writer, self._raw.held(node), tail)
            case Literals(values=values):
                scalars = [value for value in values if not isinstance(value, list | dict)]
                return literals(self._writer, list(map(self._values.notation.literal, scalars)), tail)
            case NumberRange():
                inner = self._values.value(node)
            case OneOf(options=options):
                found = [self._written(option, tail, beside_others) for option in options]
                return either([one for one in found if one is not None]) or None
        return None if inner is None else sequence([inner, end])

    def _items(self, node: Items) -> str | None:
        prefix = [self._element("item", place) for place in node.prefix]
        rest = self._element("item", node.rest) if node.rest is not None else None
        if any(place is None for place in prefix):
            return None
        if rest is None:
            return sequence([place or "" for place in prefix]) if node.low <= len(prefix) else None
        num = len(prefix)
        return sequence([*(place or "" for place in prefix), repeated(rest, max(node.low - num, 0), node.high - num)])


def can_be_key(key: str) -> bool:
    """Can a tag name this parameter?"""
    return bool(_KEY.fullmatch(key)) and key == key.strip()


def _can_be_tag(key: str) -> bool:
    return bool(_TAG.fullmatch(key)) and key == key.strip()


def type_name(node: Node) -> TypeName:
    """The type that a tag's `{type}` states."""
    match node:
        case Text():
            return "string"
        case NumberRange():
            return "number"
        case Items():
            return "array"
        case Members():
            return "object"
        case Literals(values=values):
            return _name_of(values[0])
        case OneOf(options=options):
            return type_name(options[0])


def _name_of(value: object) -> TypeName:
    if isinstance(value, str):
        return "string"
    if isinstance(value, bool):
        return "boolean"
    if value is None:
        return "null"
    if isinstance(value, int | float):
        return "number"
    return "array" if isinstance(value, list) else "object"


def _by_type(node: Node) -> list[Node]:
    """Listed values of several types as one node a type."""
    if not isinstance(node, Literals):
        return [node]
    groups: dict[TypeName, list[object]] = {}
    for value in node.values:
        groups.setdefault(_name_of(value), []).append(value)
    return [Literals(tuple(values)) for values in groups.values()]
