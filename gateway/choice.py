"""What all choices of a turn have in common, whatever it is read from: its counts, and whether it ended."""

from __future__ import annotations

from stream_parser.events import ContentDelta, Event, ReasoningDelta, ToolCallStart


class Choice:
    """One answer of a prompt. index: the turn's number for it."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.num_tokens = 0
        self.num_reasoning_tokens = 0
        self.is_finished = False
        self._num_unplaced_tokens = 0

    def count(self, num_tokens: int, events: list[Event]) -> None:
        """A token counts where the first text after it went: markup counts with what it opens."""
        self._num_unplaced_tokens += num_tokens
        for event in events:
            if isinstance(event, ReasoningDelta):
                self.num_reasoning_tokens += self._num_unplaced_tokens
            if isinstance(event, (ReasoningDelta, ContentDelta, ToolCallStart)):
                self._num_unplaced_tokens = 0
                return
