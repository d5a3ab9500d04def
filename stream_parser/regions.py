"""Where text goes: the region that is open, and the blanks at its edges.

Blanks next to a marker belong to the markup. They are held until what follows is known: a marker swallows them, more
text brings them back. Between two pieces of content that markup parted, they stay. A dialect may keep all blanks
instead. Knows nothing of what markers mean; `Machine` tells.
"""

from __future__ import annotations

import re

from stream_parser.dialect import Region
from stream_parser.events import ContentDelta, Event, ReasoningDelta
from stream_parser.grammar import Grammar, Table

_RECENT = 24
_FENCE_OPENED = re.compile(r"```\w*\s*\Z")


class Regions:
    """The open region and what is held of its text. Text events are appended to `out`."""

    __slots__ = (
        "_blank",
        "_calls_allowed",
        "_content_blank",
        "_content_said",
        "_grammar",
        "_keep_edges",
        "_out",
        "_recent",
        "_remembers",
        "_turn_end",
        "at_edge",
        "between_messages",
        "flowing",
        "fresh",
        "mute",
        "region",
        "silent",
        "table",
        "trigger",
    )

    def __init__(self, grammar: Grammar, out: list[Event], calls_allowed: bool) -> None:
        self._out = out
        self.region: Region = "content"
        self.at_edge = True  # nothing but blanks since the start or the last marker
        self.fresh = True  # nothing at all but blanks so far
        self.flowing = False  # in the middle of text, nothing held: plain text may go straight out
        self.between_messages = False  # blanks are the frame's
        self.silent = False  # reading the prompt, whose text nobody repeats
        self.mute = 0  # how much of the text that comes next the prompt wrote
        self._grammar = grammar
        self._calls_allowed = calls_allowed
        self._keep_edges = grammar.dialect.keep_edges
        self._blank = ""  # blanks at the end of the region's text
        self._content_blank = ""  # the same of the content, while another region is open
        self._content_said = False
        self._recent = ""  # the last words said, where calls may begin on a new line
        self._remembers = any(call.anchor == "line" for call in grammar.dialect.calls)
        self._turn_end = ""  # a spelled end-of-turn marker; text again if more text follows
        self._choose_table()

    def say(self, text: str) -> None:
        """Text of the region: out it goes, but for blanks at its end. O(len(text))."""
        if not text:
            return
        if self._keep_edges:
            self._say_all(text)
            return
        solid = text.rstrip()
        if not solid:
            self._blank += text
            self.flowing = False
            return

        trailing = text[len(solid) :]
        lead = self._turn_end + self._blank
        if self.at_edge:
            bare = solid.lstrip()
            lead += solid[: len(solid) - len(bare)]
            solid = bare
            continues = self._content_said and self.region == "content"
            if not (self.fresh or continues or self._turn_end):
                lead = ""
        self._blank = trailing
        self._turn_end = ""
        self.emit(lead + solid)
        self._leave_edge()
        self.flowing = not trailing

    def emit(self, text: str) -> None:
        """Send text out as it is."""
        if self.silent:
            return
        if self.mute:
            text, self.mute = text[self.mute :], max(0, self.mute - len(text))
            if not text:
                return
        if self.region == "reasoning":
            self._out.append(ReasoningDelta(text))
        elif self.region != "discard":
            self._content_said = True
            if self._remembers:
                self._recent = (self._recent + text)[-_RECENT:]
            self._out.append(ContentDelta(text))

    def starts_line(self, before: str) -> bool:
        """Behind all that was said and `before`, a line begins, and not one inside a code fence."""
        said = (self._recent + self._blank + before).rstrip(" \t")
        return said.endswith("\n") and _FENCE_OPENED.search(said) is None

    def mark(self) -> None:
        """A marker was read: what follows is at its edge, and the blanks before it are gone unless content resumes."""
        if self.region == "reasoning" or self._keep_edges:
            self._blank = ""
        self._turn_end = ""
        self.mute = 0
        self.between_messages = False
        self.at_edge = True
        self.fresh = False
        self.flowing = False
        self._choose_table()

    def enter(self, region: Region) -> None:
        """A marker was read that opens `region`, or closes all others."""
        if region != self.region:
            if self.region == "content":
                self._content_blank, self._blank = self._blank, ""
            elif region == "content":
                self._blank, self._content_blank = self._content_blank, ""
            self.region = region
        self.mark()

    def end_turn(self, marker: str, certain: bool) -> None:
        """An end-of-turn marker was read. Unless `certain`, it was prose if more text follows."""
        blank, was_fresh = self._blank, self.fresh
        self.mark()
        if not (certain or was_fresh):
            self._turn_end = blank + marker
            self._blank = ""

    def resume(self, in_text: bool) -> None:
        """The prompt is over; `in_text`: its last words belong to the answer that goes on now."""
        self.silent = False
        self._blank = self._content_blank = self._turn_end = ""
        self._content_said = False
        if not in_text:
            self.at_edge = True
            self.flowing = False
            self._choose_table()

    def flush(self) -> None:
        """No more text: blanks at the end are text unless a marker stood before them."""
        if self._blank and (self.fresh or not self.at_edge):
            self.emit(self._blank)
        self._blank = ""

    def _say_all(self, text: str) -> None:
        if self.at_edge:
            text, self._blank = self._blank + text, ""
            if self.region == "calls" or self.between_messages:
                text = text.lstrip()
            if not text or text.isspace():
                self._blank = text
                return
        self.emit(self._turn_end + text)
        self._turn_end = ""
        self._leave_edge()
        self.flowing = True

    def _leave_edge(self) -> None:
        if self.at_edge:
            self.at_edge = self.fresh = False
            self._choose_table()

    def _choose_table(self) -> None:
        grammar, region = self._grammar, self.region
        edge = self.at_edge and region == "content"
        if not self._calls_allowed or region not in grammar.dialect.calls_in:
            self.table: Table = grammar.plain_edge if edge else grammar.plain
        elif region == "reasoning":
            self.table = grammar.reasoning
        else:
            self.table = grammar.content_edge if edge else grammar.content
        self.trigger = self.table.trigger.search
