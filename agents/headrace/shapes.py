"""The shapes that a tool's arguments can have: each writes its JSON Schema and reads a JSON value into Python.

Knows nothing of annotations (see `signatures.py`) and of functions. Reading is strict: a value of another JSON type is
a problem and is not converted, for the model is better told than guessed at. The one exception is JSON Schema's own: an
integral number like 5.0 is an integer.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, TypeVar

T = TypeVar("T")
Schema: TypeAlias = dict[str, object]

_SHOWN_CHARS = 80


class Shape(Protocol):
    def schema(self, writer: SchemaWriter) -> Schema: ...

    def read(self, value: object, path: str, problems: list[str]) -> object:
        """The Python value. What is wrong is added to `problems`; the result is then meaningless."""
        ...

    @property
    def label(self) -> str:
        """What is wanted, in a few words, for a message to the model."""
        ...


class SchemaWriter:
    """Gathers the definitions of objects that contain themselves; all others are written in place."""

    def __init__(self) -> None:
        self._open: list[ObjectShape] = []
        self._names: dict[int, str] = {}
        self._definitions: dict[str, Schema] = {}

    def root(self, shape: ObjectShape) -> Schema:
        schema = self.object(shape)
        return {**schema, "$defs": self._definitions} if self._definitions else schema

    def object(self, shape: ObjectShape) -> Schema:
        if any(shape is opened for opened in self._open) or id(shape) in self._names:
            return {"$ref": f"#/$defs/{self._name(shape)}"}
        self._open.append(shape)
        schema = shape.fields_schema(self)
        self._open.pop()
        if id(shape) not in self._names:
            return schema
        self._definitions[self._names[id(shape)]] = schema
        return {"$ref": f"#/$defs/{self._names[id(shape)]}"}

    def _name(self, shape: ObjectShape) -> str:
        if id(shape) not in self._names:
            spellings = itertools.chain([shape.name], (f"{shape.name}_{number}" for number in itertools.count(2)))
            self._names[id(shape)] = next(name for name in spellings if name not in self._names.values())
        return self._names[id(shape)]


@dataclass(frozen=True, slots=True)
class AnyShape:
    label: str = "any value"

    def schema(self, writer: SchemaWriter) -> Schema:
        return {}

    def read(self, value: object, path: str, problems: list[str]) -> object:
        return value


@dataclass(frozen=True, slots=True)
class ScalarShape:
    """A JSON scalar, taken as it is. `kind` is JSON Schema's name of the type."""

    kind: str
    label: str

    def schema(self, writer: SchemaWriter) -> Schema:
        return {"type": self.kind}

    def read(self, value: object, path: str, problems: list[str]) -> object:
        match self.kind, value:
            case ("boolean", bool()) | ("string", str()) | ("null", None):
                return value
            case ("integer" | "number", bool()):
                pass
            case ("integer", int()):
                return value
            case ("integer", float()) if value.is_integer():
                return int(value)
            case ("number", int() | float()) if _is_finite_float(value):
                return float(value)
        problems.append(wrong(path, self, value))
        return None


@dataclass(frozen=True, slots=True)
class TextShape:
    """A string that stands for another type; `parse` raises ValueError for one that does not."""

    format: str | None
    parse: Callable[[str], object]
    label: str

    def schema(self, writer: SchemaWriter) -> Schema:
        return {"type": "string", "format": self.format} if self.format else {"type": "string"}

    def read(self, value: object, path: str, problems: list[str]) -> object:
        if isinstance(value, str):
            try:
                return self.parse(value)
            except ValueError:
                pass
        problems.append(wrong(path, self, value))
        return None


@dataclass(frozen=True, slots=True)
class ChoiceShape:
    """One of some JSON scalars; `choices` pairs what is on the wire with what Python gets."""

    choices: tuple[tuple[object, object], ...]

    @property
    def label(self) -> str:
        return "one of " + ", ".join(json.dumps(wire) for wire, _ in self.choices)

    def schema(self, writer: SchemaWriter) -> Schema:
        values = [wire for wire, _ in self.choices]
        kinds = {_SCALAR_KINDS.get(type(value)) for value in values}
        kind = kinds.pop() if len(kinds) == 1 else None
        return {"type": kind, "enum": values} if kind else {"enum": values}

    def read(self, value: object, path: str, problems: list[str]) -> object:
        for wire, meant in self.choices:
            # True == 1 in Python, and not in JSON.
            if type(value) is type(wire) and value == wire:
                return meant
        problems.append(wrong(path, self, value))
        return None


@dataclass(frozen=True, slots=True)
class UnionShape:
    """The first member that can read the value does."""

    members: tuple[Shape, ...]

    @property
    def label(self) -> str:
        return " or ".join(member.label for member in self.members)

    def schema(self, writer: SchemaWriter) -> Schema:
        return {"anyOf": [member.schema(writer) for member in self.members]}

    def read(self, value: object, path: str, problems: list[str]) -> object:
        attempts: list[tuple[Shape, list[str]]] = []
        for member in self.members:
            found: list[str] = []
            result = member.read(value, path, found)
            if not found:
                return result
            attempts.append((member, found))
        # A value of the right type with something wrong inside: say what, and not that it should be another type.
        inner = [found for member, found in attempts if found != [wrong(path, member, value)]]
        problems.extend(inner[0] if len(inner) == 1 else [wrong(path, self, value)])
        return None


