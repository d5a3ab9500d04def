"""Where schemas stand, and what the parts of the schema reader know of each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from inference.grammar.nodes import Impossible, Node
from inference.grammar.policy import Bounds


class Place(NamedTuple):
    """A schema, where it stands, and how deep in recursion."""

    schema: object
    path: str
    level: int


class Part(NamedTuple):
    """One schema of a conjunction, without references or combinators left to follow."""

    schema: Mapping[str, Any]
    path: str
    level: int


Conjunction: TypeAlias = tuple[Part, ...]


class Reader(Protocol):
    """The schema reader, as those see it who merge one kind of value."""

    bounds: Bounds
    closes: bool
    not_enforced: dict[str, None]

    def node(self, places: Sequence[Place], depth: int) -> Node | Impossible:
        """What fits all the schemas at once. depth: containers around it."""

    def free(self, depth: int | None = None) -> Node:
        """Any value, with up to `depth` containers within each other."""

    def may_fit(self, value: object, schema: object) -> bool:
        """Does a value that the schema names fit another schema? True as well where that takes too long to tell."""

    def made(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """A schema of our own, which lives as long as the reader."""
