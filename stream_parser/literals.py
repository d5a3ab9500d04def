"""Reads text that is one whole literal, in JSON's or Python's spelling, as JSON.

Text that merely begins like one, or needs a repair that guesses, is no literal.
"""

from __future__ import annotations

from stream_parser import repair
from stream_parser.string_style import PYTHON_STYLES
from stream_parser.value_machine import ValueMachine
from stream_parser.value_writer import Notation

_NOTATION = Notation(styles=PYTHON_STYLES)
_HARMLESS = frozenset(
    {
        repair.QUOTES,
        repair.PYTHON_LITERAL,
        repair.NUMBER,
        repair.NOT_A_NUMBER,
        repair.UNQUOTED_KEY,
        repair.EXTRA_COMMA,
        repair.COMMENT,
        repair.CONTROL_CHARACTER,
        repair.ESCAPE,
        repair.SURROGATE,
        repair.INNER_QUOTE,
    }
)


def read_literal(text: str) -> str | None:
    """JSON for the container or string that `text` spells, else None. O(len(text))."""
    word = text.strip()
    if word[:1] not in ("{", "[", "(", '"', "'"):
        return None
    machine = ValueMachine(_NOTATION)
    end = machine.feed(word)
    is_whole = machine.done and end == len(word) and not machine.surplus
    return machine.take() if is_whole and _HARMLESS.issuperset(machine.reasons) else None