@dataclass(frozen=True, slots=True)
class ListShape:
    """`build` makes the container; it raises TypeError for items that can't be in a set."""

    item: Shape
    build: Callable[[Sequence[object]], object]
    is_set: bool

    @property
    def label(self) -> str:
        return "an array"

    def schema(self, writer: SchemaWriter) -> Schema:
        unique: Schema = {"uniqueItems": True} if self.is_set else {}
        return {"type": "array", "items": self.item.schema(writer), **unique}

    def read(self, value: object, path: str, problems: list[str]) -> object:
        if not isinstance(value, list):
            problems.append(wrong(path, self, value))
            return None
        found = len(problems)
        items = [self.item.read(item, f"{path}[{position}]", problems) for position, item in enumerate(value)]
        return None if len(problems) > found else _built(self.build, items, path, problems)


@dataclass(frozen=True, slots=True)
class TupleShape:
    items: tuple[Shape, ...]

    @property
    def label(self) -> str:
        return f"an array of {len(self.items)} items"

    def schema(self, writer: SchemaWriter) -> Schema:
        length = len(self.items)
        prefix = [item.schema(writer) for item in self.items]
        return {"type": "array", "prefixItems": prefix, "minItems": length, "maxItems": length}

    def read(self, value: object, path: str, problems: list[str]) -> object:
        if not isinstance(value, list) or len(value) != len(self.items):
            problems.append(wrong(path, self, value))
            return None
        pairs = zip(self.items, value, strict=True)
        return tuple(shape.read(item, f"{path}[{position}]", problems) for position, (shape, item) in enumerate(pairs))


@dataclass(frozen=True, slots=True)
class MappingShape:
    """An object with keys of the model's choice, or (where `key` is one) of given choices."""

    key: Shape
    value: Shape

    @property
    def label(self) -> str:
        return "an object"

    def schema(self, writer: SchemaWriter) -> Schema:
        names: Schema = {"propertyNames": self.key.schema(writer)} if isinstance(self.key, ChoiceShape) else {}
        return {"type": "object", **names, "additionalProperties": self.value.schema(writer)}

    def read(self, value: object, path: str, problems: list[str]) -> object:
        if not isinstance(value, dict):
            problems.append(wrong(path, self, value))
            return None
        return {
            self.key.read(key, f"the key {key!r} of {path}", problems): self.value.read(item, f"{path}.{key}", problems)
            for key, item in value.items()
        }


@dataclass(slots=True)
class Field:
    """`extra_schema` holds the field's description and default, where it has them."""

    name: str
    shape: Shape
    is_required: bool
    extra_schema: Schema


@dataclass(slots=True, eq=False)
class ObjectShape:
    """An object with named fields; also a function's parameters. Its fields are added after it was made, for they may
    contain it. `build` raises ValueError or TypeError for values that do not go together."""

    name: str
    build: Callable[[dict[str, object]], object]
    fields: list[Field] = field(default_factory=list)
    description: str = ""

    @property
    def label(self) -> str:
        return f"an object with {', '.join(entry.name for entry in self.fields) or 'no fields'}"

    def schema(self, writer: SchemaWriter) -> Schema:
        return writer.object(self)

    def fields_schema(self, writer: SchemaWriter) -> Schema:
        described: Schema = {"description": self.description} if self.description else {}
        return {
            "type": "object",
            **described,
            "properties": {entry.name: {**entry.shape.schema(writer), **entry.extra_schema} for entry in self.fields},
            "required": [entry.name for entry in self.fields if entry.is_required],
            "additionalProperties": False,
        }

    def read(self, value: object, path: str, problems: list[str]) -> object:
        if not isinstance(value, dict):
            problems.append(wrong(path, self, value))
            return None
        prefix, found = f"{path}." if path else "", len(problems)
        known = {entry.name for entry in self.fields}
        for name in (name for name in value if name not in known):
            problems.append(f"{prefix}{name} is unknown; known are: {', '.join(sorted(known)) or 'none'}")

        values: dict[str, object] = {}
        for entry in self.fields:
            if entry.name in value:
                values[entry.name] = entry.shape.read(value[entry.name], f"{prefix}{entry.name}", problems)
            elif entry.is_required:
                problems.append(f"{prefix}{entry.name} is missing")
        return None if len(problems) > found else _built(self.build, values, path, problems)


_SCALAR_KINDS: dict[type, str] = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def wrong(path: str, shape: Shape, value: object) -> str:
    shown = json.dumps(value)
    shown = shown if len(shown) <= _SHOWN_CHARS else shown[:_SHOWN_CHARS] + "..."
    return f"{path or 'the arguments'} must be {shape.label}, got {shown}"


def _built(build: Callable[[T], object], parts: T, path: str, problems: list[str]) -> object:
    try:
        return build(parts)
    except (ValueError, TypeError) as error:
        problems.append(f"{path or 'the arguments'}: {error}")
        return None


def _is_finite_float(value: float) -> bool:
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False
