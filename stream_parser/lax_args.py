"""The incremental scanner for braces with bare keys and strings between delimiters of their own, as Gemma writes them:

`{city:<|"|>Oslo<|"|>,days:3}`. The schema decides what a bare word is. Nothing is escaped inside a delimited string; it
ends at the next delimiter.
"""

from __future__ import annotations

from stream_parser import repair
from stream_parser.literals import read_literal
from stream_parser.schema import ToolSchema
from stream_parser.string_style import StringStyle
from stream_parser.value_machine import ValueMachine
from stream_parser.value_writer import Notation

_NATIVE = frozenset({repair.QUOTES, repair.UNQUOTED_KEY, repair.PYTHON_LITERAL, repair.COERCED_TYPE})


class LaxScanner(ValueMachine):
    """One object, from its opening brace, or a parenthesis in its place, to the closing one.

    `delimiter` has two characters or more. A delimited value is text; where the tool's schema wants no string there, it
    is held and read as what it wants. Where `stops` holds the delimiter's first character, each delimiter stops the
    scanner: `force` it.
    """

    def __init__(self, *, delimiter: str, tool: ToolSchema | None = None, stops: str = "") -> None:
        style = StringStyle("none", delimiter=delimiter)
        notation = Notation(
            delimiter=style,
            words="schema",
            native=_NATIVE,
            empty="{}",
            read_literal=read_literal,
            braces_or_parentheses=True,
        )
        super().__init__(notation, stops=stops, types=tool.types if tool else None)
