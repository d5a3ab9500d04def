"""Puts the call fragments of an upstream together again and emits their events, in the order in which calls began.

Which call a fragment belongs to: the index says it first, the id where the index is missing. A new id with a name opens
a call even under a used index; a fragment without id and name under an unused index continues the call in progress;
without ids, a repeated name behind whole arguments opens a call; a changed id without a name continues.
"""

from __future__ import annotations

from collections.abc import Callable

from stream_parser.events import Event, ToolCallDelta, ToolCallEnd, ToolCallStart
from stream_parser.schema import ToolIndex
from stream_parser.upstream_call import UpstreamCall
from stream_parser.upstream_chunk import Fragment


class CallNumbers:
    """Gives out indexes and unique ids for all calls of a message, whoever finds them."""

    def __init__(self, mint: Callable[[], str]) -> None:
        self.num_started = 0
        self._mint = mint
        self._ids: set[str] = set()

    def start(self, name: str, wanted_id: str) -> ToolCallStart:
        call_id = wanted_id or self._mint()
        unique, number = call_id, 2
        while unique in self._ids:
            unique, number = f"{call_id}-{number}", number + 1
        self._ids.add(unique)
        self.num_started += 1
        return ToolCallStart(self.num_started - 1, unique, name)


class CallAssembler:
    """`add` fragments, then `finish` once. `num_cut` counts the calls that the end of the stream cut."""

    def __init__(self, tools: ToolIndex, numbers: CallNumbers) -> None:
        self.num_cut = 0
        self.lost_text: list[str] = []  # arguments that never got a name
        self._tools = tools
        self._numbers = numbers
        self._calls: list[UpstreamCall] = []  # in order; those before `_first_open` are ended or dropped
        self._first_open = 0
        self._by_index: dict[int, UpstreamCall] = {}
        self._by_id: dict[str, UpstreamCall] = {}
        self._current: UpstreamCall | None = None

    def add(self, fragments: tuple[Fragment, ...], is_message: bool = False) -> list[Event]:
        """The fragments of one chunk. Entries of one list without index and id are calls of their own.

        `is_message`: they are all calls of the message so far, in order.
        """
        known = list(self._calls)
        for position, fragment in enumerate(fragments):
            call = known[position] if is_message and position < len(known) else None
            if call is None or call.name != fragment.name:
                call = self._route(fragment, is_first=position == 0)
            if call is not None:
                self._current = call
                self._note_id(fragment.id, call)
                call.add_name(fragment.name)
                call.add_arguments(fragment.arguments, fragment.is_object)
        return self._emit(at_end=False)

    def finish(self, is_natural: bool) -> list[Event]:
        """The stream is over. What is not whole is cut, but for calls without any arguments at a natural end."""
        events = self._emit(at_end=True)
        for call in self._calls:
            if not call.is_started or call.is_ended:
                continue
            if call.is_whole or (is_natural and not call.has_arguments):
                events += self._end(call)
            else:
                self.num_cut += 1
                rest, arguments, outcome, reason = call.cut()
                events += self._delta(call, rest)
                events.append(ToolCallEnd(call.event_index, arguments, outcome, reason))
        return events

    def _route(self, fragment: Fragment, is_first: bool) -> UpstreamCall | None:
        """The call that the fragment belongs to, a new one if need be."""
        if not (fragment.id or fragment.name or fragment.arguments.strip()):
            return None if fragment.index is None else self._by_index.get(fragment.index)
        known = self._by_id.get(fragment.id) if fragment.id else None
        if fragment.index is None:
            return self._route_by_id(fragment, known, is_first)
        call = self._by_index.get(fragment.index)
        if call is None:
            return self._route_unused_index(fragment, known)
        return self._route_used_index(fragment, call, known)

    def _route_by_id(self, fragment: Fragment, known: UpstreamCall | None, is_first: bool) -> UpstreamCall:
        current = self._current
        if known is not None:
            return known if self._continues(fragment, known) else self._open(fragment, twin=known)
        if current is None:
            return self._open(fragment)
        if not fragment.name:
            return current
        if fragment.id or not is_first:
            return self._open(fragment)
        return current if self._continues(fragment, current) else self._open(fragment)

    def _route_unused_index(self, fragment: Fragment, known: UpstreamCall | None) -> UpstreamCall:
        current = self._current
        if fragment.name:
            return self._open(fragment, twin=known)
        continued = known
        if continued is None and current is not None and not current.is_settled:
            # Without an id it is more of the call in progress; with one, only if that call is in mid-arguments.
            continued = current if not fragment.id or current.has_arguments else None
        if continued is None:
            return self._open(fragment)
        assert fragment.index is not None
        self._by_index[fragment.index] = continued
        return continued

    def _route_used_index(self, fragment: Fragment, call: UpstreamCall, known: UpstreamCall | None) -> UpstreamCall:
        if known is not None and known is not call:
            return known if self._continues(fragment, known) else self._open(fragment, twin=known)
        is_new_id = bool(fragment.id and call.id) and known is None
        if is_new_id and fragment.name:
            return call if self._is_inside(fragment, call) else self._open(fragment)
        if is_new_id and call.is_settled and fragment.begins_arguments:
            return self._open(fragment)
        return call if self._continues(fragment, call) else self._open(fragment, twin=known)

    @staticmethod
    def _is_inside(fragment: Fragment, call: UpstreamCall) -> bool:
        """A piece from the middle of arguments cannot open a call, whatever id and name come along with it."""
        in_arguments = call.has_arguments and not call.is_whole
        return in_arguments and bool(fragment.arguments.strip()) and not fragment.begins_arguments

    def _continues(self, fragment: Fragment, call: UpstreamCall) -> bool:
        """Is a fragment with the call's id, or without one, more of the call, though it may repeat the name?"""
        if not fragment.name or not call.name:
            return True
        if call.is_whole:
            return self._continues_whole(fragment, call)
        names = self._tools.names
        if fragment.name == call.name or fragment.name not in names or call.name not in names:
            return True
        # Two declared names: the second piece of a longer one, that longer one, or the next call.
        grows = fragment.name.startswith(call.name) and not call.has_arguments
        return call.name + fragment.name in names or (grows and (bool(fragment.id) or call.requires_arguments))

    @staticmethod
    def _continues_whole(fragment: Fragment, call: UpstreamCall) -> bool:
        """A named fragment behind whole arguments: a copy may follow of what has an id or was resent before."""
        if fragment.name != call.name:
            return False
        if not call.is_settled and (fragment.id or call.requires_arguments):
            return True
        if not fragment.id and not call.is_cumulative:
            return False
        return not fragment.begins_arguments or call.would_resend(fragment.arguments)

    def _open(self, fragment: Fragment, twin: UpstreamCall | None = None) -> UpstreamCall:
        call = UpstreamCall(self._tools, fragment.id, twin)
        self._calls.append(call)
        if fragment.index is not None:
            self._by_index[fragment.index] = call
        if fragment.id:
            self._by_id[fragment.id] = call
        return call

    def _note_id(self, call_id: str, call: UpstreamCall) -> None:
        if call_id:
            self._by_id.setdefault(call_id, call)
            call.id = call.id or call_id

    def _emit(self, at_end: bool) -> list[Event]:
        """Start calls as far as their order allows, pass on what is certain, end what is whole."""
        events: list[Event] = []
        in_order = True
        for call in self._calls[self._first_open :]:
            if call.is_ended:
                continue
            if not call.is_started and in_order:
                self._try_start(call, at_end or call is not self._calls[-1], at_end, events)
                in_order = call.is_started or call.is_ended
            if call.is_started and not call.is_ended:
                events += self._delta(call, call.take())
                if call.is_settled:
                    events += self._end(call)
        while self._first_open < len(self._calls) and self._calls[self._first_open].is_ended:
            self._first_open += 1
        return events

    def _try_start(self, call: UpstreamCall, is_named: bool, at_end: bool, events: list[Event]) -> None:
        """`is_named`: no more pieces of the name can come, since another call has begun or the stream is over."""
        if call.twin is not None and call.twin.name == call.name and not call.is_whole and not at_end:
            return
        if not call.name and at_end:
            self._give_up(call)
        if not call.name or call.is_ended:
            return
        if call.twin is not None and call.is_copy_of(call.twin):
            call.is_ended = True
        elif is_named or call.has_arguments or call.name_is_certain():
            start = self._numbers.start(call.name, call.id)
            call.start(start.index)
            events.append(start)

    def _give_up(self, call: UpstreamCall) -> None:
        """A call without a name: with one tool to choose from it can be no other."""
        if len(self._tools.names) == 1:
            call.name_it(next(iter(self._tools.names)))
        else:
            self.lost_text.append(call.text)
            call.is_ended = True

    def _delta(self, call: UpstreamCall, text: str) -> list[Event]:
        return [ToolCallDelta(call.event_index, text)] if text else []

    def _end(self, call: UpstreamCall) -> list[Event]:
        rest, arguments, outcome, reason = call.finish()
        return [*self._delta(call, rest), ToolCallEnd(call.event_index, arguments, outcome, reason)]
