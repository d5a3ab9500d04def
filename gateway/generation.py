"""From a backend's pieces to turn items, for every protocol alike: stop strings, parser, counts. No I/O.

pieces of text → stop strings (held back) → StreamParser, or plain text → turn items
an upstream's chunks → UpstreamNormalizer (gateway.chunk_choice)        → turn items
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gateway.choice import Choice
from gateway.chunk_choice import ChunkChoice
from gateway.errors import GatewayError
from gateway.pieces import Piece, TextPiece, UsageReport
from gateway.text_stop import StopFilter
from gateway.types import Prepared, TokenLogprob, TurnEvent, TurnText, Usage
from stream_parser import StreamParser
from stream_parser.events import ContentDelta, Event, Finish, FinishReason, ToolCallEnd


@dataclass(frozen=True, slots=True)
class StopStrings:
    """What ends a choice besides the model: strings (`include`: as part of the text), or the end of its first call."""

    strings: tuple[str, ...] = ()
    include: bool = False
    after_call: bool = False


class Generation:
    """All choices of one prompt. `first_choice` is added to their indexes.

    Feed pieces until `is_done`; or end it early with `cancel`. Model output never raises.
    """

    def __init__(self, prepared: Prepared, stop: StopStrings, first_choice: int = 0) -> None:
        self._num_prompt_tokens = prepared.num_prompt_tokens
        self._num_cached_tokens = 0
        self._choices = [_choice(prepared, stop, i, first_choice + i) for i in range(prepared.n)]
        self._num_open = prepared.n
        self._report: UsageReport | None = None

    @property
    def is_done(self) -> bool:
        return self._num_open == 0

    def has_ended(self, choice: int) -> bool:
        """Of the choices of this prompt: the backend need not write it any further."""
        return self._choices[choice].is_finished

    @property
    def failure(self) -> GatewayError | None:
        """Of a choice that did not end by its own rules: then the turn cannot either."""
        failures = (choice.failure for choice in self._choices if isinstance(choice, ChunkChoice))
        return next(filter(None, failures), None)

    def feed(self, piece: Piece) -> Sequence[TurnEvent | TurnText]:
        """The piece is one of a choice that has not ended, and of the kind that the prompt was prepared for."""
        choice = self._choices[piece.choice]
        assert not choice.is_finished
        items: Sequence[TurnEvent | TurnText]
        if isinstance(piece, TextPiece):
            assert isinstance(choice, _TextChoice)
            if piece.num_cached_tokens is not None and piece.choice == 0:
                self._num_cached_tokens = piece.num_cached_tokens
            items = choice.feed(piece)
        else:
            assert isinstance(choice, ChunkChoice)
            items = choice.feed(piece)
        self._num_open -= choice.is_finished
        return items

    def report(self, usage: UsageReport) -> None:
        """What the upstream counted; the last report holds."""
        self._report = usage

    def cancel(self) -> list[TurnEvent | TurnText]:
        """Ends every choice that is still open, with its Finish."""
        items = [item for choice in self._choices if not choice.is_finished for item in choice.cancel()]
        self._num_open = 0
        return items

    @property
    def usage(self) -> Usage:
        if self._report is not None:
            return self._reported_usage(self._report)
        return Usage(
            prompt_tokens=self._num_prompt_tokens,
            completion_tokens=sum(choice.num_tokens for choice in self._choices),
            cached_tokens=self._num_cached_tokens,
            reasoning_tokens=sum(choice.num_reasoning_tokens for choice in self._choices),
        )

    def _reported_usage(self, report: UsageReport) -> Usage:
        reasoning_tokens = report.reasoning_tokens
        if reasoning_tokens is None:
            reasoning_tokens = sum(choice.num_reasoning_tokens for choice in self._choices)
        return Usage(
            prompt_tokens=report.prompt_tokens,
            completion_tokens=report.completion_tokens,
            cached_tokens=min(report.cached_tokens, report.prompt_tokens),
            reasoning_tokens=min(reasoning_tokens, report.completion_tokens),
        )


def _choice(prepared: Prepared, stop: StopStrings, number: int, index: int) -> _TextChoice | ChunkChoice:
    if prepared.chunks is not None:
        return ChunkChoice(prepared, number, index, stops_after_call=stop.after_call)
    return _TextChoice(prepared, stop, index)


def total(usages: list[Usage]) -> Usage:
    return Usage(
        prompt_tokens=sum(usage.prompt_tokens for usage in usages),
        completion_tokens=sum(usage.completion_tokens for usage in usages),
        cached_tokens=sum(usage.cached_tokens for usage in usages),
        reasoning_tokens=sum(usage.reasoning_tokens for usage in usages),
    )


class _TextChoice(Choice):
    def __init__(self, prepared: Prepared, stop: StopStrings, index: int) -> None:
        super().__init__(index)
        self._min_tokens = prepared.params.min_tokens
        self._stop = StopFilter(stop.strings, include=stop.include)
        self._stops_after_call = stop.after_call
        self._calls_only = prepared.calls_only
        self._holds_nothing = not stop.strings and not stop.after_call and prepared.params.logprobs is None
        self._logprobs = _PendingLogprobs()
        self._parser: StreamParser | None = None
        if prepared.dialect is not None:
            tools = [dict(tool) for tool in prepared.tools]
            self._parser = StreamParser(prepared.dialect, tools, prompt_tail=prepared.prompt_tail, vocab=prepared.vocab)
        self._token_ids = _HeldTokenIds()
        self._has_whole_call = False

    def feed(self, piece: TextPiece) -> list[TurnEvent | TurnText]:
        if self._parser is not None and self._holds_nothing and piece.finish_reason is None and not piece.logprobs:
            # What comes once a token: nothing to hold back, nothing to end.
            self.num_tokens += piece.num_tokens
            parsed = self._parser.feed(piece.text, piece.token_ids or None)
            self.count(piece.num_tokens, parsed)
            return [TurnEvent(self.index, event) for event in parsed]
        self.num_tokens += piece.num_tokens
        may_stop = self.num_tokens >= self._min_tokens
        text = self._stop.feed(piece.text) if may_stop else self._stop.flush() + piece.text
        reason = piece.finish_reason
        if self._stop.found is not None:
            reason = "stop"
        elif reason is not None:
            text += self._stop.flush()

        logprobs = self._logprobs.take(piece.logprobs, len(text), reason, self._stop.found)
        if self._parser is None:
            self.is_finished = reason is not None
            return [TurnText(self.index, text, reason, logprobs)]
        events: list[Event] = []
        for part, token_ids in self._token_ids.parts(text, piece):
            events += self._parser.feed(part, token_ids)
        if self._stops_after_call:
            events = _until_first_call(events)
        self.count(piece.num_tokens, events)
        self._has_whole_call = self._has_whole_call or _has_call(events)
        if events and isinstance(events[-1], Finish):
            self.is_finished = True
        elif reason is not None:
            ending = self._end(self._parser, reason)
            events = [*events, *(_until_first_call(ending) if self._stops_after_call else ending)]
            self.is_finished = True
        return self._items(events, logprobs)

    def _end(self, parser: StreamParser, reason: FinishReason) -> list[Event]:
        """A stop string ends the text where the client wanted it to, not where the model did: a call that it stands in
        is cut as by the limit, since what would complete it is nothing that the model wrote."""
        if self._stop.found is None:
            return self._without_markers(parser.finish(reason))
        *events, _ = self._without_markers(parser.finish("length"))
        has_calls = self._has_whole_call or _has_call(events)
        is_cut = any(isinstance(event, ToolCallEnd) and event.outcome == "truncated" for event in events)
        return [*events, Finish("tool_calls" if has_calls and not is_cut else "stop")]

    def _without_markers(self, events: list[Event]) -> list[Event]:
        """The parser gives back as text what might have become a marker: here it could have become nothing else."""
        return [event for event in events if not (self._calls_only and isinstance(event, ContentDelta))]

    def cancel(self) -> list[TurnEvent | TurnText]:
        self.is_finished = True
        text = self._stop.flush()
        if self._parser is None:
            return [TurnText(self.index, text, "cancelled")]
        events = self._without_markers([*self._parser.feed(text), *self._parser.finish("cancelled")])
        return self._items(events, self._logprobs.take((), len(text), "cancelled", None))

    def _items(self, events: list[Event], logprobs: tuple[TokenLogprob, ...]) -> list[TurnEvent | TurnText]:
        if logprobs and not events:
            self._logprobs.put_back(logprobs)
            return []
        items: list[TurnEvent | TurnText] = [TurnEvent(self.index, event) for event in events]
        if logprobs:
            items[0] = TurnEvent(self.index, events[0], logprobs)
        if self._stop.found is not None:
            last = items[-1]
            assert isinstance(last, TurnEvent)
            items[-1] = replace(last, stop=self._stop.found)
        return items


def _has_call(events: list[Event]) -> bool:
    return any(isinstance(event, ToolCallEnd) and event.outcome != "truncated" for event in events)


def _until_first_call(events: list[Event]) -> list[Event]:
    """Where the end of the text is what ended the call, the reason stays the end's own."""
    for i, event in enumerate(events):
        if isinstance(event, ToolCallEnd):
            is_last = len(events) == i + 2 and isinstance(events[-1], Finish)
            return events if is_last else [*events[: i + 1], Finish("tool_calls")]
    return events


