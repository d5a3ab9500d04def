"""The machine that reads a JSON-like value in any of its notations and writes JSON, repairing on the way.

It knows the syntax: which character may stand where. `StringReader` and `WordReader` read what stands between the
punctuation, `ValueWriter` writes. One piece of text after another goes in, cut anywhere; what comes out does not depend
on the cuts and is never taken back. Each character is looked at a bounded number of times.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from stream_parser import repair
from stream_parser.comment_reader import CommentReader
from stream_parser.json_text import escaped
from stream_parser.schema_types import TypeSet
from stream_parser.string_reader import StringReader
from stream_parser.string_style import OPENERS, RAW_STYLES, StringStyle
from stream_parser.value_writer import CLOSERS, OPENERS_WRITTEN, Due, Notation, ValueWriter
from stream_parser.word_reader import STRING_PREFIXES, WordReader

_SPACES = " \t\r\n"
_BLANK = re.compile(f"[{_SPACES}]+")
_BARE_KEY = r"[^\s:=,{{}}\[\]()\"'{stops}]+"


class ValueMachine:
    """One value. `feed` until `done`, and `end` when the input is over.

    `surplus`: text read beyond the value's end. `meets_escape`: a key begins with a backslash, which `unescapes` says
    somebody else can deal with.
    """

    def __init__(
        self, notation: Notation, *, stops: str = "", types: TypeSet | None = None, unescapes: bool = False
    ) -> None:
        self.stopped = False
        self.surplus = ""
        self.meets_escape = False
        self._notation = notation
        self._stops = stops
        self.unescapes = unescapes
        self._writer = ValueWriter(notation, stops, types)
        self.output = self._writer.output
        self._string = StringReader(self.output.pieces, self.output.note)
        self._word = WordReader()
        self._comment = CommentReader()
        self._bare_key = re.compile(_BARE_KEY.format(stops=re.escape(stops)))
        self._step: Callable[[str, int], int] = self._at_place
        self._readers: dict[Due, Callable[[str, int], int]] = {
            "value": self._read_value,
            "key": self._read_key,
            "colon": self._read_colon,
            "separator": self._read_separator,
        }
        self._key: list[str] = []  # of a key without quotes
        self._matched = ""  # of the delimiter that arrives
        self._replays = 0

    def feed(self, text: str, pos: int = 0) -> int:
        """Read text[pos:]; returns the index behind the last character read. Short of the end: `done` or stopped."""
        self.stopped = False
        size = len(text)
        writer = self._writer
        while pos < size and not writer.done and not self.stopped:
            pos = self._step(text, pos)
        return pos

    def force(self, text: str, pos: int = 0) -> int:
        """The character we stopped at begins no marker: read it as text or rubbish, and go on as `feed` does."""
        char = text[pos]
        if self._step == self._in_string:
            self._string.force()
            return self.feed(text, pos)
        if self._step == self._in_word:
            self._word.force(char)
        elif self._step == self._in_bare_key:
            self._key.append(char)
        elif self._begins_delimiter(char) and self._writer.place != "colon":
            if self._writer.place == "separator":
                self._writer.miss_comma()
            self._matched = char
            self._step = self._in_delimiter
        else:
            self._take_odd(char)
        return self.feed(text, pos + 1)

    def end(self, complete: bool) -> None:
        """The input is over. Complete: what is missing is supplied. Cut: what is undecided stays unsaid."""
        while complete and not self.done:
            self._end_step()

    @property
    def done(self) -> bool:
        return self._writer.done

    def take(self) -> str:
        """The JSON text that is certain since the last call. Never half an escape, never a lone surrogate."""
        return self.output.take()

    @property
    def reasons(self) -> list[str]:
        """Codes of `repair`, in the order in which they came up."""
        return self.output.reasons

    # What is read. Each step reads text from `pos` and returns where to go on.

    def _at_place(self, text: str, pos: int) -> int:
        char = text[pos]
        if char in _SPACES:
            blank = _BLANK.match(text, pos)
            assert blank is not None
            self._writer.write_blank(blank[0])
            return blank.end()
        is_legal = self._writer.place == "value" and char in OPENERS_WRITTEN
        if char in self._stops and not is_legal and not self._replays:
            self.stopped = True
            return pos
        if char in CLOSERS:
            return pos + self._writer.close(char)
        if char in "/#":
            self._comment.open(char, needs_blank=self._writer.place == "value")
            self._step = self._in_comment
            return pos + 1
        return self._readers[self._writer.place](char, pos)

    def _read_value(self, char: str, pos: int) -> int:
        style = self._notation.styles.get(char)
        if style is not None:
            self._begin_string(style)
        elif char in OPENERS_WRITTEN:
            self._writer.open_level(char)
        elif char == ",":
            return pos + self._writer.skip_value()
        elif self._begins_delimiter(char):
            self._matched = char
            self._step = self._in_delimiter
        else:
            self._take_odd(char)
        return pos + 1

    def _read_key(self, char: str, pos: int) -> int:
        style = self._notation.styles.get(char)
        if style is not None:
            self._begin_string(style)
        elif char == ",":
            self.output.note(repair.EXTRA_COMMA)
        elif char == "\\" and self.unescapes:
            self.meets_escape = self.stopped = True
            return pos
        elif self._begins_delimiter(char):
            self._matched = char
            self._step = self._in_delimiter
        else:
            self._take_odd(char)
        return pos + 1

    def _read_colon(self, char: str, pos: int) -> int:
        if char == ",":
            self._writer.supply_value()
            return pos
        self.output.write(":")
        self._writer.place = "value"
        if char == ":":
            return pos + 1
        self.output.note(repair.COLON)
        if char == "=":
            self._step = self._at_arrow
            return pos + 1
        return pos

    def _read_separator(self, char: str, pos: int) -> int:
        if char == ",":
            self._writer.next_member([","])
        elif self._begins_member(char):
            self._writer.miss_comma()
            return pos
        else:
            self._take_odd(char)
        return pos + 1

    def _begins_member(self, char: str) -> bool:
        if char in OPENERS_WRITTEN:
            return not self._writer.in_object
        return char.isalnum() or char in "-_" or char in OPENERS or self._begins_delimiter(char)

    def _at_arrow(self, text: str, pos: int) -> int:
        """Behind the "=" that stands for a colon: "=>" may do so as well."""
        self._step = self._at_place
        return pos + (text[pos] == ">")

    def _in_string(self, text: str, pos: int) -> int:
        string = self._string
        pos = string.feed(text, pos)
        if string.closed:
            self._end_string()
        elif string.stopped:
            self.stopped = True
        return pos

    def _in_word(self, text: str, pos: int) -> int:
        word = self._word
        pos = word.feed(text, pos)
        self.stopped = word.stopped
        if word.closed:
            if text[pos : pos + 1] in OPENERS and word.text.lower() in STRING_PREFIXES:
                self._begin_prefixed_string(word.text, text[pos])
                return pos + 1
            self._end_word()
        return pos

    def _in_bare_key(self, text: str, pos: int) -> int:
        run = self._bare_key.match(text, pos)
        if run is not None:
            self._key.append(run[0])
            pos = run.end()
        if pos == len(text):
            return pos
        if text[pos] in self._stops:
            self.stopped = True
        else:
            self._end_bare_key()
        return pos

    def _in_delimiter(self, text: str, pos: int) -> int:
        """A string's delimiter arrives; until it is whole it may be rubbish instead."""
        style = self._notation.delimiter
        assert style is not None
        matched = self._matched + text[pos]
        if not style.delimiter.startswith(matched):
            self._step = self._at_place
            self._take_odd(self._matched)
            return pos
        self._matched = matched
        if style.delimiter == matched:
            self._begin_string(style)
        return pos + 1

    def _in_comment(self, text: str, pos: int) -> int:
        comment = self._comment
        pos = comment.feed(text, pos)
        if comment.is_comment:
            self.output.note(comment.reason)
        if comment.closed:
            self._step = self._at_place
            if not comment.is_comment:
                self._take_odd(comment.char)
        return pos

    # What to do about it.

    def _begin_string(self, style: StringStyle) -> None:
        self._writer.open_string(style)
        self._string.open(style, self._writer.context(not self._replays))
        self._step = self._in_string

    def _begin_prefixed_string(self, prefix: str, quote: str) -> None:
        self.output.note(repair.PYTHON_LITERAL)
        styles = RAW_STYLES if "r" in prefix.lower() else self._notation.styles
        self._begin_string(styles.get(quote, self._notation.styles[quote]))

    def _end_string(self) -> None:
        self._writer.close_string()
        self._step = self._at_place
        self._replay(self._string.rest)

    def _begin_word(self, first: str) -> None:
        self._writer.write_gap()
        self._word.open(self._writer.context(not self._replays))
        self._word.begin(first)
        self._step = self._in_word

    def _end_word(self) -> None:
        self._writer.write_word(self._word.text)
        self._writer.write_blank(self._word.blank)
        self._writer.end_value()
        self._step = self._at_place
        self._replay(self._word.rest)

    def _end_bare_key(self) -> None:
        self.output.write(escaped("".join(self._key)))
        self._writer.close_key()
        self._step = self._at_place

    def _begins_delimiter(self, char: str) -> bool:
        return self._notation.delimiter is not None and self._notation.delimiter.delimiter[0] == char

    def _take_odd(self, text: str) -> None:
        """`text` has no business here: a fence, the beginning of a word or key without quotes, or rubbish."""
        if self._writer.place == "value":
            if text == "`" and not self._writer.levels:
                self._comment.open(text, needs_blank=False)
                self._step = self._in_comment
            else:
                self._begin_word(text)
        elif self._writer.place == "key" and text not in "{[(:\\":
            self._writer.open_key(None)
            self._key = [text]
            self._step = self._in_bare_key
        else:
            self.output.note(repair.STRAY_TEXT)

    def _replay(self, text: str) -> None:
        """Read again what a string or word read beyond its end. No marker begins there: it would have stopped us."""
        if not text:
            return
        self._replays += 1
        end = self.feed(text)
        self._replays -= 1
        self.surplus += text[end:]

    def _end_step(self) -> None:
        """Bring to its end what is being read; after some of these the value is done."""
        step = self._step
        if step == self._in_string:
            self._string.end()
            if not self._string.closed:
                self.output.note(repair.UNCLOSED_STRING)
            self._end_string()
        elif step == self._in_word:
            self._word.end()
            self._end_word()
        elif step == self._in_bare_key:
            self._end_bare_key()
        elif step == self._in_delimiter or (step == self._in_comment and not self._comment.is_comment):
            self._step = self._at_place
            self._take_odd(self._matched if step == self._in_delimiter else self._comment.char)
        else:
            self._writer.finish()
