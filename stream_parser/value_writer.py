"""Writes JSON containers, keys and values for `ValueMachine`, and knows at each place what type the schema wants.

A member whose value is of another type than declared is held until it closes and then brought to that type, if its
meaning is certain. Everything else is written as it comes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from stream_parser import repair
from stream_parser.coercion import LiteralReader, fit, no_literal, read_word
from stream_parser.json_text import Scalar, quoted, read_scalar
from stream_parser.quote_rule import Place, QuoteContext
from stream_parser.scan_output import ScanOutput
from stream_parser.schema_types import TypeSet
from stream_parser.string_style import ESCAPED_STYLES, StringStyle

OPENERS_WRITTEN = {"{": "{", "[": "[", "(": "["}
CLOSERS = {"}": "{", "]": "[", ")": "("}
_CLOSERS_WRITTEN = {"{": "}", "[": "]", "(": "]"}


@dataclass(frozen=True, slots=True)
class Notation:
    """How values are written. `native`: reasons that are no repair here. `words`: does a bare word mean what it spells,
    or what the schema wants? `place`: of the outermost value. `empty`: what stands for an outermost value that is none.
    `read_literal` reads text in the place of a container. `braces_or_parentheses`: either may be around the outermost
    object.
    """

    styles: Mapping[str, StringStyle] = field(default_factory=lambda: ESCAPED_STYLES)
    delimiter: StringStyle | None = None
    words: Literal["spelling", "schema"] = "spelling"
    place: Place = "alone"
    native: frozenset[str] = frozenset()
    empty: Literal["{}", "null"] = "null"
    read_literal: LiteralReader = no_literal
    braces_or_parentheses: bool = False


# What is due next, where no string, word, key or comment is being read.
Due = Literal["value", "key", "colon", "separator"]


class _Level:
    """An open container. `fits`: the type that its text is brought to when it closes."""

    __slots__ = ("fits", "is_undecided", "key", "kind", "types")

    def __init__(self, kind: str, types: TypeSet | None, fits: TypeSet | None) -> None:
        self.kind = kind
        self.types = types
        self.fits = fits
        self.key = ""
        self.is_undecided = kind == "("  # a tuple, or one value in parentheses?


class ValueWriter:
    """The open containers and the text written so far. `gap`: a comma, and blanks behind it, that wait for a member."""

    __slots__ = (
        "_fits", "_in_parentheses", "_notation", "_num_open", "_stops", "_types",
        "done", "gap", "levels", "output", "place",
    )  # fmt: skip

    def __init__(self, notation: Notation, stops: str, types: TypeSet | None) -> None:
        self.output = ScanOutput(notation.native)
        self.levels: list[_Level] = []
        self.gap: list[str] = []
        self.place: Due = "value"
        self.done = False
        self._notation = notation
        self._stops = stops
        self._types = types
        self._num_open = {"{": 0, "[": 0, "(": 0}
        self._fits: TypeSet | None = None
        self._in_parentheses = False

    @property
    def in_object(self) -> bool:
        return bool(self.levels) and self.levels[-1].kind == "{"

    def is_open(self, kind: str) -> bool:
        return self._num_open[kind] > 0

    def context(self, with_stops: bool) -> QuoteContext:
        place: Place = self._notation.place
        if self.levels:
            place = "key" if self.place == "key" else "member" if self.in_object else "item"
        closers = "".join(closer for closer, kind in CLOSERS.items() if self._num_open[kind])
        if self._in_parentheses:
            closers += ")"
        return QuoteContext(place, closers, self._stops if with_stops else "", fresh=True)

    def value_types(self) -> TypeSet | None:
        """The declared type of the value that comes next."""
        if not self.levels:
            return self._types
        level = self.levels[-1]
        if level.types is None:
            return None
        return level.types.property(level.key) if level.kind == "{" else level.types.items

    def write_blank(self, blank: str) -> None:
        if self.gap:
            self.gap.append(blank)
        elif self.levels:
            self.output.write(blank)

    def write_gap(self) -> None:
        if self.gap:
            self.output.write("".join(self.gap))
            self.gap.clear()

    def next_member(self, gap: list[str]) -> None:
        """A comma, written or missing; it makes a tuple of what stands in parentheses."""
        level = self.levels[-1]
        if level.is_undecided:
            level.is_undecided = False
            self.output.release()
        self.gap[:] = gap
        self.place = "key" if self.in_object else "value"

    def miss_comma(self) -> None:
        self.output.note(repair.MISSING_COMMA)
        self.next_member([","])

    def end_value(self) -> None:
        self.place = "separator"
        self.done = not self.levels

    def supply_value(self) -> None:
        """A key has neither colon nor value."""
        self.output.write(":")
        self.supply_null()

    def supply_null(self) -> None:
        self.output.note(repair.MISSING_VALUE)
        self.output.write(" null")
        self.place = "separator"

    def skip_value(self) -> bool:
        """A comma where a value is due. Is it read with that?"""
        if not self.levels:
            self.finish()
        elif self.in_object:
            self.supply_null()
        else:
            self.output.note(repair.EXTRA_COMMA)
            return True
        return False

    def close(self, char: str) -> bool:
        """A closing bracket. Is it read with that? It may belong to what surrounds the outermost value."""
        kind = CLOSERS[char]
        if kind == "(" and self._in_parentheses and not self.is_open("("):
            while len(self.levels) > 1:
                self.output.note(repair.MISSING_CLOSER)
                self.close_level()
            kind = "{"
        if not self.is_open(kind):
            if not self.levels or (self._notation.place != "alone" and char in ")]"):
                self.finish()
                return False
            self.output.note(repair.EXTRA_CLOSER)
            return True
        while self.levels[-1].kind != kind:
            self.output.note(repair.MISSING_CLOSER)
            self.close_level()
        self.close_level()
        self.end_value()
        return True

    def finish(self) -> None:
        """The outermost value ends here, with everything that is open in it."""
        if not self.levels:
            self.write_nothing()
        while self.levels:
            self.output.note(repair.MISSING_CLOSER)
            self.close_level()
        self.done = True

    def drop_comma(self) -> None:
        """No member follows the comma."""
        if self.gap:
            self.output.note(repair.EXTRA_COMMA)
            self.output.write("".join(self.gap[1:]))
            self.gap.clear()

    def open_level(self, char: str) -> None:
        self.write_gap()
        if char == "(" and not self.levels and self._notation.braces_or_parentheses:
            self.output.note(repair.BRACES)
            self._in_parentheses = True
            char = "{"
        types = self.value_types()
        fits = self._begin_fit(types, "object" if char == "{" else "array")
        self.levels.append(_Level(char, types.items if fits and types else types, fits))
        self._num_open[char] += 1
        if char == "(":
            self.output.note(repair.PYTHON_LITERAL)
            self.output.hold()
        self.output.write(OPENERS_WRITTEN[char])
        self.place = "key" if char == "{" else "value"

    def close_level(self) -> None:
        if self.place == "colon":
            self.supply_value()
        elif self.in_object and self.place == "value":
            self.supply_null()
        self.drop_comma()
        level = self.levels.pop()
        self._num_open[level.kind] -= 1
        if level.is_undecided and self.output.held().strip() != "[":
            self.output.drop_first_held()
        else:
            if level.is_undecided:
                self.output.release()
            self.output.write(_CLOSERS_WRITTEN[level.kind])
        self._end_fit(level.fits)
        self.place = "separator"

    def open_key(self, style: StringStyle | None) -> None:
        """`style` None: the key has no quotes."""
        self.write_gap()
        if style is None:
            self.output.note(repair.UNQUOTED_KEY)
        elif not style.is_json:
            self.output.note(repair.QUOTES)
        if self.levels[-1].types is not None:
            self.output.hold()
        self.output.write('"')

    def close_key(self) -> None:
        self.output.write('"')
        level = self.levels[-1]
        if level.types is not None:
            level.key = json.loads(self.output.held())
            self.output.release()
        self.place = "colon"

    def open_string(self, style: StringStyle) -> None:
        """A key or a value begins with its quote."""
        if self.place == "key":
            self.open_key(style)
            return
        self.write_gap()
        if not style.is_json:
            self.output.note(repair.QUOTES)
        self._fits = self._begin_fit(self.value_types(), "string")
        self.output.write('"')

    def close_string(self) -> None:
        if self.place == "key":
            self.close_key()
            return
        self.output.write('"')
        self._end_fit(self._fits)
        self.end_value()

    def write_word(self, word: str) -> None:
        types = self.value_types()
        scalar = self._read_word(word, types)
        if scalar.reason:
            self.output.note(scalar.reason)
        if not self.levels and self._notation.empty == "{}" and scalar.text == "null":
            self.write_nothing()
            return
        text = fit(scalar.text, types)
        if text != scalar.text:
            self.output.note(repair.COERCED_TYPE)
        self.output.write(text)

    def write_nothing(self) -> None:
        """There is no outermost value."""
        if self._notation.empty == "{}":
            self.output.note(repair.EMPTY_ARGUMENTS)
        else:
            self.output.note(repair.MISSING_VALUE)
        self.output.write(self._notation.empty)

    def _read_word(self, word: str, types: TypeSet | None) -> Scalar:
        if self._notation.words == "schema":
            return read_word(word, types)
        scalar = read_scalar(word)
        if scalar is None or (scalar.reason and types is not None and types.is_string_only):
            return Scalar(quoted(word), repair.UNQUOTED_STRING)
        return scalar

    def _begin_fit(self, types: TypeSet | None, json_type: str) -> TypeSet | None:
        """Hold the value that begins here if its declared type is another one to which it may be brought."""
        if types is None or types.allows(json_type) or json_type == "array":
            return None
        if json_type == "object" and not types.allows("array"):
            return None
        self.output.hold()
        return types

    def _end_fit(self, types: TypeSet | None) -> None:
        if types is None:
            return
        text = self.output.held()
        fitting = fit(text, types, self._notation.read_literal)
        if fitting != text:
            self.output.note(repair.COERCED_TYPE)
        self.output.replace(fitting)