class _HeldTokenIds:
    """Keeps token ids with the text they came from, while stop strings hold text back.

    A piece whose text goes out in two parts loses its ids: its markers are then known by their spelling.
    """

    def __init__(self) -> None:
        self._held: list[tuple[str, tuple[int, ...] | None]] = []

    def parts(self, text: str, piece: TextPiece) -> list[tuple[str, tuple[int, ...] | None]]:
        """`text` (what is out now, ending within `piece` or before) cut where pieces meet, each part with its ids."""
        whole = (piece.text, piece.token_ids or None)
        if not self._held and text == piece.text:
            return [whole]
        self._held.append(whole)
        parts: list[tuple[str, tuple[int, ...] | None]] = []
        num_left = len(text)
        while self._held and len(self._held[0][0]) <= num_left:
            part = self._held.pop(0)
            num_left -= len(part[0])
            parts.append(part)
        if num_left:
            split, _ = self._held[0]
            parts.append((split[:num_left], None))
            self._held[0] = (split[num_left:], None)
        return parts


class _PendingLogprobs:
    """Log-probabilities wait until the text of their token is out, so that they leak no stop string."""

    def __init__(self) -> None:
        self._entries: list[TokenLogprob] = []
        self._num_chars = 0

    def put_back(self, entries: tuple[TokenLogprob, ...]) -> None:
        """Entries that found no event to travel with; their text counts as out."""
        self._entries[:0] = [replace(entry, num_chars=0) for entry in entries]

    def take(
        self, entries: tuple[TokenLogprob, ...], num_chars: int, reason: str | None, stop: str | None
    ) -> tuple[TokenLogprob, ...]:
        """`num_chars` more characters are out. The end takes what is left; a stop string drops it."""
        if not entries and not self._entries:
            return ()
        self._entries += entries
        self._num_chars += num_chars
        is_all_out = reason is not None and stop is None
        num_out = len(self._entries) if is_all_out else self._num_whole()
        taken = self._entries[:num_out]
        del self._entries[:num_out]
        self._num_chars -= sum(entry.num_chars for entry in taken)
        if stop is not None and self._num_chars > 0 and self._entries:
            cut = self._entries[0]
            taken.append(replace(cut, token=cut.token[: self._num_chars], num_chars=self._num_chars))
        return tuple(taken)

    def _num_whole(self) -> int:
        """How many entries are out entirely. One without text of its own goes with the next that has some."""
        num_whole = num_chars = 0
        for i, entry in enumerate(self._entries):
            num_chars += entry.num_chars
            if num_chars > self._num_chars:
                break
            if entry.num_chars:
                num_whole = i + 1
        return num_whole
