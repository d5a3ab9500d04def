"""Whether the options of a `oneOf` exclude each other, so that no value fits two of them. Certain or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from inference.grammar import keywords
from inference.grammar.validation import canonical
from stream_parser.schema_types import ALL_TYPES, schema_types

_MAX_OPTIONS_COMPARED = 48
_MAX_PARTS = 64
_MAX_DEPTH = 8
# Where a reference leads; None for nowhere.
Follow: TypeAlias = Callable[[object], object]


def are_disjoint(options: Sequence[object], follow: Follow, tag: str | None = None) -> bool:
    """Is it certain that no value fits two of them? tag: what all that declare such a member are taken to require."""
    if len(options) > _MAX_OPTIONS_COMPARED:
        return False
    facets = [_Facets(option, follow, tag) for option in options]
    return all(left.exclude(right) for i, left in enumerate(facets) for right in facets[:i])


def tag_of(options: Sequence[object], follow: Follow) -> str | None:
    """A member by whose constant the options that are objects are told apart, required or with a default in each.

    Tools that write schemas drop the `discriminator` and leave this, and who reads the value goes by it all the same.
    """
    if len(options) > _MAX_OPTIONS_COMPARED:
        return None
    objects = [facets for facets in (_Facets(option, follow) for option in options) if "object" in facets.types]
    keys = objects[0].constants() if len(objects) > 1 else []
    return next((key for key in keys if _tells_apart(key, objects)), None)


def _tells_apart(key: str, objects: Sequence[_Facets]) -> bool:
    members = [facets.member(key) for facets in objects]
    if not all(key in facets.required or facets.has_default(key) for facets in objects):
        return False
    return all(left.values is not None for left in members) and all(
        left.exclude(right) for i, left in enumerate(members) for right in members[:i]
    )


def declares(schema: object, key: str, follow: Follow) -> bool:
    """Does it, or what it refers to, say something of a member of that name?"""
    return bool(_Facets(schema, follow).property(key))


class _Facets:
    """What a schema says, together with what it refers to and all that `allOf` adds: each holds for every value."""

    def __init__(self, schema: object, follow: Follow, tag: str | None = None, depth: int = 0) -> None:
        self._follow = follow
        self._depth = depth
        parts = list(_parts(schema, follow))
        self._parts = [part for part in parts if isinstance(part, Mapping)]
        self._is_false = False in parts
        self.types = ALL_TYPES
        self.values: set[object] | None = None
        self.required: set[str] = set()
        for part in self._parts:
            self._take(part)
        if tag is not None and self.property(tag):
            self.required.add(tag)

    def property(self, key: str) -> list[object]:
        named = [part["properties"] for part in self._parts if isinstance(part.get("properties"), Mapping)]
        return [properties[key] for properties in named if key in properties]

    def exclude(self, other: _Facets) -> bool:
        if self._is_false or other._is_false or not self.types & other.types:
            return True
        if self.values is not None and other.values is not None:
            return not self.values & other.values
        if not self.types == other.types == {"object"} or self._depth > _MAX_DEPTH:
            return False
        return any(self.member(key).exclude(other.member(key)) for key in self.required & other.required)

    def constants(self) -> list[str]:
        """Members that have one of listed values."""
        named = [part["properties"] for part in self._parts if isinstance(part.get("properties"), Mapping)]
        keys = dict.fromkeys(key for properties in named for key in properties)
        return [key for key in keys if self.member(key).values is not None]

    def has_default(self, key: str) -> bool:
        return any("default" in part for part in self.member(key)._parts)

    def member(self, key: str) -> _Facets:
        return _Facets({"allOf": self.property(key)}, self._follow, None, self._depth + 1)

    def _take(self, part: Mapping[str, Any]) -> None:
        types = keywords.types(part, "") if "type" in part else ALL_TYPES
        listed = _values(part)
        if listed is not None:
            types &= _types_of(part)
            found = set(map(canonical, listed))
            self.values = found if self.values is None else self.values & found
        self.types &= types
        self.required |= set(keywords.names(part, "required", ""))


def _parts(schema: object, follow: Follow) -> Iterator[object]:
    waiting, num_found = [schema], 0
    while waiting and num_found < _MAX_PARTS:
        found = waiting.pop()
        num_found += 1
        yield found
        if isinstance(found, Mapping):
            waiting += [follow(found["$ref"])] if "$ref" in found else []
            all_of = found.get("allOf")
            waiting += all_of if isinstance(all_of, list) else []


def _values(schema: Mapping[str, Any]) -> list[object] | None:
    listed = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(listed, list):
        return None
    return [*listed, None] if schema.get("nullable") is True else listed


def _types_of(schema: Mapping[str, Any]) -> frozenset[str]:
    found = schema_types({key: schema[key] for key in ("enum", "const", "nullable") if key in schema})
    return found | {"integer"} if "number" in found else found
