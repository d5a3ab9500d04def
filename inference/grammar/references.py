"""Local references of one schema document: where they lead, and which lead back to themselves."""

from __future__ import annotations

from collections.abc import Mapping

from inference.grammar.errors import GrammarTooComplex, UnsupportedKeyword
from stream_parser import references

_MAX_PARTS = 500_000


class References:
    def __init__(self, root: object) -> None:
        self._local = references.References(root)
        self._reached: dict[str, frozenset[str]] = {}
        self._recursive: dict[str, bool] = {}
        self._num_parts = 0

    def found(self, reference: object) -> object:
        """What a reference names, whatever that is; None for nothing."""
        return self._local.target(reference)

    def target(self, reference: object, path: str) -> Mapping[str, object] | bool:
        """What a reference names. Raises UnsupportedKeyword for one that leads outside or nowhere."""
        found = self.found(reference)
        if isinstance(found, Mapping | bool):
            return found
        if isinstance(reference, str) and reference.startswith("#"):
            raise UnsupportedKeyword(path, "$ref", f"leads to no schema: {reference!r:.80}.")
        message = f"may only lead into this schema (#/…, #anchor, or an $id in it), got {reference!r:.80}."
        raise UnsupportedKeyword(path, "$ref", message)

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
            found = set()
            for part in references.subschemas(self.target(reference, path)):
                self._num_parts += 1
                if self._num_parts > _MAX_PARTS:
                    message = "what the references of this schema lead to is too much. Simplify it."
                    raise GrammarTooComplex("", message, keyword="$ref")
                if isinstance(name := part.get("$ref"), str):
                    found.add(name)
            self._reached[reference] = frozenset(found)
        return self._reached[reference]
