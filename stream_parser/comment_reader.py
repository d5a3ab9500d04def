"""Skips one comment, `// …`, `# …` or `/* … */`, or an opening code fence, in text that arrives in pieces."""

from __future__ import annotations

from typing import Literal

from stream_parser import repair

_Kind = Literal["slash", "hash", "line", "block", "star", "fence"]


class CommentReader:
    """`open` with the first character; then `feed` until `closed`. `is_comment` False: that character was none."""

    __slots__ = ("_kind", "char", "closed", "is_comment", "reason")

    def __init__(self) -> None:
        self._kind: _Kind = "line"
        self.char = ""
        self.reason = repair.COMMENT
        self.closed = False
        self.is_comment = False

    def open(self, char: str, needs_blank: bool) -> None:
        """`needs_blank`: where a value is due, "# note" is a comment and "#fff" is not."""
        self.char = char
        self.reason = repair.CODE_FENCE if char == "`" else repair.COMMENT
        self.closed = False
        self.is_comment = char != "/" and not needs_blank
        if char == "`":
            self._kind = "fence"
        else:
            self._kind = "slash" if char == "/" else "hash" if needs_blank else "line"

    def feed(self, text: str, pos: int) -> int:
        while pos < len(text) and not self.closed:
            pos = self._read(text, pos)
        return pos

    def _read(self, text: str, pos: int) -> int:
        char = text[pos]
        if self._kind == "fence":
            self.closed = char != "`" and not char.isalnum()
            return pos + (not self.closed)
        if self._kind == "line":
            end = text.find("\n", pos)
            self.closed = end >= 0
            return end if self.closed else len(text)
        if self._kind == "block":
            end = text.find("*", pos)
            self._kind = "star" if end >= 0 else "block"
            return end + 1 if end >= 0 else len(text)
        if self._kind == "star":
            self.closed = char == "/"
            self._kind = "star" if char == "*" else "block"
            return pos + 1
        self.is_comment = char in ("/*" if self._kind == "slash" else "# \t\n")
        self.closed = not self.is_comment
        is_block = self._kind == "slash" and char == "*"
        self._kind = "block" if is_block else "line"
        return pos + is_block
