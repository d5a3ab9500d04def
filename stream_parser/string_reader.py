"""Reads the body of one string after another and writes it as JSON string text.

Plain runs are skipped by one compiled expression and passed on as they are; only an escape, a quote, half a surrogate
pair or the beginning of a delimiter waits, and no longer than it must. Knows nothing of what surrounds a string beyond
the `QuoteContext` that its owner gives.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Literal

from stream_parser import repair
from stream_parser.json_text import escaped
from stream_parser.quote_rule import MAX_LOOKAHEAD, QuoteContext, Role, quote_role, settle
from stream_parser.string_style import TRIPLE_STYLES, StringStyle, read_escape
from stream_parser.surrogates import REPLACEMENT, is_high, is_low, join_pair

# What the first held character is, and so what decides about it.
Held = Literal["nothing", "escape", "quote", "surrogate", "delimiter"]


@cache
def _plain_run(style: StringStyle) -> re.Pattern[str]:
    return style.plain_run


class StringReader:
    """`open`, then `feed` until `closed`; afterwards `rest` is text read beyond the string, to be read again.

    `stopped` tells that the character at the returned index may begin a marker; feed again, or `force` it to be text.
    Opening and closing quotes are the owner's to write.
    """

    __slots__ = (
        "_context", "_held", "_held_is", "_note", "_out", "_replays", "_run", "_style", "closed", "rest", "stopped",
    )  # fmt: skip

    def __init__(self, out: list[str], note: Callable[[str], None]) -> None:
        self._out = out
        self._note = note
        self._held = ""
        self._held_is: Held = "nothing"
        self._replays = 0
        self.closed = False
        self.stopped = False
        self.rest = ""

    def open(self, style: StringStyle, context: QuoteContext) -> None:
        self._style = style
        self._run = _plain_run(style)
        self._context = context
        self.closed = False
        self.stopped = False
        self.rest = ""

    def feed(self, text: str, pos: int) -> int:
        """Read text[pos:]; returns the index after the last character consumed. O(characters consumed)."""
        self.stopped = False
        size = len(text)
        while pos < size and not self.closed and not self.stopped:
            if self._held_is == "nothing":
                pos = self._read_run(text, pos)
            elif self._held_is == "quote":
                pos = self._read_quote(text, pos)
            else:
                self._held += text[pos]
                pos += 1
                self._resolve()
        return pos

    def force(self) -> None:
        """The character that stopped us is text, so the quote that waits for it was text as well."""
        self._as_text()

    def end(self) -> None:
        """No more text: a quote that waits may end the string now, and half an escape is text."""
        if self._held_is == "quote" and settle(self._held, self._context) is Role.CLOSE:
            self._close()
        elif self._held_is == "quote":
            self._as_text()
            self.end()
        elif self._held_is != "nothing":
            self._out.append(REPLACEMENT if self._held_is == "surrogate" else escaped(self._held))
            self._drop_held()

    def _read_run(self, text: str, pos: int) -> int:
        run = self._run.match(text, pos)
        assert run is not None
        end = run.end()
        if end > pos:
            self._out.append(run[0])
            if self._context.fresh:
                self._leave_start()
        if end == len(text):
            return end
        self._read_special(text[end])
        return end + 1

    def _read_special(self, char: str) -> None:
        style = self._style
        if char in style.closers:
            self._hold(char, "quote")
            if self._context.place == "alone":
                self._close()
            return
        if char == style.delimiter[:1]:
            self._hold(char, "delimiter")
        elif char == "\\" and style.escapes != "none":
            self._hold(char, "escape")
        elif is_high(char):
            self._hold(char, "surrogate")
        else:
            self._write_special(char)
        self._leave_start()

    def _write_special(self, char: str) -> None:
        if is_low(char):
            self._note(repair.SURROGATE)
        elif char < " " and self._style.is_json:
            self._note(repair.CONTROL_CHARACTER)
        self._out.append(escaped(char))

    def _leave_start(self) -> None:
        if self._context.fresh:
            context = self._context
            self._context = QuoteContext(context.place, context.closers, context.stops)

    def _hold(self, text: str, what: Held) -> None:
        self._held = text
        self._held_is = what

    def _drop_held(self) -> None:
        self._held = ""
        self._held_is = "nothing"

    def _replay(self, text: str) -> None:
        """Read `text` again as the string's body. It has no markers in it, since it was looked at as text before."""
        self._drop_held()
        self._replays += 1
        end = self.feed(text, 0)
        self._replays -= 1
        self.rest += text[end:]

    def _resolve(self) -> None:
        """Decide about a held escape, surrogate or delimiter, if its text suffices."""
        held = self._held
        if self._held_is == "escape":
            escape = read_escape(held, self._style.escapes)
            if escape is None:
                return
            if escape.is_repair:
                self._note(repair.SURROGATE if escape.text == "\\ufffd" else repair.ESCAPE)
            self._out.append(escape.text)
            self._replay(held[escape.length :])
        elif self._held_is == "surrogate":
            if not is_low(held[1]):
                self._note(repair.SURROGATE)
            self._out.append(join_pair(*held) if is_low(held[1]) else REPLACEMENT)
            self._replay("" if is_low(held[1]) else held[1])
        else:
            self._match_delimiter(held)

    def _match_delimiter(self, held: str) -> None:
        delimiter = self._style.delimiter
        if held == delimiter:
            self.closed = True
            self._drop_held()
        elif not delimiter.startswith(held):
            self._out.append(escaped(held[0]))
            self._replay(held[1:])

    def _read_quote(self, text: str, pos: int) -> int:
        context = self._context
        if self._replays and context.stops:
            context = QuoteContext(context.place, context.closers, "", context.fresh)
        while pos < len(text):
            longer = self._held + text[pos]
            role = settle(longer, context) if len(longer) > MAX_LOOKAHEAD else quote_role(longer, context)
            if role is Role.STOP:
                self.stopped = True
                return pos
            self._held = longer
            pos += 1
            if role is not None:
                self._act(role)
                return pos
        return pos

    def _act(self, role: Role) -> None:
        held = self._held
        if role is Role.CLOSE:
            self._close()
        elif role is Role.INNER:
            self._as_text()
        elif role is Role.TRIPLE:
            self._note(repair.QUOTES)
            self.open(TRIPLE_STYLES.get(held[0], self._style), self._context)
            self._replay(held[2:])
        else:
            self._note(repair.PYTHON_LITERAL)
            self._replay(held[1:].lstrip()[1:])

    def _close(self) -> None:
        self.rest = self._held[1:] + self.rest
        self.closed = True
        self._drop_held()

    def _as_text(self) -> None:
        held = self._held
        self._note(repair.INNER_QUOTE)
        self._out.append(escaped(held[0]))
        self._leave_start()
        self._replay(held[1:])
