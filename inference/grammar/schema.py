"""JSON Schema to nodes: references followed, combinators multiplied out, conjunctions merged, bounds filled in.

A schema is read as alternatives of conjunctions (disjunctive form); each conjunction becomes one node a type. What is
impossible disappears: an optional member, an option. Work is bounded, whatever the schema: `GrammarTooComplex`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from inference.grammar import keywords
from inference.grammar.conjunctions import merge_numbers, merge_texts, value_fits
from inference.grammar.errors import GrammarError, GrammarTooComplex, UnsupportedKeyword
from inference.grammar.nodes import NULL, TRUTHS, Items, Literals, Node, OneOf
from inference.grammar.object_schema import merge_objects
from inference.grammar.places import Conjunction, Part, Place
from inference.grammar.policy import Bounds
from inference.grammar.references import References
from stream_parser.schema_types import ALL_TYPES

_MAX_BRANCHES = 1024
_MAX_VISITS = 50_000
_MAX_DEPTH = 96
_MAX_OPTIONS_COMPARED = 48


class SchemaReader:
    """Reads one schema document. closes: objects with declared properties take no others unless they say so."""

    def __init__(self, root: object, path: str, bounds: Bounds, *, closes: bool = False) -> None:
        self.bounds = bounds
        self.closes = closes
        self.not_enforced: dict[str, None] = {}
        self._root = root
        self._path = path
        self._references = References(root)
        self._memo: dict[tuple[tuple[int, int], ...], Node | None] = {}
        self._conjunctions: dict[tuple[tuple[int, int], ...], Node | None] = {}
        self._free: dict[int, Node] = {}
        self._made: list[object] = []  # schemas of our own, kept since they are known by their ids
        self._visits = 0

    def read(self) -> Node:
        """The node of the whole document. Raises GrammarError."""
        node = self.node([Place(self._root, self._path, 0)], 0)
        if node is None:
            raise GrammarError(self._path, "the schema allows no value at all.")
        return node

    def node(self, places: Sequence[Place], depth: int) -> Node | None:
        """What fits all the schemas at once; None: nothing does. depth: containers around it."""
        key = tuple(sorted({(id(place.schema), place.level) for place in places if place.schema is not True}))
        if key not in self._memo:
            if depth > _MAX_DEPTH:
                raise GrammarTooComplex(places[0].path, f"schemas may be nested {_MAX_DEPTH} levels deep.")
            branches = _product([self._alternatives(place, frozenset()) for place in places], self._path)
            nodes = [self._conjunction(branch, depth) for branch in branches]
            self._memo[key] = _one_of([node for node in nodes if node is not None])
        return self._memo[key]

    def free(self, depth: int | None = None) -> Node:
        """Any value, with up to `depth` containers within each other."""
        depth = self.bounds.free_depth if depth is None else depth
        if depth not in self._free:
            found: list[Node | None] = [merge_texts((), self), merge_numbers((), is_integer=False), TRUTHS, NULL]
            if depth > 0:
                inner = self.free(depth - 1)
                found += [Items((), inner, 0, self.bounds.array_items), merge_objects((), self, 0, inner)]
            self._free[depth] = OneOf(tuple(node for node in found if node is not None))
        return self._free[depth]

    def _alternatives(self, place: Place, seen: frozenset[str]) -> list[Conjunction]:
        schema, path, level = place
        self._visits += 1
        if self._visits > _MAX_VISITS:
            raise GrammarTooComplex(self._path, "the schema is too large or its combinations too many. Simplify it.")
        if schema is False:
            return []
        if schema is True or schema is None or schema == {}:
            return [()]
        if not isinstance(schema, Mapping):
            raise GrammarError(path, f"must be a JSON schema (an object, true or false), got {schema!r:.60}.")
        self._note(schema, path)
        if schema.get("not") is True or schema.get("not") == {}:
            return []
        factors: list[list[Conjunction]] = [[(Part(schema, path, level),) if _constrains(schema) else ()]]
        if "$ref" in schema:
            factors.append(self._referenced(schema["$ref"], path, level, seen))
        for part, part_path in keywords.schemas(schema, "allOf", path):
            factors.append(self._alternatives(Place(part, part_path, level), seen))
        for word in ("anyOf", "oneOf"):
            if word in schema:
                options = keywords.schemas(schema, word, path)
                found = [c for option, at in options for c in self._alternatives(Place(option, at, level), seen)]
                factors.append(found)
                if word == "oneOf" and not _are_disjoint([option for option, _ in options]):
                    self.not_enforced[f"{path}.oneOf"] = None
        for key, dependents in _dependents(schema, path).items():
            factors.append(self._depending(key, dependents, level, seen))
        return _product(factors, path)

    def _depending(
        self, key: str, dependents: Sequence[tuple[object, str]], level: int, seen: frozenset[str]
    ) -> list[Conjunction]:
        """Either there is no such member, or there is, and the schemas hold."""
        absent, present = {"properties": {key: False}}, {"required": [key]}
        self._made += [absent, present, *(schema for schema, _ in dependents)]
        path = dependents[0][1]
        places = [Place(schema, at, level) for schema, at in ((present, path), *dependents)]
        return [
            *self._alternatives(Place(absent, path, level), seen),
            *_product([self._alternatives(place, seen) for place in places], path),
        ]

    def _referenced(self, reference: object, path: str, level: int, seen: frozenset[str]) -> list[Conjunction]:
        target = self._references.target(reference, path)
        assert isinstance(reference, str)
        if reference in seen:
            raise UnsupportedKeyword(path, "$ref", f"leads in a circle that no value ends: {reference!r:.80}.")
        if self._references.is_recursive(reference, path):
            level += 1
            if level > self.bounds.recursion_depth:
                return []
        return self._alternatives(Place(target, f"{self._path}({reference})", level), seen | {reference})

    def _note(self, schema: Mapping[str, Any], path: str) -> None:
        for keyword in schema:
            if keyword in keywords.REFUSED:
                raise UnsupportedKeyword(path, keyword, "is not supported. Use $ref.")
            if keyword in keywords.NOT_ENFORCED and schema[keyword] is not False:
                self.not_enforced[f"{path}.{keyword}"] = None

    def _conjunction(self, parts: Conjunction, depth: int) -> Node | None:
        key = tuple((id(part.schema), part.level) for part in parts)
        if key not in self._conjunctions:
            self._conjunctions[key] = self._merged(parts, depth)
        return self._conjunctions[key]

    def _merged(self, parts: Conjunction, depth: int) -> Node | None:
        types = ALL_TYPES
        for part in parts:
            types = types & keywords.types(part.schema, part.path)
        listed = [part for part in parts if "enum" in part.schema or "const" in part.schema]
        if listed:
            return _listed(parts, types)
        if not parts:
            return self.free()
        found: list[Node | None] = []
        if "string" in types:
            found.append(merge_texts(parts, self))
        if "integer" in types:
            found.append(merge_numbers(parts, is_integer="number" not in types))
        if "boolean" in types:
            found.append(TRUTHS)
        if "null" in types:
            found.append(NULL)
        if "array" in types:
            found.append(self._array(parts, depth))
        if "object" in types:
            found.append(merge_objects(parts, self, depth, self.free(max(self.bounds.free_depth - 1, 0))))
        return _one_of([node for node in found if node is not None])

    def _array(self, parts: Conjunction, depth: int) -> Node | None:
        low = max([0, *(n for p in parts if (n := keywords.count(p.schema, "minItems", p.path)) is not None)])
        highs = [n for p in parts if (n := keywords.count(p.schema, "maxItems", p.path)) is not None]
        high = min(highs) if highs else max(self.bounds.array_items, low)
        listed = [_item_places(part) for part in parts]
        prefix: list[Node] = []
        for index in range(min(max([0, *(len(places) for places, _ in listed)]), high)):
            here = [places[index] if index < len(places) else rest for places, rest in listed]
            node = self._value([place for place in here if place is not None], depth)
            if node is None:
                high = index
                break
            prefix.append(node)
        rest = None
        if high > len(prefix):
            rest = self._value([rest for _, rest in listed if rest is not None], depth)
            high = high if rest is not None else len(prefix)
        return Items(tuple(prefix), rest, low, high) if low <= high else None

    def _value(self, places: Sequence[Place], depth: int) -> Node | None:
        if not places:
            return self.free(max(self.bounds.free_depth - 1, 0))
        return self.node(places, depth + 1)


def _dependents(schema: Mapping[str, Any], path: str) -> dict[str, list[tuple[object, str]]]:
    """The schemas that hold where a member is present. `dependencies` is the older name of both keywords."""
    found: dict[str, list[tuple[object, str]]] = {}
    for word in ("dependentRequired", "dependentSchemas", "dependencies"):
        for key, (value, at) in keywords.named_schemas(schema, word, path).items():
            names = {"required": value} if word != "dependentSchemas" and isinstance(value, list) else value
            found.setdefault(key, []).append((names, at))
    return found


def _item_places(part: Part) -> tuple[list[Place], Place | None]:
    """The schemas of the first places, and that of the rest."""
    schema, path, level = part
    word = "items" if isinstance(schema.get("items"), list) else "prefixItems"
    places = [Place(item, at, level) for item, at in keywords.schemas(schema, word, path)]
    rest_word = "additionalItems" if word == "items" else "items"
    return places, Place(schema[rest_word], f"{path}.{rest_word}", level) if rest_word in schema else None


def _product(factors: Sequence[list[Conjunction]], path: str) -> list[Conjunction]:
    branches: list[Conjunction] = [()]
    for factor in factors:
        branches = [left + right for left in branches for right in factor]
        if len(branches) > _MAX_BRANCHES:
            raise GrammarTooComplex(path, f"anyOf, oneOf and allOf multiply to more than {_MAX_BRANCHES} combinations.")
    return branches


def _one_of(nodes: Sequence[Node]) -> Node | None:
    if not nodes:
        return None
    return nodes[0] if len(nodes) == 1 else OneOf(tuple(nodes))


def _constrains(schema: Mapping[str, Any]) -> bool:
    return not keywords.ENFORCED.isdisjoint(schema.keys() - {"$ref", "$defs", "definitions", "allOf", "anyOf", "oneOf"})


def _listed(parts: Conjunction, types: frozenset[str]) -> Node | None:
    """The values that every `enum` and `const` lists and the other keywords allow."""
    choices = [part.schema["enum"] if "enum" in part.schema else [part.schema["const"]] for part in parts
               if "enum" in part.schema or "const" in part.schema]
    choices += [[part.schema["const"]] for part in parts if "enum" in part.schema and "const" in part.schema]
    others = [{_canonical(value) for value in choice} for choice in choices]
    allowed = {_canonical(value): value for value in choices[0] if value_fits(value, parts, types)}
    values = [value for key, value in allowed.items() if all(key in other for other in others)]
    if any(part.schema.get("nullable") is True for part in parts) and None not in values and "null" in types:
        values.append(None)
    return Literals(tuple(values)) if values else None


def _canonical(value: object) -> str:
    """Equal for values that JSON Schema calls equal: 1 and 1.0 are, true and 1 are not."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{json.dumps(k)}:{_canonical(v)}" for k, v in sorted(value.items())) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_canonical, value)) + "]"
    return json.dumps(value)


