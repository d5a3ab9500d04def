"""Incremental, repairing JSON scanner (skeleton of the interface; the body follows)."""

from typing import Literal, Protocol

from stream_parser.schema import TypeSet


class ValueScanner(Protocol):
    done: bool
    reasons: list[str]

    def feed(self, text: str, pos: int = 0) -> int: ...
    def force(self, text: str, pos: int = 0) -> int: ...
    def take(self) -> str: ...
    def end(self, complete: bool) -> None: ...


class JsonScanner:
    def __init__(
        self, *, stops: str = "", types: TypeSet | None = None, expect: Literal["object", "any"] = "object"
    ) -> None:
        self.done = False
        self.surplus = ""
        self.reasons: list[str] = []
        raise NotImplementedError

    def feed(self, text: str, pos: int = 0) -> int:
        raise NotImplementedError

    def force(self, text: str, pos: int = 0) -> int:
        raise NotImplementedError

    def take(self) -> str:
        raise NotImplementedError

    def end(self, complete: bool) -> None:
        raise NotImplementedError
