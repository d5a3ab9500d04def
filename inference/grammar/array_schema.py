"""Merges what several schemas demand of one array: its first places, the rest, and how many there may be."""

from __future__ import annotations

from collections.abc import Sequence

from inference.grammar import keywords
from inference.grammar.nodes import Impossible, Items, Node
from inference.grammar.places import Conjunction, Part, Place, Reader


def merge_arrays(parts: Conjunction, reader: Reader, depth: int) -> Items | Impossible:
    least = keywords.greatest(parts, "minItems", keywords.count)
    most = keywords.least(parts, "maxItems", keywords.count)
    fault = keywords.crossed(least, most)
    if fault:
        return fault
    low = least.value if least else 0
    high = most.value if most else max(reader.bounds.array_items, low)
    listed = [_item_places(part) for part in parts]

    prefix: list[Node] = []
    blocked: Impossible | None = None
    num_listed = max((len(places) for places, _ in listed), default=0)
    for index in range(min(num_listed, high)):
        here = [places[index] if index < len(places) else rest for places, rest in listed]
        node = _value([place for place in here if place is not None], reader, depth)
        if isinstance(node, Impossible):
            blocked = node
            break
        prefix.append(node)
    rest: Node | None = None
    if blocked is None and high > len(prefix):
        node = _value([rest for _, rest in listed if rest is not None], reader, depth)
        if isinstance(node, Impossible):
            blocked = node
        else:
            rest = node
    if blocked is not None:
        high = len(prefix)
    if least and blocked is not None and low > high:
        if blocked.keyword:
            return blocked
        return Impossible(least.path, "minItems", f"of {low} is more than the {high} that there may be")
    return Items(tuple(prefix), rest, low, high)


def _value(places: Sequence[Place], reader: Reader, depth: int) -> Node | Impossible:
    if not places:
        return reader.free(max(reader.bounds.free_depth - 1, 0))
    return reader.node(places, depth + 1)


def _item_places(part: Part) -> tuple[list[Place], Place | None]:
    """The schemas of the first places, and that of the rest."""
    schema, path, level = part
    word, rest_word = keywords.item_words(schema)
    places = [Place(item, at, level) for item, at in keywords.schemas(schema, word, path)]
    return places, Place(schema[rest_word], f"{path}.{rest_word}", level) if rest_word in schema else None