def _are_disjoint(options: Sequence[object]) -> bool:
    """Is it certain that no value fits two of them?"""
    if len(options) > _MAX_OPTIONS_COMPARED:
        return False
    return all(_exclude(left, right) for i, left in enumerate(options) for right in options[:i])


def _exclude(left: object, right: object) -> bool:
    if left is False or right is False:
        return True
    if not isinstance(left, Mapping) or not isinstance(right, Mapping):
        return False
    mine, theirs = (keywords.types(s, "") if "type" in s else ALL_TYPES for s in (left, right))
    if not mine & theirs:
        return True
    values = [_values(left), _values(right)]
    if values[0] is not None and values[1] is not None:
        return not values[0] & values[1]
    both = set(left.get("required") or ()) & set(right.get("required") or ())
    if mine == theirs == {"object"}:
        pairs = [(_property(left, key), _property(right, key)) for key in both]
        return any(_exclude(a, b) for a, b in pairs if a is not None and b is not None)
    return False


def _values(schema: Mapping[str, Any]) -> set[str] | None:
    if "const" in schema:
        return {_canonical(schema["const"])}
    return {_canonical(value) for value in schema["enum"]} if isinstance(schema.get("enum"), list) else None


def _property(schema: Mapping[str, Any], key: object) -> object:
    properties = schema.get("properties")
    return properties.get(key) if isinstance(properties, Mapping) else None
