"""Where a dialect's reasoning, calls and answer stand: flat spans, or routed messages.

Both frames answer the same questions, for `build` to put together. Knows nothing of policies.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Protocol

from inference.grammar.calls import CallWriter, Expression, Piece, ReadTool, joined
from inference.grammar.errors import DialectNotConstrainable
from inference.grammar.lark import LarkWriter, either, quoted, regex, sequence
from inference.grammar.policy import Bounds
from inference.grammar.raw_text import escaped, without
from inference.grammar.source import Trigger
from inference.grammar.tags import ended
from stream_parser.dialect import Body, Call, Dialect, JsonCall, Messages, PythonCalls, Route, Span
from stream_parser.patterns import plain

_BLANKS = r"/[ \n]{1,4}/"
# How models lay out the beginning of a call that has no marker, the usual ways first. They forget brackets, too.
_JSON_OPENINGS = {
    "one": ('{"KEY": ', '{\n  "KEY": ', '{\n    "KEY": ', '{"KEY":'),
    "lines": ('{"KEY": ', '{\n  "KEY": ', '{\n    "KEY": ', '{"KEY":'),
    "array": ('[{"KEY": ', '{"KEY": ', '{\n  "KEY": ', '[\n  {\n    "KEY": ', '{\n    "KEY": ', '[{"KEY":', '{"KEY":'),
}
_PYTHON_OPENINGS = ("[", "[\n    ", "[\n  ", "[ ")
# Each costs 7 us a token of free text.
_MAX_BARE_TRIGGERS = 64


class Frame(Protocol):
    """One dialect's frame in one grammar. Expressions begin where the prompt left the model."""

    closes_reasoning: str  # as the model writes it; "" if it has no reasoning, or nothing closes it
    reasoning_opens: tuple[str, ...]
    reasoning_closes: tuple[str, ...]

    def thinking(self, *, opened: bool) -> str:
        """Reasoning and what parts it from the rest; "" if the dialect has none. opened: by the prompt."""

    def calls(self, tools: Sequence[ReadTool], *, parallel: bool) -> str:
        """All calls of one answer. Raises DialectNotConstrainable."""

    def stretch(self, tools: Sequence[ReadTool], *, parallel: bool) -> str:
        """What stands in free text: calls with a marked end, else one call, behind which text is free again."""

    def answer(self, text: str) -> str:
        """The visible text, given as an expression, with what stands around it."""

    def triggers(self, tools: Sequence[ReadTool]) -> tuple[Trigger, ...]:
        """What begins calls in free text."""

    def marks(self) -> tuple[str, ...]:
        """Markers that never stand in text without a call."""


def frame_of(writer: LarkWriter, dialect: Dialect, bounds: Bounds, end_tokens: Collection[str]) -> Frame:
    if dialect.messages is not None:
        return MessageFrame(writer, dialect, dialect.messages, bounds, end_tokens)
    return SpanFrame(writer, dialect, bounds, end_tokens)


