"""Where schemas stand, and what the parts of the schema reader know of each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from inference.grammar.nodes import Node
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

    def node(self, places: Sequence[Place], depth: int) -> Node | None:
        """What fits all the schemas at once; None: nothing does. depth: containers around it."""

    def free(self, depth: int | None = None) -> Node:
        """Any value, with up to `depth` containers within each other."""
