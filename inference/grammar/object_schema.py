"""Merges what several schemas demand of one object: declared members, patterns for keys, and what else may come."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from inference.grammar import keywords
from inference.grammar.conjunctions import checked_pattern, key_matches, merge_texts
from inference.grammar.errors import UnsupportedKeyword
from inference.grammar.nodes import ExtraMembers, Member, Members, Node, Text
from inference.grammar.places import Conjunction, Part, Place, Reader

_MAX_PATTERNS = 4  # every subset of them is a kind of key of its own
_MAX_MEMBERS = 2000
_Found: TypeAlias = tuple[object, str]  # a schema and its path
_Named: TypeAlias = Mapping[str, _Found]
_KEY_KEYWORDS = frozenset({"pattern", "minLength", "maxLength", "enum", "const", "type"})


def merge_objects(parts: Conjunction, reader: Reader, depth: int, free: Node) -> Members | None:
    """free: what an undeclared member may be where nothing is said of it."""
    declared = _declared(parts, reader, depth, free)
    if declared is None:
        return None
    low, high = _bounds(parts)
    # Members that are declared and impossible are no extra ones either.
    listed = frozenset(key for part in parts for key, _ in _named(part, "properties"))
    extra = _extra(parts, reader, depth, free, listed | {member.key for member in declared})
    num_required = sum(member.is_required for member in declared)
    can_reach = len(declared) if not extra else None
    if (high is not None and (low > high or num_required > high)) or (can_reach is not None and can_reach < low):
        return None
    says_nothing = not any("additionalProperties" in p.schema or "patternProperties" in p.schema for p in parts)
    max_extra = max(reader.bounds.extra_members, low) if extra else 0
    return Members(declared, extra, max_extra, low, high, says_nothing and bool(declared))


def _declared(parts: Conjunction, reader: Reader, depth: int, free: Node) -> tuple[Member, ...] | None:
    """None: some member is required and impossible."""
    required = dict.fromkeys(name for part in parts for name in keywords.names(part.schema, "required", part.path))
    known = [(part, keywords.named_schemas(part.schema, "properties", part.path), _patterns(part)) for part in parts]
    listed = dict.fromkeys(key for _, properties, _ in known for key in properties)
    keys = [*listed, *(key for key in required if key not in listed)]
    if len(keys) > _MAX_MEMBERS:
        raise UnsupportedKeyword(parts[0].path, "properties", f"may declare {_MAX_MEMBERS} members, not {len(keys)}.")
    key_schemas = _key_schemas(parts)
    members = []
    for key in keys:
        value = None
        if _key_fits(key, key_schemas):
            places = [place for part in known for place in _places_of(key, *part)]
            value = reader.node(places, depth + 1) if places else free
        if value is not None:
            members.append(Member(key, value, key in required))
        elif key in required:
            return None
    return tuple(members)


def _places_of(key: str, part: Part, properties: _Named, patterns: Sequence[tuple[str, _Found]]) -> list[Place]:
    """The schemas that one part has for a member of this name."""
    found = [Place(*properties[key], part.level)] if key in properties else []
    found += [Place(*named, part.level) for pattern, named in patterns if key_matches(pattern, key)]
    if not found and "additionalProperties" in part.schema:
        found.append(Place(part.schema["additionalProperties"], f"{part.path}.additionalProperties", part.level))
    return found


def _named(part: Part, word: str) -> Sequence[tuple[str, _Found]]:
    return tuple(keywords.named_schemas(part.schema, word, part.path).items())


def _patterns(part: Part) -> list[tuple[str, _Found]]:
    found = _named(part, "patternProperties")
    return [(checked_pattern(pattern, part.path, "patternProperties"), named) for pattern, named in found]


def _bounds(parts: Conjunction) -> tuple[int, int | None]:
    lows = [n for p in parts if (n := keywords.count(p.schema, "minProperties", p.path)) is not None]
    highs = [n for p in parts if (n := keywords.count(p.schema, "maxProperties", p.path)) is not None]
    return max([0, *lows]), min(highs) if highs else None


def _extra(
    parts: Conjunction, reader: Reader, depth: int, free: Node, declared: frozenset[str]
) -> tuple[ExtraMembers, ...]:
    """One kind of further members for each set of patterns that a key may match."""
    words = {word for part in parts for word in part.schema}
    if reader.closes and "properties" in words and words.isdisjoint({"additionalProperties", "patternProperties"}):
        return ()
    patterns = list(dict.fromkeys(pattern for part in parts for pattern, _ in _patterns(part)))
    if len(patterns) > _MAX_PATTERNS:
        path = parts[0].path
        raise UnsupportedKeyword(path, "patternProperties", f"may have {_MAX_PATTERNS} patterns, not {len(patterns)}.")
    key = _key_text(parts, reader)
    if key is None:
        return ()
    found = []
    for size in range(len(patterns), -1, -1):
        for chosen in itertools.combinations(patterns, size):
            value = _extra_value(frozenset(chosen), parts, reader, depth, free)
            if value is not None:
                others = tuple(pattern for pattern in patterns if pattern not in chosen)
                keys = _listed_keys(parts, declared, chosen, others)
                found.append(ExtraMembers(value, key, chosen, others, keys, tuple(sorted(declared))))
    return tuple(found)


def _extra_value(
    matched: frozenset[str], parts: Conjunction, reader: Reader, depth: int, free: Node
) -> Node | None:
    places: list[Place] = []
    for part in parts:
        own = [Place(*named, part.level) for pattern, named in _patterns(part) if pattern in matched]
        if not own and "additionalProperties" in part.schema:
            own = [Place(part.schema["additionalProperties"], f"{part.path}.additionalProperties", part.level)]
        if not own and part.schema.get("unevaluatedProperties") is False:
            return None
        places += own
    return reader.node(places, depth + 1) if places else free


def _key_schemas(parts: Conjunction) -> list[Part]:
    """What `propertyNames` demands."""
    found = []
    for part in parts:
        schema, path = part.schema.get("propertyNames"), f"{part.path}.propertyNames"
        if isinstance(schema, Mapping):
            found.append(Part(schema, path, part.level))
        elif schema is False:
            found.append(Part({"enum": []}, path, part.level))
    return found


def _key_text(parts: Conjunction, reader: Reader) -> Text | None:
    schemas = _key_schemas(parts)
    for schema, path, _ in schemas:
        for word in schema.keys() & keywords.ENFORCED - _KEY_KEYWORDS:
            reader.not_enforced[f"{path}.{word}"] = None
        if "string" not in keywords.types(schema, path):
            return None
    text = merge_texts(schemas, reader)
    if text is None:
        return None
    return Text(text.min_chars, max(min(text.max_chars, reader.bounds.key_chars), text.min_chars), text.patterns)


def _listed_keys(
    parts: Conjunction, declared: frozenset[str], patterns: Sequence[str], others: Sequence[str]
) -> tuple[str, ...] | None:
    """The keys that `propertyNames` lists, of those that match all patterns and none of the others."""
    schemas = [schema for schema, _, _ in _key_schemas(parts) if "enum" in schema or "const" in schema]
    lists = [schema["enum"] if "enum" in schema else [schema["const"]] for schema in schemas]
    if not lists:
        return None
    shared = [key for key in lists[0] if isinstance(key, str) and all(key in other for other in lists)]
    return tuple(
        key
        for key in dict.fromkeys(shared)
        if key not in declared
        and all(key_matches(pattern, key) for pattern in patterns)
        and not any(key_matches(pattern, key) for pattern in others)
    )


def _key_fits(key: str, key_schemas: Sequence[Part]) -> bool:
    for schema, path, _ in key_schemas:
        low, high = keywords.count(schema, "minLength", path), keywords.count(schema, "maxLength", path)
        pattern = schema.get("pattern")
        if (low is not None and len(key) < low) or (high is not None and len(key) > high):
            return False
        if pattern is not None and not key_matches(checked_pattern(pattern, path), key):
            return False
        if ("enum" in schema and key not in schema["enum"]) or ("const" in schema and key != schema["const"]):
            return False
    return True
