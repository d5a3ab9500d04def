"""Merges what several schemas demand of one object: declared members, patterns for keys, and what else may come."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from inference.grammar import keywords
from inference.grammar.conjunctions import checked_pattern, key_matches
from inference.grammar.errors import UnsupportedKeyword
from inference.grammar.keywords import Found as Bound
from inference.grammar.nodes import ExtraMembers, Impossible, Literals, Member, Members, Node, Text, flat_options
from inference.grammar.places import Conjunction, Part, Place, Reader
from inference.grammar.raw_text import escaped
from inference.grammar.text_patterns import FORMATS, whole_pattern
from inference.grammar.text_sets import text_set

_MAX_PATTERNS = 4  # every subset of them is a kind of key of its own
_MAX_MEMBERS = 2000
_MAX_EXCLUDED_ASKED = 64
_Found: TypeAlias = tuple[object, str]  # a schema and its path
_Named: TypeAlias = Mapping[str, _Found]
# Keywords whose value may look at members, as nobody knows before the object is whole.
_UNSURE = frozenset({"if", "then", "else"})


def merge_objects(parts: Conjunction, reader: Reader, depth: int, free: Node) -> Members | Impossible:
    """free: what an undeclared member may be where nothing is said of it."""
    kinds = _Kinds(parts, reader, depth, free)
    declared = kinds.declared()
    if isinstance(declared, Impossible):
        return declared
    low = keywords.greatest(parts, "minProperties", keywords.count)
    high = keywords.least(parts, "maxProperties", keywords.count)
    # Members that are declared and impossible are no extra ones either.
    listed = frozenset(key for part in parts for key in keywords.named_schemas(part.schema, "properties", part.path))
    extra = kinds.extra(listed | {member.key for member in declared})
    fault = keywords.crossed(low, high) or _count_fault(declared, bool(extra), low, high)
    if fault:
        return fault
    least = low.value if low else 0
    if low and extra and least > 1:
        # Nothing keeps a model from writing an undeclared key twice, and what is read of it then is one member.
        reader.not_enforced[f"{low.path}.minProperties"] = None
    says_nothing = not any(kinds.says_of_others(part) for part in parts)
    max_extra = max(reader.bounds.extra_members, least) if extra else 0
    return Members(declared, extra, max_extra, least, high.value if high else None, says_nothing and bool(declared))


def _count_fault(
    declared: Sequence[Member], has_extra: bool, low: Bound[int] | None, high: Bound[int] | None
) -> Impossible | None:
    num_required = sum(member.is_required for member in declared)
    if high and num_required > high.value:
        return Impossible(high.path, "maxProperties", f"of {high.value} is less than the {num_required} required")
    if low and not has_extra and low.value > len(declared):
        most = len(declared)
        return Impossible(low.path, "minProperties", f"of {low.value} is more than the {most} that there may be")
    return None


class _Kinds:
    """The members of one object: what their keys may be, and which schemas hold for each."""

    def __init__(self, parts: Conjunction, reader: Reader, depth: int, free: Node) -> None:
        self._parts = parts
        self._reader = reader
        self._depth = depth
        self._free = free
        self._properties = [keywords.named_schemas(part.schema, "properties", part.path) for part in parts]
        self._patterns = [_patterns(part) for part in parts]
        self._names = [part for part in parts if "propertyNames" in part.schema]
        self._is_unsure = any(not _UNSURE.isdisjoint(part.schema) for part in parts)
        for part in parts:
            if self._is_unsure and "unevaluatedProperties" in part.schema:
                reader.not_enforced[f"{part.path}.unevaluatedProperties"] = None
        self._name_nodes = self._name_options()
        self._keys = self._key_nodes()

    @staticmethod
    def says_of_others(part: Part) -> bool:
        return any(
            word in part.schema for word in ("additionalProperties", "patternProperties", "unevaluatedProperties")
        )

    @property
    def _is_closed(self) -> bool:
        """By the reader's own rule, without a word of the schema's."""
        declares = any("properties" in part.schema for part in self._parts)
        return self._reader.closes and declares and not any(map(self.says_of_others, self._parts))

    def declared(self) -> tuple[Member, ...] | Impossible:
        required: dict[str, Part] = {}
        for part in self._parts:
            for name in keywords.names(part.schema, "required", part.path):
                required.setdefault(name, part)
        keys = dict.fromkeys(key for properties in self._properties for key in properties)
        keys |= dict.fromkeys(required)
        if not self._is_closed:
            keys |= dict.fromkeys(self._listed_keys())
        if len(keys) > _MAX_MEMBERS:
            message = f"may declare {_MAX_MEMBERS} members, not {len(keys)}. Split the object."
            raise UnsupportedKeyword(self._parts[0].path, "properties", message)
        members = []
        for key in keys:
            value = self._value_of(key)
            if not isinstance(value, Impossible):
                members.append(Member(key, value, key in required))
            elif key in required:
                if value.keyword:
                    return value
                return Impossible(required[key].path, "required", f"names {key!r:.60}, which there may not be")
        return tuple(members)

    def extra(self, declared: frozenset[str]) -> tuple[ExtraMembers, ...]:
        """One kind of further members for each set of patterns that a key may match."""
        if self._is_closed:
            return ()
        patterns = list(dict.fromkeys(pattern for found in self._patterns for pattern, _ in found))
        if len(patterns) > _MAX_PATTERNS:
            message = f"may have {_MAX_PATTERNS} patterns, not {len(patterns)}. Join them with |."
            raise UnsupportedKeyword(self._parts[0].path, "patternProperties", message)
        found = []
        for size in range(len(patterns), -1, -1):
            for chosen in itertools.combinations(patterns, size):
                others = tuple(pattern for pattern in patterns if pattern not in chosen)
                keys = [key for key in self._keys if not _has_no_key(key, chosen, others, declared)]
                value = self._extra_value(frozenset(chosen)) if keys else None
                if value is not None and not isinstance(value, Impossible):
                    found += [ExtraMembers(value, key, chosen, others, tuple(sorted(declared))) for key in keys]
        return tuple(found)

    def _value_of(self, key: str) -> Node | Impossible:
        """What a member of this name may be."""
        for part in self._names:
            if not self._reader.may_fit(key, part.schema["propertyNames"]):
                return Impossible(part.path, "propertyNames", f"does not allow {key!r:.60}")
        known = zip(self._parts, self._properties, self._patterns, strict=True)
        own = [_places_of(key, *each) for each in known]
        return self._node([place for places in own for place in places] or self._unevaluated())

    def _extra_value(self, matched: frozenset[str]) -> Node | Impossible:
        places: list[Place] = []
        for part, patterns in zip(self._parts, self._patterns, strict=True):
            own = [Place(*named, part.level) for pattern, named in patterns if pattern in matched]
            places += own or _additional(part)
        return self._node(places or self._unevaluated())

    def _node(self, places: Sequence[Place]) -> Node | Impossible:
        return self._reader.node(places, self._depth + 1) if places else self._free

    def _unevaluated(self) -> list[Place]:
        """For what no other keyword has looked at."""
        word = "unevaluatedProperties"
        if self._is_unsure:
            return []
        return [Place(p.schema[word], f"{p.path}.{word}", p.level) for p in self._parts if word in p.schema]

    def _key_nodes(self) -> list[Text]:
        """What `propertyNames` allows that is no list, within the bound of keys."""
        most = self._reader.bounds.key_chars
        if not self._names:
            return [Text(0, most)]
        texts = [node for node in self._name_nodes if isinstance(node, Text)]
        return [replace(node, max_chars=max(min(node.max_chars, most), node.min_chars)) for node in texts]

    def _listed_keys(self) -> list[str]:
        """Those that `propertyNames` lists: then each comes once, as if it were declared."""
        listed = [node for node in self._name_nodes if isinstance(node, Literals)]
        return [value for node in listed for value in node.values if isinstance(value, str)]

    def _name_options(self) -> tuple[Node, ...]:
        word = "propertyNames"
        places = [Place(p.schema[word], f"{p.path}.{word}", p.level) for p in self._names]
        if not places:
            return ()
        # A key is a string, whatever else the schemas allow.
        text = Place(self._reader.made({"type": "string"}), places[0].path, places[0].level)
        node = self._reader.node([*places, text], self._depth + 1)
        return () if isinstance(node, Impossible) else flat_options(node)


def _places_of(key: str, part: Part, properties: _Named, patterns: Sequence[tuple[str, _Found]]) -> list[Place]:
    """The schemas that one part has for a member of this name."""
    found = [Place(*properties[key], part.level)] if key in properties else []
    found += [Place(*named, part.level) for pattern, named in patterns if key_matches(pattern, key)]
    return found or _additional(part)


def _additional(part: Part) -> list[Place]:
    word = "additionalProperties"
    return [Place(part.schema[word], f"{part.path}.{word}", part.level)] if word in part.schema else []


def _patterns(part: Part) -> list[tuple[str, _Found]]:
    found = keywords.named_schemas(part.schema, "patternProperties", part.path).items()
    return [(checked_pattern(pattern, part.path, "patternProperties"), named) for pattern, named in found]


def _has_no_key(key: Text, chosen: Sequence[str], others: Sequence[str], declared: frozenset[str]) -> bool:
    """Is it certain that no undeclared key is of this kind?"""
    expressions = [*map(whole_pattern, (*chosen, *key.patterns)), *(FORMATS[form] for form in key.formats)]
    if not expressions and not others:
        return False
    lengths = f".{{{key.min_chars},{key.max_chars}}}"
    excluded = declared if len(declared) <= _MAX_EXCLUDED_ASKED else frozenset()
    return text_set(lengths, *expressions, but=(*map(whole_pattern, others), *map(escaped, sorted(excluded)))).is_empty
