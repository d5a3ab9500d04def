"""JSON Schema to nodes: references followed, combinators multiplied out, conjunctions merged, bounds filled in.

A schema is read as alternatives of conjunctions (disjunctive form); each conjunction becomes one node a type. What is
impossible disappears: an optional member, an option. Where nothing is left, the first contradiction is named. Work is
bounded, whatever the schema: `GrammarTooComplex`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from inference.grammar import keywords
from inference.grammar.array_schema import merge_arrays
from inference.grammar.conjunctions import merge_numbers, merge_texts
from inference.grammar.disjoint import are_disjoint, declares, tag_of
from inference.grammar.errors import GrammarError, GrammarTooComplex, UnsatisfiableSchema, UnsupportedKeyword
from inference.grammar.negation import contrary_of
from inference.grammar.nodes import NULL, TRUTHS, Impossible, Items, Literals, Node, OneOf
from inference.grammar.object_schema import merge_objects
from inference.grammar.places import Conjunction, Part, Place
from inference.grammar.policy import Bounds
from inference.grammar.references import References
from inference.grammar.validation import Validator, canonical
from stream_parser.schema_types import ALL_TYPES

_MAX_BRANCHES = 1024
_MAX_VISITS = 50_000
_MAX_DEPTH = 96
_MAX_CHECKS = 100_000
_APPLIED = frozenset({"$ref", "$defs", "definitions", "allOf", "anyOf", "oneOf"})
_DEFINING = frozenset({"$defs", "definitions"})
_CONSTRAINING = (keywords.ENFORCED | keywords.NOT_ENFORCED) - _APPLIED
_Alternatives: TypeAlias = list[Conjunction] | Impossible


class SchemaReader:
    """Reads one schema document. closes: objects with declared properties take no others unless they say so."""

    def __init__(self, root: object, path: str, bounds: Bounds, *, closes: bool = False) -> None:
        self.bounds = bounds
        self.closes = closes
        self.not_enforced: dict[str, None] = {}
        self._root = root
        self._path = path
        self._references = References(root)
        self._validator = Validator(root, _MAX_CHECKS)
        self._memo: dict[tuple[tuple[int, int], ...], Node | Impossible] = {}
        self._conjunctions: dict[tuple[tuple[int, int], ...], Node | Impossible] = {}
        self._free: dict[int, Node] = {}
        self._made: list[object] = []  # schemas of our own, kept since they are known by their ids
        self._unseeing: dict[int, Mapping[str, Any]] = {}
        self._visits = 0

    def read(self) -> Node:
        """The node of the whole document. Raises GrammarError."""
        node = self.node([Place(self._root, self._path, 0)], 0)
        if isinstance(node, Impossible):
            said = f'"{node.keyword}" {node.why}' if node.keyword else "the schema is false"
            message = f"{said}: the schema allows no value at all."
            raise UnsatisfiableSchema(node.path, message, keyword=node.keyword or "false")
        return node

    def node(self, places: Sequence[Place], depth: int) -> Node | Impossible:
        """What fits all the schemas at once. depth: containers around it."""
        key = tuple(sorted({(id(place.schema), place.level) for place in places if place.schema is not True}))
        if key not in self._memo:
            if depth > _MAX_DEPTH:
                message = f"schemas may be nested {_MAX_DEPTH} levels deep. Flatten this one."
                raise GrammarTooComplex(places[0].path, message, keyword=keywords.last_keyword(places[0].path))
            alone = len(key) < 2
            branches = _product([self._alternatives(place, frozenset(), alone) for place in places], self._path)
            if isinstance(branches, Impossible):
                self._memo[key] = branches
            else:
                self._memo[key] = _one_of([self._conjunction(branch, depth) for branch in branches])
        return self._memo[key]

    def free(self, depth: int | None = None) -> Node:
        """Any value, with up to `depth` containers within each other."""
        depth = self.bounds.free_depth if depth is None else depth
        if depth not in self._free:
            number = merge_numbers((), self, is_integer=False)
            found: list[Node | Impossible] = [merge_texts((), self), number, TRUTHS, NULL]
            if depth > 0:
                inner = self.free(depth - 1)
                found += [Items((), inner, 0, self.bounds.array_items), merge_objects((), self, 0, inner)]
            node = _one_of(found)
            assert not isinstance(node, Impossible)
            self._free[depth] = node
        return self._free[depth]

    def may_fit(self, value: object, schema: object) -> bool:
        """Does a value that the schema names fit another schema? True as well where that takes too long to tell."""
        return self._validator.may_fit(value, schema)

    def made(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """A schema of our own, which lives as long as the reader."""
        self._made.append(schema)
        return schema

    def _alternatives(self, place: Place, seen: frozenset[str], alone: bool) -> _Alternatives:
        """alone: nothing else holds for the same value, so that `unevaluatedProperties` sees all that it should."""
        schema, path, level = place
        self._visits += 1
        if self._visits > _MAX_VISITS:
            message = "is too large, or its combinations are too many. Simplify it."
            raise GrammarTooComplex(self._path, f"the schema {message}", keyword=keywords.last_keyword(path))
        if schema is False:
            return Impossible(path, "", "")
        if schema is True or schema is None or schema == {}:
            return [()]
        if not isinstance(schema, Mapping):
            message = f"must be a JSON schema (an object, true or false), got {schema!r:.60}."
            raise GrammarError(path, message, keyword=keywords.last_keyword(path))
        self._note(schema, path)
        own = self._own_part(schema, path, alone)
        factors: list[_Alternatives] = [[(Part(own, path, level),) if _constrains(schema) else ()]]
        alone = alone and len(schema.keys() & (keywords.ENFORCED | keywords.NOT_ENFORCED) - _DEFINING) == 1
        if "$ref" in schema:
            factors.append(self._referenced(schema["$ref"], path, level, seen, alone))
        all_of = keywords.schemas(schema, "allOf", path)
        for part, part_path in all_of:
            factors.append(self._alternatives(Place(part, part_path, level), seen, alone and len(all_of) == 1))
        for word in ("anyOf", "oneOf"):
            if word in schema:
                factors.append(self._options(schema, word, place, seen, alone))
        for dependent in keywords.dependents(schema, path):
            factors.append(self._depending(dependent, level, seen))
        if "not" in schema:
            factors.append(self._excluding(schema["not"], place, seen))
        return _product(factors, path)

    def _options(
        self, schema: Mapping[str, Any], word: str, place: Place, seen: frozenset[str], alone: bool
    ) -> _Alternatives:
        options = keywords.schemas(schema, word, place.path)
        tag = keywords.tag(schema)
        if word == "oneOf":
            tag = tag or tag_of([option for option, _ in options], self._references.found)
            own = {key: schema[key] for key in ("type", "nullable") if key in schema}
            beside = [{"allOf": [own, option]} if own else option for option, _ in options]
            if not are_disjoint(beside, self._references.found, tag):
                self.not_enforced[f"{place.path}.oneOf"] = None
        read = [self._option(Place(option, at, place.level), tag, seen, alone) for option, at in options]
        found = [branch for branches in read if not isinstance(branches, Impossible) for branch in branches]
        if found:
            return found
        return Impossible(place.path, word, "has no option that a value could fit" if read else "lists no option")

    def _option(self, place: Place, tag: str | None, seen: frozenset[str], alone: bool) -> _Alternatives:
        """With its tag, if it has one: who reads the value goes by that."""
        branches = self._alternatives(place, seen, alone)
        if tag is None or isinstance(branches, Impossible) or not declares(place.schema, tag, self._references.found):
            return branches
        required = Part(self.made({"required": [tag]}), place.path, place.level)
        return [(*branch, required) for branch in branches]

    def _excluding(self, excluded: object, place: Place, seen: frozenset[str]) -> _Alternatives:
        contrary = contrary_of(excluded, f"{place.path}.not")
        if contrary is False:
            return Impossible(place.path, "not", "excludes every value")
        if contrary is None:
            return [()]
        if isinstance(contrary, Mapping):
            self.made(contrary)
        return self._alternatives(Place(contrary, f"{place.path}.not", place.level), seen, False)

    def _own_part(self, schema: Mapping[str, Any], path: str, alone: bool) -> Mapping[str, Any]:
        """Without `unevaluatedProperties` where other schemas, which it does not see, hold for the value too."""
        if alone or "unevaluatedProperties" not in schema:
            return schema
        self.not_enforced[f"{path}.unevaluatedProperties"] = None
        if id(schema) not in self._unseeing:
            rest = {key: value for key, value in schema.items() if key != "unevaluatedProperties"}
            self._unseeing[id(schema)] = self.made(rest)
        return self._unseeing[id(schema)]

    def _depending(self, dependent: keywords.Dependent, level: int, seen: frozenset[str]) -> _Alternatives:
        """Either there is no such member, or there is, and the schema holds."""
        absent = self.made({"properties": {dependent.key: False}})
        present = self.made({"required": [dependent.key]})
        self._made.append(dependent.schema)
        path = dependent.path
        without = self._alternatives(Place(absent, path, level), seen, False)
        places = [Place(schema, path, level) for schema in (present, dependent.schema)]
        branches = _product([self._alternatives(place, seen, False) for place in places], path)
        assert not isinstance(without, Impossible)
        return without if isinstance(branches, Impossible) else [*branches, *without]

    def _referenced(
        self, reference: object, path: str, level: int, seen: frozenset[str], alone: bool
    ) -> _Alternatives:
        target = self._references.target(reference, path)
        assert isinstance(reference, str)
        if reference in seen:
            message = f"leads in a circle that no value ends: {reference!r:.80}."
            raise UnsupportedKeyword(path, "$ref", f"{message} Let it pass through a member or an item.")
        if self._references.is_recursive(reference, path):
            level += 1
            if level > self.bounds.recursion_depth:
                return Impossible(path, "$ref", f"{reference!r:.80} needs itself again and again")
        return self._alternatives(Place(target, f"{self._path}({reference})", level), seen | {reference}, alone)

    def _note(self, schema: Mapping[str, Any], path: str) -> None:
        for keyword in schema:
            if keyword in keywords.REFUSED:
                raise UnsupportedKeyword(path, keyword, "is not supported. Use $ref.")
            if keyword in keywords.NOT_ENFORCED and not _says_nothing(keyword, schema):
                self.not_enforced[f"{path}.{keyword}"] = None

    def _conjunction(self, parts: Conjunction, depth: int) -> Node | Impossible:
        key = tuple((id(part.schema), part.level) for part in parts)
        if key not in self._conjunctions:
            self._conjunctions[key] = self._merged(parts, depth)
        return self._conjunctions[key]

    def _merged(self, parts: Conjunction, depth: int) -> Node | Impossible:
        if not parts:
            return self.free()
        types = ALL_TYPES
        for part in parts:
            types = types & keywords.types(part.schema, part.path)
        if not types:
            typed = [part for part in parts if "type" in part.schema]
            named = " and ".join(f"{part.schema['type']!r:.60}" for part in typed)
            return Impossible(typed[-1].path, "type", f"leaves no type of value that is {named}")
        if any("enum" in part.schema or "const" in part.schema for part in parts):
            return self._listed(parts, types)
        found: list[Node | Impossible] = []
        if "string" in types:
            found.append(merge_texts(parts, self))
        if "integer" in types:
            found.append(merge_numbers(parts, self, is_integer="number" not in types))
        if "boolean" in types:
            found.append(TRUTHS)
        if "null" in types:
            found.append(NULL)
        if "array" in types:
            found.append(merge_arrays(parts, self, depth))
        if "object" in types:
            found.append(merge_objects(parts, self, depth, self.free(max(self.bounds.free_depth - 1, 0))))
        return _one_of(found)

    def _listed(self, parts: Conjunction, types: frozenset[str]) -> Node | Impossible:
        """The values that every `enum` and `const` lists and all other keywords allow."""
        listing = [(part, word) for part in parts for word in ("enum", "const") if word in part.schema]
        choices = [part.schema[word] if word == "enum" else [part.schema[word]] for part, word in listing]
        others = [set(map(canonical, choice)) for choice in choices[1:]]
        rests = [{k: v for k, v in part.schema.items() if k not in ("enum", "const")} for part in parts]
        values = {canonical(value): value for value in choices[0]}
        fitting = [
            value
            for key, value in values.items()
            if all(key in other for other in others) and all(self.may_fit(value, rest) for rest in rests)
        ]
        is_nullable = any(part.schema.get("nullable") is True for part in parts)
        if is_nullable and None not in fitting and "null" in types:
            fitting.append(None)
        if fitting:
            return Literals(tuple(fitting))
        part, word = listing[0]
        why = f"{part.schema[word]!r:.80} has no value that all other keywords allow"
        return Impossible(part.path, word, why if choices[0] else "lists no value")


def _product(factors: Sequence[_Alternatives], path: str) -> _Alternatives:
    branches: list[Conjunction] = [()]
    for factor in factors:
        if isinstance(factor, Impossible):
            return factor
        branches = [left + right for left in branches for right in factor]
        if len(branches) > _MAX_BRANCHES:
            message = f"anyOf, oneOf and allOf multiply to more than {_MAX_BRANCHES} combinations. Simplify them."
            raise GrammarTooComplex(path, message, keyword="anyOf")
    return branches


def _one_of(found: Sequence[Node | Impossible]) -> Node | Impossible:
    """The possible ones; if there is none, the first contradiction."""
    nodes = [node for node in found if not isinstance(node, Impossible)]
    if not nodes:
        return found[0]
    return nodes[0] if len(nodes) == 1 else OneOf(tuple(nodes))


def _says_nothing(keyword: str, schema: Mapping[str, Any]) -> bool:
    """Is the keyword of no consequence here?"""
    if keyword == "uniqueItems":
        return schema[keyword] is False
    if keyword in ("then", "else"):
        return "if" not in schema
    if keyword == "if":
        return schema.keys().isdisjoint(("then", "else"))
    return keyword in ("minContains", "maxContains") and "contains" not in schema


def _constrains(schema: Mapping[str, Any]) -> bool:
    return not _CONSTRAINING.isdisjoint(schema)
