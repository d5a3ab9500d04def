"""The streaming parser: deltas of model text in, events out. One machine for reasoning, content and calls.

Pure: no I/O, no clock, no threads. Text is read once; what waits is a possible marker or a call's header, both bounded.
The order is strict: `feed` any number of times, then `finish` once. Any text is accepted and no input raises.

    parser = StreamParser(dialect="hermes", tools=tools, prompt_tail=prompt[-200:])
    for text, ids in deltas:
        events += parser.feed(text, ids)
    events += parser.finish("stop")
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from stream_parser.calls import CallWriter, IdSource
from stream_parser.detect import dialect_named
from stream_parser.dialect import Dialect
from stream_parser.events import Event, Finish, FinishReason
from stream_parser.grammar import compile_dialect
from stream_parser.machine import Machine
from stream_parser.schema import ToolIndex
from stream_parser.surrogates import SurrogateJoiner

Tool = Mapping[str, object]


class StreamParser:
    """Turns one answer's text into events.

    Raises `UnknownDialect` for a name that is none.

    `tools`: OpenAI-style declarations. An empty list is a request without tools: call markup is content then. None
    means that nobody told: every call counts, except where only a declared name would make one.
    `prompt_tail`: the end of the rendered prompt, at least from the last turn marker on; it decides the first region.
    `vocab`: token ids of the dialect's special markers (others are ignored); with it `ids` make markers certain.
    `id_source`: mints call ids for dialects without ids on the wire; unique ones, or they are told apart by a suffix.
    """

    __slots__ = ("_finished", "_joiner", "_machine", "_out", "_special", "_writer")

    def __init__(
        self,
        dialect: str | Dialect,
        tools: Sequence[Tool] | None = None,
        prompt_tail: str = "",
        *,
        vocab: Mapping[str, int] | None = None,
        id_source: IdSource | None = None,
    ) -> None:
        declared = dialect_named(dialect) if isinstance(dialect, str) else dialect
        self._out: list[Event] = []
        self._writer = CallWriter(ToolIndex(tools), self._out, declared.ids, id_source)
        calls_allowed = tools is None or len(tools) > 0
        self._machine = Machine(compile_dialect(declared), self._writer, self._out, calls_allowed)
        self._joiner = SurrogateJoiner()
        self._special = {vocab[m]: m for m in declared.special if m in vocab} if vocab else {}
        self._finished = False
        if prompt_tail:
            self._machine.read_prompt(self._joiner.feed(prompt_tail) + self._joiner.flush())

    def feed(self, text: str, ids: Iterable[int] | None = None) -> list[Event]:
        """Read the next piece of text. O(len(text)) amortised; any cut of the text gives the same merged events."""
        assert not self._finished, "feed after finish"
        if self._special and ids is not None:
            self._feed_marked(text, [self._special[i] for i in ids if i in self._special])
        else:
            self._run(text)
        return self._take()

    def finish(self, reason: FinishReason = "stop") -> list[Event]:
        """The stream is over for `reason`: release what was held, close what is open, and say how it ended."""
        assert not self._finished, "finish twice"
        self._finished = True
        rest = self._joiner.flush()
        if rest:
            self._machine.run(rest)
        self._machine.end(natural=reason in ("stop", "tool_calls"))
        events = self._take()
        if reason in ("stop", "tool_calls"):
            reason = "tool_calls" if self._writer.index >= 0 else "stop"
        events.append(Finish(reason))
        return events

    def _run(self, text: str) -> None:
        text = self._joiner.feed(text)
        if text:
            self._machine.run(text)

    def _feed_marked(self, text: str, markers: list[str]) -> None:
        """Read text in which `markers` stand by id; one that the detokeniser left out is read before what follows."""
        pos = 0
        for marker in markers:
            at = text.find(marker, pos)
            if at >= 0:
                self._run(text[pos:at])
                pos = at + len(marker)
            self._machine.force(marker)
        self._run(text[pos:])

    def _take(self) -> list[Event]:
        events = self._out[:]
        self._out.clear()
        return events
