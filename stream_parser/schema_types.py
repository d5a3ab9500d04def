"""What types a JSON schema allows at one place, with references and alternatives resolved.

A schema is the caller's input and may be anything: what it does not say, or says wrongly, allows everything. Knows
nothing of values; `coercion`, `typing_rules` and `schema_check` do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stream_parser.references import References

Schema = Mapping[str, Any]
# A schema as alternatives, each a conjunction of schemas without references or combinators.
_Branch = tuple[Schema, ...]

ALL_TYPES = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})
# Spellings outside JSON Schema which tool authors use all the same.
_ALIASES = {
    "str": "string", "text": "string", "char": "string", "varchar": "string", "enum": "string",
    "int": "integer", "long": "integer", "int32": "integer", "int64": "integer", "uint": "integer",
    "float": "number", "double": "number", "decimal": "number", "bool": "boolean", "none": "null",
    "list": "array", "tuple": "array", "arr": "array", "dict": "object", "map": "object", "json": "object",
}  # fmt: skip
# The types of the values that a schema, itself decoded JSON, lists in `enum` and `const`.
_TYPE_NAMES: dict[type, tuple[str, ...]] = {
    type(None): ("null",),
    bool: ("boolean",),
    str: ("string",),
    int: ("integer", "number"),
    float: ("number", "integer"),
    list: ("array",),
    dict: ("object",),
}
# A recursive or combinatorial schema is resolved this far; beyond, it allows everything.
_MAX_BRANCHES = 64
_MAX_VISITS = 200


class TypeSet:
    """The resolved type of one place in the arguments. `types` is never empty."""

    __slots__ = ("_branches", "_items", "_properties", "_references", "types")

    def __init__(self, schema: object, references: References) -> None:
        self._references = references
        self._branches = _Resolver(references).alternatives(schema)
        allowed = [_branch_types(branch) for branch in self._branches]
        self.types: frozenset[str] = frozenset().union(*allowed) or ALL_TYPES
        self._items: TypeSet | bool | None = False  # False: not resolved yet
        self._properties: dict[str, TypeSet | None] = {}

    def __repr__(self) -> str:
        return f"TypeSet({'|'.join(sorted(self.types))})"

    @property
    def is_unknown(self) -> bool:
        return self.types == ALL_TYPES

    @property
    def is_string_only(self) -> bool:
        return self.types == {"string"}

    @property
    def is_array(self) -> bool:
        return "array" in self.types and not self.is_unknown

    @property
    def is_object(self) -> bool:
        return "object" in self.types and not self.is_unknown

    @property
    def items(self) -> TypeSet | None:
        """The type of an array's members, None where nothing is said of them."""
        if isinstance(self._items, bool):
            self._items = self._union(list(self._item_schemas()))
        return self._items

    @property
    def keys(self) -> tuple[str, ...]:
        """The declared properties, in the schema's order."""
        found: dict[str, None] = {}
        for part in self._parts():
            found.update(dict.fromkeys(_mapping(part.get("properties"))))
        return tuple(found)

    def property(self, key: str) -> TypeSet | None:
        """The type of a member, None where nothing is said of it."""
        if key not in self._properties:
            self._properties[key] = self._union(list(self._property_schemas(key)))
        return self._properties[key]

    def allows(self, json_type: str) -> bool:
        return json_type in self.types or (json_type == "integer" and "number" in self.types)

    def _union(self, schemas: list[object]) -> TypeSet | None:
        if not schemas:
            return None
        return TypeSet(schemas[0] if len(schemas) == 1 else {"anyOf": schemas}, self._references)

    def _parts(self) -> Iterator[Schema]:
        for branch in self._branches:
            yield from branch

    def _item_schemas(self) -> Iterator[object]:
        for part in self._parts():
            if isinstance(part.get("items"), Mapping):
                yield part["items"]
            for listed in (part.get("prefixItems"), part.get("items")):
                if isinstance(listed, list):
                    yield from listed

    def _property_schemas(self, key: str) -> Iterator[object]:
        for branch in self._branches:
            declared = [_mapping(part.get("properties")).get(key) for part in branch]
            declared = [schema for schema in declared if schema is not None]
            if declared:
                yield declared[0] if len(declared) == 1 else {"allOf": declared}
                continue
            yield from (extra for part in branch if isinstance(extra := part.get("additionalProperties"), Mapping))


def schema_types(schema: Schema) -> frozenset[str]:
    """The types that one schema names itself, by `type`, `nullable`, `enum` and `const`; all where it names none."""
    named = schema.get("type")
    names = [named] if isinstance(named, str) else named if isinstance(named, list) else []
    types = {_ALIASES.get(name.lower(), name.lower()) for name in names if isinstance(name, str)}
    allowed = frozenset(types) if types and types <= ALL_TYPES else ALL_TYPES
    if isinstance(schema.get("enum"), list):
        allowed = _narrow(allowed, schema["enum"])
    if "const" in schema:
        allowed = _narrow(allowed, [schema["const"]])
    return allowed | {"null"} if schema.get("nullable") is True and allowed != ALL_TYPES else allowed


def _narrow(allowed: frozenset[str], values: Sequence[object]) -> frozenset[str]:
    used = frozenset().union(*(_TYPE_NAMES.get(type(value), ()) for value in values))
    return allowed & used or allowed


def _mapping(value: object) -> Schema:
    return value if isinstance(value, Mapping) else {}


def _branch_types(branch: _Branch) -> frozenset[str]:
    types = ALL_TYPES
    for part in branch:
        types = _intersect(types, schema_types(part))
    return types


def _intersect(left: frozenset[str], right: frozenset[str]) -> frozenset[str]:
    both = left & right
    if "integer" in left ^ right and "number" in left | right and not {"integer", "number"} <= left & right:
        # An integer is a number as well.
        both |= {"integer"} if _numeric(left) and _numeric(right) else frozenset()
    return both


def _numeric(types: frozenset[str]) -> bool:
    return bool(types & {"integer", "number"})


class _Resolver:
    """Brings schemas into disjunctive form. Visits at most `_MAX_VISITS` of them, whatever their references do."""

    def __init__(self, references: References) -> None:
        self._references = references
        self._visits = 0

    def alternatives(self, schema: object, seen: frozenset[str] = frozenset()) -> list[_Branch]:
        """`[({},)]` allows everything; `seen` are the references on the way here."""
        self._visits += 1
        if not isinstance(schema, Mapping) or self._visits > _MAX_VISITS:
            return [({},)]
        branches: list[_Branch] = [(schema,)]
        for factor in self._factors(schema, seen):
            branches = [left + right for left in branches for right in factor]
            if len(branches) > _MAX_BRANCHES:
                return [(schema,)]
        return branches

    def _factors(self, schema: Schema, seen: frozenset[str]) -> Iterator[list[_Branch]]:
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference not in seen:
            yield self.alternatives(self._references.target(reference), seen | {reference})
        for part in _schemas(schema.get("allOf")):
            yield self.alternatives(part, seen)
        for word in ("anyOf", "oneOf"):
            options = _schemas(schema.get(word))
            if options:
                yield [branch for option in options for branch in self.alternatives(option, seen)]


def _schemas(value: object) -> list[object]:
    return list(value) if isinstance(value, list) else []
