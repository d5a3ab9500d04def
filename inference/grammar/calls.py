"""A dialect's calls as grammar: what the renderer writes, with the name as a literal and the arguments by schema.

Knows declarations and notations; knows nothing of where calls may stand (`frames`) or of policies (`build`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from inference.grammar.errors import DialectNotConstrainable, GrammarError, UnsupportedKeyword
from inference.grammar.lark import LarkWriter, either, quoted, repeated, sequence
from inference.grammar.members import unwritable
from inference.grammar.nodes import Member, Members, Node, OneOf, Text, flat_options
from inference.grammar.notations import PYTHON, json_notation, lax_notation, python_keyword
from inference.grammar.policy import Bounds, Tool
from inference.grammar.schema import SchemaReader
from inference.grammar.tags import ElementWriter, RawText, TagWriter
from inference.grammar.values import ValueWriter
from stream_parser.dialect import (
    Body,
    ByFirstChar,
    Call,
    Dialect,
    ElementTree,
    JsonArguments,
    JsonCall,
    LaxArguments,
    NoArguments,
    PythonCalls,
    RawArgument,
    TaggedArguments,
)
from stream_parser.patterns import NAME_CHARS, first_literal, plain

_FIELDS = re.compile(r"\{(name|word|id|skip|index)\}")
_FIELD_TERMINALS = {
    "id": r"/[A-Za-z0-9_.:\-]{1,64}/",
    "skip": r"/[^\n<>{}｜\s]{1,64}/",
    "index": "/[1-9][0-9]{0,2}/",
}
_COUNTER = "/[0-9]{1,3}/"
_NAME = re.compile(f"{NAME_CHARS}{{1,256}}")


@dataclass(frozen=True, slots=True)
class ReadTool:
    """A tool, and the node of its arguments."""

    name: str
    arguments: Node
    path: str


def read_tools(tools: Sequence[Tool], bounds: Bounds, not_enforced: dict[str, None]) -> list[ReadTool]:
    """Raises GrammarError where the arguments of a tool are no object, or its schema is refused."""
    places = [tool.place or f"tools[{number}]" for number, tool in enumerate(tools)]
    return [_read_tool(tool, place, bounds, not_enforced) for tool, place in zip(tools, places, strict=True)]


def _read_tool(tool: Tool, place: str, bounds: Bounds, not_enforced: dict[str, None]) -> ReadTool:
    path = f"{place}.parameters"
    schema = tool.parameters if tool.parameters not in ({}, None, True) else {"type": "object", "properties": {}}
    try:
        reader = SchemaReader(schema, path, bounds, closes=True)
        objects = [option for option in flat_options(reader.read()) if isinstance(option, Members)]
        if not objects:
            message = 'allows no object, and the arguments of a call are one. Make it "object".'
            raise UnsupportedKeyword(path, "type", message)
    except GrammarError as error:
        error.locate(path, f"tool {tool.name!r}")
        raise
    not_enforced.update(reader.not_enforced)
    return ReadTool(tool.name, objects[0] if len(objects) == 1 else OneOf(tuple(objects)), path)


class CallWriter:
    """Writes the calls of one declaration into one grammar."""

    def __init__(
        self, writer: LarkWriter, dialect: Dialect, call: Call, bounds: Bounds, end_tokens: Collection[str]
    ) -> None:
        self._writer = writer
        self._dialect = dialect
        self._call = call
        self._bounds = bounds
        self._end_tokens = end_tokens
        self._json = ValueWriter(writer, json_notation(compact=bounds.compact_json), bounds)
        self._comma, self._colon = (",", ":") if bounds.compact_json else (", ", ": ")

    @property
    def ends_turn(self) -> bool:
        """Is a single call's closer an end-of-turn token, so that no second one can follow?"""
        return not self._is_together and bool(self._call.closes) and plain(self._call.closes[0]) in self._end_tokens

    @property
    def _is_together(self) -> bool:
        bare = not self._call.opens and isinstance(self._call.body, JsonCall | PythonCalls)
        return self._call.own_section or bare

    def calls(self, tools: Sequence[ReadTool], *, parallel: bool) -> str:
        """One call, or several as the renderer joins them, without the section around them."""
        parallel = parallel and not self.ends_turn
        most = self._bounds.calls if parallel else 1
        if self._is_together:
            return self._together(tools, most)
        separator = "\n" if self._call.gap or not self._call.closes else ""
        one = self._writer.rule(either([self._one(tool) for tool in tools]))
        return repeated(one, 1, most, quoted(separator) if separator else "")

    def body(self, tool: ReadTool, body: Body) -> str:
        """The body of one call."""
        try:
            return self._body(tool, body)
        except GrammarError as error:
            error.locate(tool.path, f"tool {tool.name!r}")
            raise

    def _body(self, tool: ReadTool, body: Body) -> str:
        match body:
            case JsonCall():
                return self._json_call(body, tool)
            case JsonArguments(fence=fence):
                value = self._json.expression(tool.arguments, tool.path)
                return sequence([quoted("```json\n"), value, quoted("\n```")]) if fence else value
            case TaggedArguments():
                tags = TagWriter(self._writer, body, self._markers(body), self._bounds)
                return self._each(tool, tags.members)
            case ElementTree(prefix=prefix):
                elements = ElementWriter(self._writer, prefix, [], self._bounds)
                return self._each(tool, elements.members)
            case LaxArguments(delimiter=delimiter):
                values = ValueWriter(self._writer, lax_notation(delimiter), self._bounds)
                return self._each(tool, values.value)
            case PythonCalls():
                return self._python_call(tool)
            case RawArgument(argument=argument):
                return self._raw(tool, argument, "")
            case NoArguments():
                return self._nothing(tool)
            case ByFirstChar(choices=choices):
                return self._body(tool, choices[0][1])

    def _markers(self, body: TaggedArguments) -> list[str]:
        call = self._call
        starts = [first_literal(param) for param in body.params]
        return [plain(marker) for marker in (*body.closes, *starts, *call.tails, *call.closes)]

    def _each(self, tool: ReadTool, write: Callable[[Members], str | None]) -> str:
        found = [write(option) for option in flat_options(tool.arguments) if isinstance(option, Members)]
        possible = [one for one in found if one is not None]
        if not possible:
            raise self._unwritable_arguments(tool, write)
        return either(possible)

    def _unwritable_arguments(self, tool: ReadTool, write: Callable[[Members], str | None]) -> UnsupportedKeyword:
        first = next(option for option in flat_options(tool.arguments) if isinstance(option, Members))
        found = unwritable(first, write)
        path = tool.path + "".join(f".properties.{key}" for key in found.keys)
        declare, rename = 'Declare them in "properties".', "Rename it, or do not require it."
        remedy = declare if found.keyword == "minProperties" else rename
        message = f"{found.why} the {self._dialect.name} syntax of this model. {remedy}"
        return UnsupportedKeyword(path, found.keyword, message)

    def _one(self, tool: ReadTool) -> str:
        call = self._call
        if call.heads and not _NAME.fullmatch(tool.name):
            raise self._unwritable(tool)
        opener = plain(call.opens[0]) + call.gap if call.opens else ""
        after_head = call.gap if call.heads and isinstance(call.body, TaggedArguments) else ""
        tail = plain(call.tails[0]) if call.tails else ""
        closer = plain(call.closes[0]) if call.closes and not self.ends_turn else ""
        end = tail + (call.gap + closer if closer else "")
        head = self._head(plain(call.heads[0]), tool.name) if call.heads else []
        if isinstance(call.body, RawArgument):
            # Text ends where its closer does, so they are one.
            return joined(self._writer, [opener, *head, Expression(self._raw(tool, call.body.argument, end))])
        return joined(self._writer, [opener, *head, after_head, Expression(self.body(tool, call.body)), end])

    def _head(self, template: str, name: str) -> list[Piece]:
        pieces: list[Piece] = []
        at = 0
        for field in _FIELDS.finditer(template):
            pieces.append(template[at : field.start()])
            pieces += self._field(field[1], name)
            at = field.end()
        return [*pieces, template[at:]]

    def _field(self, field: str, name: str) -> list[Piece]:
        if field in ("name", "word"):
            return [name]
        if field == "id" and self._dialect.ids == "functions_counter":
            return [f"functions.{name}:", Expression(self._writer.terminal(_COUNTER))]
        return [Expression(self._writer.terminal(_FIELD_TERMINALS[field]))]

    def _together(self, tools: Sequence[ReadTool], most: int) -> str:
        call, body = self._call, self._call.body
        one = self._writer.rule(either([self.body(tool, body) for tool in tools]))
        opens, closes, separator = "", "", "\n"
        if isinstance(body, PythonCalls):
            opens, closes, separator = ("[", "]", ", ") if body.brackets else ("", "", "\n")
        elif isinstance(body, JsonCall) and body.shape == "array":
            opens, closes, separator = "[", "]", self._comma
        elif not isinstance(body, JsonCall):
            message = f"{self._dialect.name}: {type(body).__name__} holds one call at a time."
            raise DialectNotConstrainable("tools", message)
        opener = plain(call.opens[0]) + call.gap if call.opens else ""
        closer = plain(call.closes[0]) if call.closes else ""
        gap = "\n" if closer == "```" else call.gap if closer.startswith("<") else ""
        # In two literals: the separator between calls may begin as the gap does.
        ends = (closes, "") if closer in self._end_tokens else (closes + gap, closer)
        listed = Expression(repeated(one, 1, most, quoted(separator)))
        return sequence([joined(self._writer, [opener + opens, listed]), *map(self._writer.literal, ends)])

    def _json_call(self, body: JsonCall, tool: ReadTool) -> str:
        value = self._json.expression(tool.arguments, tool.path)
        name = json.dumps(tool.name, ensure_ascii=False)
        if body.name_is_key:
            return sequence([quoted("{" + name + self._colon), value, quoted("}")])
        head = f'"{body.name_keys[0]}"{self._colon}{name}{self._comma}"{body.argument_keys[0]}"{self._colon}'
        if not self._writes_ids(body):
            return sequence([quoted("{" + head), value, quoted("}")])
        identity = self._writer.terminal(f'/"[A-Za-z0-9_.:\\-]{{1,64}}"/ {quoted(self._comma)}')
        key = quoted(f'"{body.id_key}"{self._colon}')
        return sequence([quoted("{"), f"({key} {identity})?", quoted(head), value, quoted("}")])

    def _writes_ids(self, body: JsonCall) -> bool:
        """Models of these dialects write an id before the name."""
        return body.id_key != "id" or self._dialect.ids == "alnum9"

    def _python_call(self, tool: ReadTool) -> str:
        if not re.fullmatch(r"[A-Za-z_][\w.\-]*", tool.name):
            raise self._unwritable(tool)
        values = ValueWriter(self._writer, PYTHON, self._bounds)
        arguments = self._each(tool, lambda node: values.keywords(node, python_keyword, quoted(", ")))
        return sequence([quoted(tool.name + "("), arguments, '")"'])

    def _unwritable(self, tool: ReadTool) -> GrammarError:
        return GrammarError(
            tool.path.removesuffix(".parameters") + ".name",
            f"{tool.name!r} cannot be written in the {self._dialect.name} syntax of this model.",
        )

    def _raw(self, tool: ReadTool, argument: str, tail: str) -> str:
        node = tool.arguments
        texts = [m.value for m in node.declared if m.key == argument] if isinstance(node, Members) else []
        others = isinstance(node, Members) and any(m.is_required for m in node.declared if m.key != argument)
        if others or not texts or not isinstance(texts[0], Text) or not self._call.closes:
            raise DialectNotConstrainable(
                tool.path, f"{self._dialect.name} writes one text, {argument!r}, and this tool takes other arguments."
            )
        markers = [plain(marker) for marker in (*self._call.tails, *self._call.closes)]
        found = RawText(self._writer, markers).expression(texts[0], tail, beside_others=False)
        if found is None:
            message = f"allows no text that can be written in the {self._dialect.name} syntax. Allow more."
            raise UnsupportedKeyword(f"{tool.path}.properties.{argument}", "pattern", message)
        return found

    def _nothing(self, tool: ReadTool) -> str:
        node = tool.arguments
        if not isinstance(node, Members) or any(isinstance(m, Member) and m.is_required for m in node.declared):
            raise DialectNotConstrainable(tool.path, f"calls of {self._dialect.name} have no arguments.")
        return ""


@dataclass(frozen=True, slots=True)
class Expression:
    text: str


Piece = str | Expression


def joined(writer: LarkWriter, pieces: Sequence[Piece]) -> str:
    """Texts and expressions in order; neighbouring texts become one literal."""
    found: list[str] = []
    text = ""
    for piece in pieces:
        if isinstance(piece, str):
            text += piece
        else:
            found += [writer.literal(text), piece.text]
            text = ""
    return sequence([*found, writer.literal(text)])
