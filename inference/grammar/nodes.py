"""A schema resolved: no references, no combinators but alternatives, every bound filled in.

What `schema` builds and the notations (JSON, Python literals, tags …) write. Children are shared, and finite: recursion
has been unrolled. Knows nothing of how values are written.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias


@dataclass(frozen=True, slots=True, eq=False)
class Literals:
    """One of these values, decoded JSON. Never empty."""

    values: tuple[object, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """A string. patterns are searched for, as JSON Schema does; formats are names in `text_patterns.FORMATS`."""

    min_chars: int
    max_chars: int
    patterns: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    is_bounded_by_schema: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class NumberRange:
    is_integer: bool
    minimum: Decimal | None = None
    maximum: Decimal | None = None
    exclusive_minimum: Decimal | None = None
    exclusive_maximum: Decimal | None = None
    multiples_of: tuple[Decimal, ...] = ()

    @property
    def is_free(self) -> bool:
        bounds = (self.minimum, self.maximum, self.exclusive_minimum, self.exclusive_maximum)
        return not self.multiples_of and all(bound is None for bound in bounds)


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """An array: `prefix` places first, then `rest` (None: nothing more), `low` to `high` of all in all."""

    prefix: tuple[Node, ...]
    rest: Node | None
    low: int
    high: int


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    key: str
    value: Node
    is_required: bool


@dataclass(frozen=True, slots=True, eq=False)
class ExtraMembers:
    """Members beyond the declared: keys that find all of `patterns`, none of `other_patterns`, and fit `key`."""

    value: Node
    key: Text
    patterns: tuple[str, ...] = ()
    other_patterns: tuple[str, ...] = ()
    keys: tuple[str, ...] | None = None  # only these, if given
    excluded: tuple[str, ...] = ()  # the declared keys


@dataclass(frozen=True, slots=True, eq=False)
class Members:
    """An object: declared members in their order, then extra ones, `low` to `high` in all (None: no such bound)."""

    declared: tuple[Member, ...]
    extra: tuple[ExtraMembers, ...]
    max_extra: int
    low: int = 0
    high: int | None = None
    is_open_by_default: bool = False  # members are declared, and nothing is said of others


@dataclass(frozen=True, slots=True, eq=False)
class OneOf:
    options: tuple[Node, ...]


Node: TypeAlias = Literals | Text | NumberRange | Items | Members | OneOf
TRUTHS = Literals((True, False))
NULL = Literals((None,))


def flat_options(node: Node) -> tuple[Node, ...]:
    """The node as alternatives, none of which has alternatives itself."""
    if not isinstance(node, OneOf):
        return (node,)
    return tuple(flat for option in node.options for flat in flat_options(option))
