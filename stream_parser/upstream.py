"""OpenAI-style chunks of any provider in, the parser's events out.

Providers leave indexes, ids, finish reasons and ends out, repeat what they sent, and use field names of their own; what
is made of it is written in `upstream_chunk` (fields), `upstream_calls` (which call) and `upstream_call` (arguments).
Knows nothing of HTTP or SSE: the caller decodes the chunks and says whether `[DONE]` was seen. No chunk raises.

    normalizer = UpstreamNormalizer(tools=tools)
    for chunk in chunks:
        events += normalizer.feed(chunk)
    events += normalizer.finish(done=True)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import assert_never

from stream_parser.calls import random_id
from stream_parser.events import (
    ContentDelta,
    Event,
    Finish,
    FinishReason,
    ReasoningDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from stream_parser.parser import StreamParser
from stream_parser.schema import ToolIndex
from stream_parser.surrogates import SurrogateJoiner
from stream_parser.upstream_calls import CallAssembler, CallNumbers
from stream_parser.upstream_chunk import Chunk, Fragment, read_chunk

# Of several finish reasons the gravest holds.
_GRAVITY: tuple[FinishReason, ...] = ("error", "cancelled", "length")


def _random_call_id() -> str:
    return random_id("call")


class _Text:
    """One text of the message. A last chunk may repeat all of it, which must not be said twice."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._joiner = SurrogateJoiner()

    def add(self, text: str, may_repeat: bool) -> str:
        """The new part of `text`, as it may be passed on."""
        if may_repeat and len(self._pieces) > 0 and text:
            so_far = "".join(self._pieces)
            text = text[len(so_far) :] if text.startswith(so_far) else text
        if text:
            self._pieces.append(text)
        return self._joiner.feed(text)

    @property
    def num_pieces(self) -> int:
        return len(self._pieces)

    def flush(self) -> str:
        return self._joiner.flush()


class UpstreamNormalizer:
    """Turns one answer's chunks into events.

    `content_dialect`: calls and reasoning that the provider left in the content as the model's own markup are
    recovered; off by default, since it turns free text into calls. `choice`: the one of several answers that is read.
    `id_source` mints ids for calls without one.
    """

    def __init__(
        self,
        tools: Sequence[Mapping[str, object]] | None = None,
        content_dialect: str | None = None,
        *,
        choice: int = 0,
        id_source: Callable[[], str] = _random_call_id,
    ) -> None:
        self._choice = choice
        self._numbers = CallNumbers(id_source)
        self._assembler = CallAssembler(ToolIndex(tools), self._numbers)
        self._parser = StreamParser(content_dialect, tools) if content_dialect is not None else None
        self._parser_calls: dict[int, int] = {}  # the recovered calls' own indexes to the message's
        self._content = _Text()
        self._reasoning = _Text()
        self._uses_legacy: bool | None = None  # None: no call seen
        self._reason: FinishReason | None = None
        self._finished = False

    def feed(self, chunk: object) -> list[Event]:
        """Read the next chunk; anything that is no chunk is skipped. O(its length) amortised."""
        assert not self._finished, "feed after finish"
        read = read_chunk(chunk, self._choice)
        events: list[Event] = []
        reasoning = self._reasoning.add(read.reasoning, self._may_repeat(read, self._reasoning))
        if reasoning:
            events.append(ReasoningDelta(reasoning))
        events += self._content_events(self._content.add(read.content, self._may_repeat(read, self._content)))
        events += self._assembler.add(self._fragments(read), read.is_message)
        self._note_reason(read)
        return events

    def finish(self, done: bool) -> list[Event]:
        """The stream is over; `done`: it said so itself. Says how the answer ended."""
        assert not self._finished, "finish twice"
        self._finished = True
        reason: FinishReason | None = self._reason or ("stop" if done else None)
        is_natural = reason in ("stop", "tool_calls")
        events: list[Event] = []
        rest = self._reasoning.flush()
        if rest:
            events.append(ReasoningDelta(rest))
        events += self._content_events(self._content.flush())
        events += self._assembler.finish(is_natural)
        events += self._content_events("".join(self._assembler.lost_text))
        if self._parser is not None:
            events += self._adopt(self._parser.finish(reason or "error"))
        events.append(Finish(self._final_reason(reason)))
        return events

    def _final_reason(self, reason: FinishReason | None) -> FinishReason:
        if reason in _GRAVITY:
            return reason
        if self._assembler.num_cut:
            # Whatever label it came with, a cut call is none to run.
            return "length" if reason else "error"
        if self._numbers.num_started:
            return "tool_calls"
        return "stop" if reason else "error"

    def _may_repeat(self, read: Chunk, text: _Text) -> bool:
        """A whole message repeats what was said; a chunk that ends the answer does, if it begins with all of it."""
        return read.is_message or (read.finish_reason is not None and text.num_pieces > 1)

    def _note_reason(self, read: Chunk) -> None:
        reason = "error" if read.is_error else read.finish_reason
        if reason is not None and (self._reason not in _GRAVITY or reason == "error"):
            self._reason = reason

    def _fragments(self, read: Chunk) -> tuple[Fragment, ...]:
        """The old function_call counts only where no tool_calls are: a message with both means one call."""
        if self._uses_legacy is None and (read.fragments or read.legacy):
            self._uses_legacy = not read.fragments
        if not self._uses_legacy:
            return read.fragments
        return (read.legacy,) if read.legacy else ()

    def _content_events(self, text: str) -> list[Event]:
        if not text:
            return []
        if self._parser is None:
            return [ContentDelta(text)]
        return self._adopt(self._parser.feed(text))

    def _adopt(self, events: list[Event]) -> list[Event]:
        """The content parser's events as part of this message: its calls are numbered among the others."""
        adopted: list[Event] = []
        for event in events:
            match event:
                case ToolCallStart(index=index, id=call_id, name=name):
                    start = self._numbers.start(name, call_id)
                    self._parser_calls[index] = start.index
                    adopted.append(start)
                case ToolCallDelta(index=index, arguments=arguments):
                    adopted.append(ToolCallDelta(self._parser_calls[index], arguments))
                case ToolCallEnd(index=index, arguments=arguments, outcome=outcome, reason=why):
                    adopted.append(ToolCallEnd(self._parser_calls[index], arguments, outcome, why))
                case ReasoningDelta() | ContentDelta():
                    adopted.append(event)
                case Finish():
                    pass
                case _:
                    assert_never(event)
        return adopted
