"""Local references of one schema document: where they lead, and which lead back to themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from inference.grammar.errors import GrammarTooComplex, UnsupportedKeyword
from stream_parser.schema_types import resolve_reference

_MAX_VALUES = 200_000
_HOLDING_ONE = frozenset(
    {
        "items", "additionalItems", "unevaluatedItems", "contains", "additionalProperties", "unevaluatedProperties",
        "propertyNames", "not", "if", "then", "else",
    }
)  # fmt: skip
_HOLDING_MANY = frozenset({"allOf", "anyOf", "oneOf", "prefixItems", "items"})
_HOLDING_NAMED = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)


class References:
    def __init__(self, root: object) -> None:
        self._root = root
        self._anchors = {
            str(part["$anchor"]): part for part in subschemas(root) if isinstance(part.get("$anchor"), str)
        }
        self._reached: dict[str, frozenset[str]] = {}
        self._recursive: dict[str, bool] = {}

    def target(self, reference: object, path: str) -> object:
        """What a reference names. Raises UnsupportedKeyword for one that leads outside or nowhere."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise UnsupportedKeyword(path, "$ref", f"may only lead into this schema (#/…), got {reference!r:.80}.")
        found: object = self._anchors.get(reference[1:])
        if found is None:
            found = self._root if reference == "#" else resolve_reference(reference, self._root)
        if not isinstance(found, Mapping | bool):
            raise UnsupportedKeyword(path, "$ref", f"leads to no schema: {reference!r:.80}.")
        return found

    def is_recursive(self, reference: str, path: str) -> bool:
        """Can what it names contain itself?"""
        if reference not in self._recursive:
            self._recursive[reference] = self._leads_back(reference, path)
        return self._recursive[reference]

    def _leads_back(self, reference: str, path: str) -> bool:
        seen: set[str] = set()
        waiting = list(self._directly_reached(reference, path))
        while waiting:
            found = waiting.pop()
            if found == reference:
                return True
            if found not in seen:
                seen.add(found)
                waiting += self._directly_reached(found, path)
        return False

    def _directly_reached(self, reference: str, path: str) -> frozenset[str]:
        if reference not in self._reached:
            target = self.target(reference, path)
            found = (part.get("$ref") for part in subschemas(target))
            self._reached[reference] = frozenset(name for name in found if isinstance(name, str))
        return self._reached[reference]


def subschemas(schema: object) -> Iterator[Mapping[str, object]]:
    """The schema and all that it holds where schemas stand: what it lists as a value is none. Bounded."""
    waiting = [schema]
    num_seen = 0
    while waiting:
        found = waiting.pop()
        num_seen += 1
        if num_seen > _MAX_VALUES:
            message = f"the schema holds more than {_MAX_VALUES} others. Simplify it."
            raise GrammarTooComplex("", message, keyword="$ref")
        if not isinstance(found, Mapping):
            continue
        yield found
        for keyword in found.keys() & _HOLDING_ONE:
            waiting.append(found[keyword])
        for keyword in found.keys() & _HOLDING_MANY:
            held = found[keyword]
            waiting += held if isinstance(held, list) else ()
        for keyword in found.keys() & _HOLDING_NAMED:
            named = found[keyword]
            waiting += named.values() if isinstance(named, Mapping) else ()
