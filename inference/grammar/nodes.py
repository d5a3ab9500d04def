"""A schema resolved: no references, no combinators but alternatives, every bound filled in.

What `schema` builds and the notations (JSON, Python literals, tags …) write. Children are shared, and finite: recursion
has been unrolled. Knows nothing of how values are written.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
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
    step: Decimal | None = None  # it is a multiple of

    @property
    def is_free(self) -> bool:
        bounds = (self.minimum, self.maximum, self.exclusive_minimum, self.exclusive_maximum)
        return self.step is None and all(bound is None for bound in bounds)

    def multiples(self, step: Decimal) -> tuple[int | None, int | None]:
        """The lowest and the highest whole number whose product with `step` is in the range; None: no such bound."""
        unit = Fraction(step)
        lows = [math.ceil(Fraction(n) / unit) for n in (self.minimum,) if n is not None]
        lows += [math.floor(Fraction(n) / unit) + 1 for n in (self.exclusive_minimum,) if n is not None]
        highs = [math.floor(Fraction(n) / unit) for n in (self.maximum,) if n is not None]
        highs += [math.ceil(Fraction(n) / unit) - 1 for n in (self.exclusive_maximum,) if n is not None]
        return max(lows, default=None), min(highs, default=None)


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


@dataclass(frozen=True, slots=True, eq=False)
class Impossible:
    """No value fits. `why` goes on from the name of the `keyword` at `path`; "" is a schema of false."""

    path: str
    keyword: str
    why: str


Node: TypeAlias = Literals | Text | NumberRange | Items | Members | OneOf
TRUTHS = Literals((True, False))
NULL = Literals((None,))


def flat_options(node: Node) -> tuple[Node, ...]:
    """The node as alternatives, none of which has alternatives itself."""
    if not isinstance(node, OneOf):
        return (node,)
    return tuple(flat for option in node.options for flat in flat_options(option))
