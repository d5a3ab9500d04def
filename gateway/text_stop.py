"""Stop strings in a stream of text: found across pieces, held back while they might come, never leaked.

The stop string that is complete first ends the text; of two that are complete at the same character, the longer.
So the result does not depend on how the text was cut. Knows nothing of tokens and parsers.
"""

from __future__ import annotations


class StopFilter:
    """Feed text, take what is certain. Held back is at most the longest stop string less one character.

    Costs O(len(text) + held) a piece and stop string.
    """

    def __init__(self, strings: tuple[str, ...], *, include: bool = False) -> None:
        self._strings = strings
        self._include = include
        self._held = ""
        self.found: str | None = None

    def feed(self, text: str) -> str:
        """The text that is now certain. Once `found` is set, it was the last of it."""
        assert self.found is None
        if not self._strings:
            return text
        text = self._held + text
        match = self._first_match(text)
        if match is not None:
            start, stop = match
            self._held, self.found = "", stop
            return text[: start + len(stop)] if self._include else text[:start]
        num_certain = len(text) - self._num_pending(text)
        self._held = text[num_certain:]
        return text[:num_certain]

    def flush(self) -> str:
        """What was held back, when the text ended without a stop string or its rule does not apply."""
        held, self._held = self._held, ""
        return held

    def _first_match(self, text: str) -> tuple[int, str] | None:
        found: list[tuple[int, int, str]] = []
        for stop in self._strings:
            start = text.find(stop)
            if start >= 0:
                found.append((start + len(stop), start, stop))
        if not found:
            return None
        _, start, stop = min(found)
        return start, stop

    def _num_pending(self, text: str) -> int:
        """How many characters at the end of `text` might be the start of a stop string."""
        num_pending = 0
        for stop in self._strings:
            start = text.find(stop[0], max(0, len(text) - len(stop) + 1))
            while start >= 0:
                if stop.startswith(text[start:]):
                    num_pending = max(num_pending, len(text) - start)
                    break
                start = text.find(stop[0], start + 1)
        return num_pending
