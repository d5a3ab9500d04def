"""Which marker counts where it stands: a tag quoted in prose is prose, a special token never is.

Knows the grammar, the open region and what is open inside of it; reads no text and emits nothing.
"""

from __future__ import annotations

import re

from stream_parser.dialect import Route
from stream_parser.grammar import Entry, Grammar, Role
from stream_parser.regions import Regions
from stream_parser.schema import ToolIndex


class MarkerRules:
    """`Machine` sets the attributes; the methods only look."""

    __slots__ = ("_grammar", "_regions", "_tools", "after_call", "answer_open", "forced", "owes_close")

    def __init__(self, grammar: Grammar, regions: Regions, tools: ToolIndex) -> None:
        self._grammar = grammar
        self._regions = regions
        self._tools = tools
        self.after_call = False  # nothing but markers since a call ended
        self.answer_open = False
        self.owes_close = False  # a call ended the reasoning; its closer may still come
        self.forced = False  # the marker being read is certain by its token id

    def is_cut_markup(self, text: str, at: int, was_cut: bool) -> bool:
        """Whether the beginning of a marker with which the text ends is markup that was cut off, and not prose."""
        if was_cut and self._regions.at_edge and not self._regions.fresh:
            return True
        for entry in self._regions.table.entries:
            if entry.opened is None or not entry.opened.match(text, at):
                continue
            if entry.special:
                return True
            if was_cut:
                return not entry.loose or any(name in text[at:] for name in self._tools.names)
        return False

    def role(self, entry: Entry, hit: re.Match[str]) -> Role | None:
        """What the marker means here; None if it is text."""
        roles = entry.roles
        if Role.CALL in roles:
            return Role.CALL if self._names_a_call(entry, hit) else None
        if Role.HEADER in roles:
            return Role.HEADER if self._is_header(entry, hit) else None
        if Role.MESSAGE_END in roles:
            return Role.MESSAGE_END
        regions = self._regions
        certain = entry.special or self.forced or regions.silent
        role = (
            self._role_in_reasoning(entry, certain)
            if regions.region == "reasoning"
            else self._role_in_content(entry, certain)
        )
        if role is not None:
            return role
        if Role.TURN_END in roles:
            return Role.TURN_END
        beside_markup = regions.at_edge and regions.region != "reasoning" and not regions.fresh
        if certain or (beside_markup and (Role.STRAY in roles or Role.ANSWER_CLOSE in roles)):
            return Role.STRAY
        return None

    def _role_in_reasoning(self, entry: Entry, certain: bool) -> Role | None:
        roles = entry.roles
        if Role.ANSWER_OPEN in roles and (entry.ends_reasoning or certain or Role.REASONING_CLOSE in roles):
            return Role.ANSWER_OPEN
        if Role.REASONING_CLOSE in roles:
            return Role.REASONING_CLOSE
        if Role.REASONING_OPEN in roles and (self._regions.at_edge or certain) and not entry.first_only:
            return Role.STRAY
        return None

    def _role_in_content(self, entry: Entry, certain: bool) -> Role | None:
        """A tag quoted in prose is prose: openers count at the edge of markup only, closers where something is open."""
        roles, regions = entry.roles, self._regions
        counts = regions.at_edge or certain
        if Role.REASONING_OPEN in roles and (regions.fresh if entry.first_only else counts):
            return Role.REASONING_OPEN
        if Role.ANSWER_CLOSE in roles and self.answer_open:
            return Role.ANSWER_CLOSE
        if Role.ANSWER_OPEN in roles and counts:
            return Role.ANSWER_OPEN
        if Role.REASONING_CLOSE in roles and (counts or self.owes_close):
            return Role.REASONING_CLOSE
        return None

    def _names_a_call(self, entry: Entry, hit: re.Match[str]) -> bool:
        if not entry.known_name or (entry.loose and self.after_call and self._regions.at_edge):
            return True
        name = self.captured(hit, "name")
        return not name or name in self._tools.names

    def _is_header(self, entry: Entry, hit: re.Match[str]) -> bool:
        messages = self._grammar.dialect.messages
        assert messages is not None
        if not messages.known_names:
            return True
        route, name = self.route(hit)
        return route is None or route.to != "call" or name in self._tools.names

    @staticmethod
    def captured(hit: re.Match[str], group: str) -> str:
        assert hit.lastgroup is not None
        return str(hit.groupdict().get(group + hit.lastgroup[1:]) or "")

    def route(self, hit: re.Match[str]) -> tuple[Route | None, str]:
        messages = self._grammar.dialect.messages
        assert messages is not None
        header = self.captured(hit, "header")
        for route in messages.routes:
            found = re.search(route.header, header)
            if found:
                return route, found.groupdict().get("name") or ""
        return None, ""
