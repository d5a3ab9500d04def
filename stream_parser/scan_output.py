"""What a value scanner has written: JSON text, the parts of it that wait, and why it differs from the input."""

from __future__ import annotations


class ScanOutput:
    """A list of pieces. From the first `hold` on they wait until `release` or `replace`; holds nest."""

    __slots__ = ("_holds", "_native", "pieces", "reasons")

    def __init__(self, native: frozenset[str] = frozenset()) -> None:
        """`native`: reasons that are no repair in this notation, such as single quotes in Python."""
        self.pieces: list[str] = []
        self.reasons: list[str] = []
        self._holds: list[int] = []
        self._native = native

    def note(self, reason: str) -> None:
        if reason not in self.reasons and reason not in self._native:
            self.reasons.append(reason)

    def write(self, text: str) -> None:
        self.pieces.append(text)

    def take(self) -> str:
        """The text that is certain since the last call."""
        pieces, holds = self.pieces, self._holds
        if not pieces:
            return ""
        if not holds:
            text = pieces[0] if len(pieces) == 1 else "".join(pieces)
            pieces.clear()
            return text
        certain = holds[0]
        if not certain:
            return ""
        text = "".join(pieces[:certain])
        del pieces[:certain]
        self._holds[:] = [start - certain for start in holds]
        return text

    def hold(self) -> None:
        self._holds.append(len(self.pieces))

    def held(self) -> str:
        """The text since the innermost hold. O(its length)."""
        return "".join(self.pieces[self._holds[-1] :])

    def release(self) -> None:
        self._holds.pop()

    def replace(self, text: str) -> None:
        """Release the innermost hold with `text` in the place of what was held."""
        self.pieces[self._holds.pop() :] = [text]

    def drop_first_held(self) -> None:
        """Release the innermost hold without its first piece."""
        self.pieces[self._holds.pop()] = ""