class SpanFrame:
    def __init__(self, writer: LarkWriter, dialect: Dialect, bounds: Bounds, end_tokens: Collection[str]) -> None:
        self._writer = writer
        self._dialect = dialect
        self._bounds = bounds
        self._end_tokens = end_tokens
        span = dialect.reasoning[0] if dialect.reasoning else Span()
        self._span = span
        self.reasoning_opens = tuple(plain(opener) for opener in (*span.opens, *span.bare_opens))
        # What ends reasoning and is a token that ends the turn has nothing behind it.
        self.reasoning_closes = tuple(plain(closer) for closer in span.closes if plain(closer) not in end_tokens)
        closer = self.reasoning_closes[0] if self.reasoning_closes else ""
        self.closes_reasoning = span.before_close + closer + span.after_close if closer else ""

    def thinking(self, *, opened: bool) -> str:
        if not self.reasoning_closes:
            return ""
        opens = "" if opened else either([self._writer.literal(opener) for opener in self.reasoning_opens])
        closes = closed_text(self._writer, self.reasoning_closes, self.marks())
        return sequence([opens, closes, f"({self._writer.terminal(_BLANKS)})?"])

    def calls(self, tools: Sequence[ReadTool], *, parallel: bool) -> str:
        call = self._call()
        writer = CallWriter(self._writer, self._dialect, call, self._bounds, self._end_tokens)
        calls = writer.calls(tools, parallel=parallel)
        if not self._dialect.sections:
            return calls
        section = self._dialect.sections[0]
        opens = [plain(opener) for opener in section.opens]
        ways = [self._writer.literal(opener + section.after_open) for opener in opens if opens[0].endswith(opener)]
        closer = plain(section.closes[0])
        # In two literals: the separator between calls may begin as they do.
        ends = ("", "") if closer in self._end_tokens else (section.after_open, closer)
        return sequence([either(ways), calls, *map(self._writer.literal, ends)])

    def stretch(self, tools: Sequence[ReadTool], *, parallel: bool) -> str:
        call = self._call()
        has_end = bool(self._dialect.sections) or (call.own_section and bool(call.closes))
        return self.calls(tools, parallel=parallel and has_end)

    def answer(self, text: str) -> str:
        if not self._dialect.answer:
            return text
        span = self._dialect.answer[0]
        if not span.opens:
            return text
        closer = plain(span.closes[0]) if span.closes else ""
        end = "" if closer in self._end_tokens else span.before_close + closer
        ways = [self._writer.literal(plain(opener) + span.after_open) for opener in span.opens]
        return sequence([f"({either(ways)})?", text, f"({self._writer.literal(end)})?" if end else ""])

    def triggers(self, tools: Sequence[ReadTool]) -> tuple[Trigger, ...]:
        call = self._call()
        opens = self._dialect.sections[0].opens if self._dialect.sections else call.opens
        if opens:
            return tuple(Trigger(plain(opener), plain(opens[0])) for opener in opens)
        anchored = call.anchor != "anywhere"
        if isinstance(call.body, JsonCall) or call.body == PythonCalls(brackets=True):
            others = [other for other in self._dialect.calls if other.body == call.body and not other.heads]
            behind = (Trigger(plain(opener), "") for other in others for opener in other.opens)
            ways = max(_MAX_BARE_TRIGGERS // max(len(tools), 1), 1)
            spelled = (pair for tool in tools for pair in _bare_openings(call.body, tool.name, self._bounds)[:ways])
            return (*(Trigger(text, lead, anchored) for text, lead in spelled), *behind)
        if call.heads:
            head = plain(call.heads[0])
            lead = head[: head.index("{")] if "{" in head else head
            if lead:
                return (Trigger(lead, lead, anchored),)
            texts = [head.replace("{name}", tool.name) for tool in tools]
        else:
            texts = [_bare_opening(call, tool) for tool in tools]
        return tuple(Trigger(text, text, anchored) for text in texts)

    def marks(self) -> tuple[str, ...]:
        found = [opener for section in self._dialect.sections for opener in section.opens]
        for call in self._dialect.calls:
            found += call.opens
            found += [head[: head.index("{")] for head in call.heads if "{" in head]
        return tuple(dict.fromkeys(plain(mark) for mark in found if len(mark.strip()) > 2))

    def _call(self) -> Call:
        if not self._dialect.calls:
            raise DialectNotConstrainable(
                "tools", f"the {self._dialect.name} syntax, which this model was found to write, has no calls."
            )
        return self._dialect.calls[0]


class MessageFrame:
    def __init__(
        self, writer: LarkWriter, dialect: Dialect, messages: Messages, bounds: Bounds, end_tokens: Collection[str]
    ) -> None:
        self._writer = writer
        self._dialect = dialect
        self._messages = messages
        self._bounds = bounds
        self._end_tokens = end_tokens
        self._start = messages.starts[0]
        route = next((r for r in messages.routes if r.to == "reasoning" and r.render), None)
        end = messages.ends[0] if messages.ends and messages.ends[0] not in end_tokens else ""
        self.reasoning_opens: tuple[str, ...] = (route.render + plain(messages.message),) if route else ()
        self.reasoning_closes: tuple[str, ...] = (end,) if route and end else ()
        self.closes_reasoning = end + self._start if route and end else ""

    def thinking(self, *, opened: bool) -> str:
        if not self.reasoning_closes:
            return ""
        opens = "" if opened else self._writer.literal(self.reasoning_opens[0])
        closes = closed_text(self._writer, self.reasoning_closes, ())
        return sequence([opens, closes, self._writer.literal(self._start)])

    def calls(self, tools: Sequence[ReadTool], *, parallel: bool) -> str:
        messages = self._messages
        if messages.body is None:
            spans = SpanFrame(self._writer, replace(self._dialect, messages=None), self._bounds, self._end_tokens)
            route = next(r for r in messages.routes if r.to == "calls" and r.render)
            header = self._writer.literal(route.render + plain(messages.message))
            return sequence([header, spans.calls(tools, parallel=parallel), self._end()])
        end = self._call_end()
        one = self._writer.rule(either([self._call(tool) for tool in tools]))
        if not parallel or end in self._end_tokens or self._bounds.calls == 1:
            return sequence([one, self._writer.literal("" if end in self._end_tokens else end)])
        more = sequence([self._writer.literal(end + self._start), one])
        return sequence([one, f"({more}){{0,{self._bounds.calls - 1}}}", self._writer.literal(end)])

    def stretch(self, tools: Sequence[ReadTool], *, parallel: bool) -> str:
        return self.calls(tools, parallel=parallel and self._messages.body is None)

    def answer(self, text: str) -> str:
        route = next(r for r in self._messages.routes if r.to == "content" and r.render)
        return sequence([self._writer.literal(route.render + plain(self._messages.message)), text, self._end()])

    def triggers(self, tools: Sequence[ReadTool]) -> tuple[Trigger, ...]:
        messages = self._messages
        if messages.body is None:
            route = next(r for r in messages.routes if r.to == "calls" and r.render)
            return (Trigger(route.render, route.render),)
        render = self._call_route().render
        lead = render[: render.index("{name}")]
        if lead:
            return (Trigger(lead, lead),)
        texts = [render.replace("{name}", tool.name) + plain(messages.message) for tool in tools]
        return tuple(
            trigger
            for text in texts
            for trigger in (Trigger(self._start + text, text), Trigger(text, text, line_start=True))
        )

    def marks(self) -> tuple[str, ...]:
        """The texts of the headers that lead to calls."""
        routes = [r for r in self._messages.routes if r.to in ("call", "calls") and r.render]
        leads = [route.render.split("{name}")[0] for route in routes]
        texts = [piece for lead in leads for piece, special in self._writer.pieces(lead) if not special]
        return tuple(text for text in texts if len(text.strip()) > 2)

    def _call(self, tool: ReadTool) -> str:
        messages = self._messages
        assert messages.body is not None
        call = Call(messages.body, closes=messages.ends)
        body = CallWriter(self._writer, self._dialect, call, self._bounds, self._end_tokens).body(tool, messages.body)
        header = self._call_route().render.replace("{name}", tool.name) + plain(messages.message)
        pieces: list[Piece] = [header, Expression(body)]
        return joined(self._writer, pieces)

    def _call_route(self) -> Route:
        return next(route for route in self._messages.routes if route.to == "call")

    def _call_end(self) -> str:
        ends = self._messages.ends
        return next((end for end in ends if "call" in end), ends[0] if ends else "")

    def _end(self) -> str:
        """The marker behind a message, unless the turn's end stands for it."""
        end = self._messages.ends[0] if self._messages.ends else ""
        return f"({self._writer.literal(end)})?" if end and end not in self._end_tokens else ""


def closed_text(writer: LarkWriter, closes: Sequence[str], marks: Sequence[str]) -> str:
    """Text up to one of `closes`, without any of `marks` before."""
    # Those that are tokens are not to be spelled either: the parser reads the text.
    marked = without([*closes, *marks])
    text = regex(f"{marked.unit}*{marked.rest}")
    return either([ended(writer, text, closer, may_be_empty=True) for closer in closes])


def _bare_opening(call: Call, tool: ReadTool) -> str:
    return tool.name + "(" if isinstance(call.body, PythonCalls) else tool.name


def _bare_openings(body: Body, name: str, bounds: Bounds) -> list[tuple[str, str]]:
    """How a call without a marker begins, the grammar's own way first: what is written, and how the grammar has it."""
    if not isinstance(body, JsonCall):
        return [(f"{way}{name}(", f"[{name}(") for way in _PYTHON_OPENINGS]
    key, spelled = body.name_keys[0], json.dumps(name, ensure_ascii=False)
    lead = ("[" if body.shape == "array" else "") + f'{{"{key}"{":" if bounds.compact_json else ": "}{spelled}'
    ways = [way.replace("KEY", key) + spelled for way in _JSON_OPENINGS[body.shape]]
    return [(text, lead) for text in dict.fromkeys((lead, *ways))]


def bare_call_patterns(dialect: Dialect, names: Sequence[str]) -> list[str]:
    """Regexes of what begins calls that have no marker, by the tools' names."""
    any_name = "(?:" + "|".join(escaped(name) for name in names) + ")"
    found = []
    for call in dialect.calls:
        if call.opens or (call.heads and not call.heads[0].startswith("{name}")):
            continue
        match call.body:
            case JsonCall(name_keys=keys):
                found.append(rf'"(?:{"|".join(map(re.escape, keys))})"\s*:\s*"{any_name}"')
            case PythonCalls():
                found.append(rf"{any_name}\(")
            case _:
                found.append(rf"{any_name}\s*\n\s*\{{")
    return list(dict.fromkeys(found))


def free_text(writer: LarkWriter, marks: Sequence[str], patterns: Sequence[str], specials: Collection[int]) -> str:
    """Any text in which no mark stands and no pattern is found, among special tokens that may stand there."""
    found = [*(escaped(mark) for mark in marks), *patterns]
    text = regex("(?s:.+)") + (" & ~" + regex(f"(?s:.*)(?:{'|'.join(found)})(?s:.*)") if found else "")
    lexeme = writer.terminal(text)
    if not specials:
        return f"({lexeme})?"
    # No two lexemes side by side: a mark could stand across them.
    tokens = f"<[{','.join(map(str, sorted(specials)))}]>"
    return f"({lexeme})? ({tokens} ({lexeme})?)*"


def choice(texts: Sequence[str], writer: LarkWriter) -> str:
    """One of the texts, as text."""
    filled = [quoted(text) for text in dict.fromkeys(texts) if text]
    expression = writer.terminal(" | ".join(filled)) if filled else ""
    return f"({expression})?" if "" in texts and expression else expression
