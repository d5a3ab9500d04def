"""Merges what several schemas demand of one array: its first places, the rest, and how many there may be."""

from __future__ import annotations

from collections.abc import Sequence

from inference.grammar import keywords
from inference.grammar.nodes import Impossible, Items, Literals, Node, flat_options
from inference.grammar.places import Conjunction, Part, Place, Reader
from inference.grammar.validation import canonical


def merge_arrays(parts: Conjunction, reader: Reader, depth: int) -> Items | Impossible:
    least = keywords.greatest(parts, "minItems", keywords.count)
    most = keywords.least(parts, "maxItems", keywords.count)
    fault = keywords.crossed(least, most) or _contained_fault(parts, most, reader, depth)
    if fault:
        return fault
    low = max([least.value if least else 0, *(_num_contained(part) for part in parts)])
    prefix, rest = _places(parts, reader, depth, most.value if most else None)
    high = most.value if most else max(reader.bounds.array_items, low)
    blocked = rest if isinstance(rest, Impossible) else None
    if blocked is not None:
        high = min(high, len(prefix))
    distinct = _num_distinct(parts, prefix, rest)
    if distinct is not None:
        high = min(high, distinct)
    if low <= high:
        return Items(tuple(prefix), None if isinstance(rest, Impossible) else rest, low, high)
    if blocked is not None and blocked.keyword:
        return blocked
    at, word = (least.path, "minItems") if least else (parts[0].path, "contains")
    return Impossible(at, word, f"of {low} is more than the {high} that there may be")


def _places(
    parts: Conjunction, reader: Reader, depth: int, most: int | None
) -> tuple[list[Node], Node | Impossible | None]:
    """The first places, and what may come after them: None where there are as many as there may be."""
    listed = [_item_places(part) for part in parts]
    num_listed = max((len(places) for places, _ in listed), default=0)
    prefix: list[Node] = []
    for index in range(num_listed if most is None else min(num_listed, most)):
        here = [places[index] if index < len(places) else rest for places, rest in listed]
        node = _value([place for place in here if place is not None], reader, depth)
        if isinstance(node, Impossible):
            return prefix, node
        prefix.append(node)
    if most is not None and most <= len(prefix):
        return prefix, None
    return prefix, _value([rest for _, rest in listed if rest is not None], reader, depth)


def _num_contained(part: Part) -> int:
    """How many items must fit `contains`, and so how many there are at least."""
    if "contains" not in part.schema:
        return 0
    least = keywords.count(part.schema, "minContains", part.path)
    return 1 if least is None else least


def _contained_fault(
    parts: Conjunction, most: keywords.Found[int] | None, reader: Reader, depth: int
) -> Impossible | None:
    """That not so many items can be what `contains` asks for. Which of them are, no grammar says."""
    for part in parts:
        least = _num_contained(part)
        if least == 0:
            continue
        word = "minContains" if "minContains" in part.schema else "contains"
        need = keywords.Found(least, word, part.path)
        limit = keywords.count(part.schema, "maxContains", part.path)
        if limit is not None and limit < least:
            return keywords.crossed(need, keywords.Found(limit, "maxContains", part.path))
        if most is not None and most.value < least:
            return keywords.crossed(need, most)
        place = Place(part.schema["contains"], f"{part.path}.contains", part.level)
        if isinstance(reader.node([place], depth + 1), Impossible):
            return Impossible(part.path, "contains", "asks for an item that nothing fits")
    return None


def _num_distinct(parts: Conjunction, prefix: Sequence[Node], rest: Node | Impossible | None) -> int | None:
    """How many items there may be that are all different, where that is known to be few."""
    if prefix or rest is None or isinstance(rest, Impossible):
        return None
    if not any(part.schema.get("uniqueItems") is True for part in parts):
        return None
    options = flat_options(rest)
    if not all(isinstance(option, Literals) for option in options):
        return None
    return len({canonical(value) for option in options if isinstance(option, Literals) for value in option.values})


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
