"""The incremental scanner for one Python literal, as a call's argument: `city='Oslo'`, `size=(640, 480)`.

JSON comes out. What Python spells in its own way (quotes, True, None, tuples, adjacent strings) is no repair here; line
breaks in strings, quotes inside quotes, bare words and JSON's literals are understood all the same.
"""

from __future__ import annotations

from stream_parser import repair
from stream_parser.literals import read_literal
from stream_parser.schema_types import TypeSet
from stream_parser.string_style import PYTHON_STYLES
from stream_parser.value_machine import ValueMachine
from stream_parser.value_writer import Notation

_NATIVE = frozenset({repair.QUOTES, repair.PYTHON_LITERAL, repair.ESCAPE, repair.EXTRA_COMMA})
_KEYWORD = Notation(styles=PYTHON_STYLES, place="keyword_argument", native=_NATIVE, read_literal=read_literal)
_POSITIONAL = Notation(styles=PYTHON_STYLES, place="argument", native=_NATIVE, read_literal=read_literal)


class PythonScanner(ValueMachine):
    """One argument's value, from its first character to the comma or parenthesis behind it, which is not consumed.

    To tell a quote inside a string from the string's end, the scanner may read beyond the value: on `done`, go on with
    `surplus` and then the rest of the piece. `keyword`: the arguments that follow have names.
    """

    def __init__(self, *, types: TypeSet | None = None, stops: str = "", keyword: bool = True) -> None:
        super().__init__(_KEYWORD if keyword else _POSITIONAL, stops=stops, types=types)
