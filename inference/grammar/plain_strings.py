"""Is nothing but its length asked of any string in a value? Then what may come in one is known from what could before.

Asked of nodes, as JSON spells them; knows nothing of masks (`bounded_strings`). In doubt it says no.
"""

from __future__ import annotations

from collections.abc import Sequence

from inference.grammar.bounded_strings import MOST_LEFT_OF_KEY
from inference.grammar.nodes import (
    ExtraMembers,
    Items,
    Literals,
    Members,
    Node,
    NumberRange,
    OneOf,
    Text,
    flat_options,
)


class PlainStrings:
    """Remembers the nodes that it was asked about: they share their children.

    keys_too: the same holds, close to their bounds, for the undeclared keys of all values that it was asked about.
    """

    def __init__(self) -> None:
        self._known: dict[Node, bool] = {}
        self.keys_too = True

    def only(self, node: Node) -> bool:
        """Nothing is said of any string but its length, and where one may stand, no other string may, nor another one
        have led there."""
        if node not in self._known:
            self._known[node] = self._only(node)
        return self._known[node]

    def _only(self, node: Node) -> bool:
        match node:
            case Literals() | NumberRange():
                return True
            case Text(patterns=patterns, formats=formats):
                return not patterns and not formats
            case Items(prefix=prefix, rest=rest):
                return all(map(self.only, prefix)) and (rest is None or self.only(rest))
            case Members(declared=declared, extra=extra):
                # Undeclared keys hold no escapes: nobody takes them for such a string. And no key has two values.
                self.keys_too = self.keys_too and all(map(_has_plain_keys, extra))
                values = [*(member.value for member in declared), *(kind.value for kind in extra)]
                return all(map(self.only, values))
            case OneOf():
                options = flat_options(node)
                return all(map(self.only, options)) and _are_apart(options)


def _has_plain_keys(kind: ExtraMembers) -> bool:
    """Is nothing but their length asked of them, where no declared key can still be spelled?"""
    key = kind.key
    if kind.patterns or kind.other_patterns or key.patterns or key.formats:
        return False
    return all(len(name) <= key.max_chars - MOST_LEFT_OF_KEY for name in kind.excluded)


def _are_apart(options: Sequence[Node]) -> bool:
    """Does a value's beginning tell which option it is, before there is a string of any length?"""
    texts = [option for option in options if isinstance(option, Text)]
    listed = [value for option in options if isinstance(option, Literals) for value in option.values]
    lists = [option for option in options if isinstance(option, Items)]
    objects = [option for option in options if isinstance(option, Members)]
    if len(texts) > 1 or len(lists) > 1 or (texts and any(isinstance(value, str) for value in listed)):
        return False
    if any(isinstance(value, list | dict) for value in listed) and (lists or objects):
        return False
    if len(objects) < 2:
        return True
    first = [key for option in objects for key in _first_keys(option)]
    return len(first) == len(set(first)) and not any(option.extra for option in objects)


def _first_keys(node: Members) -> list[str]:
    """With which of the declared members an object may begin."""
    found = []
    for member in node.declared:
        found.append(member.key)
        if member.is_required:
            break
    return found
