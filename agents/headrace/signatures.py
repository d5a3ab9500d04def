"""Python annotations to shapes: str, int, float, bool, None, Any, Literal, Enum, unions, lists, sets, tuples, mappings,
dataclasses, TypedDicts, Annotated[X, "description"], dates and times, UUID and Path.

What is not among them raises ToolDefinitionError when the tool is defined, not when it is called.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import enum
import functools
import inspect
import json
import pathlib
import types
import typing
import uuid
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NotRequired, Required, TypeVar, Union, get_args, get_origin

from headrace.docstrings import Docstring, parse_docstring
from headrace.errors import ToolDefinitionError
from headrace.shapes import (
    AnyShape,
    ChoiceShape,
    Field,
    ListShape,
    MappingShape,
    ObjectShape,
    ScalarShape,
    Schema,
    Shape,
    TextShape,
    TupleShape,
    UnionShape,
)

NULL = ScalarShape("null", "null")

_PLAIN: dict[object, Shape] = {
    str: ScalarShape("string", "a string"),
    int: ScalarShape("integer", "an integer"),
    float: ScalarShape("number", "a number"),
    bool: ScalarShape("boolean", "true or false"),
    None: NULL,
    types.NoneType: NULL,
    Any: AnyShape(),
    object: AnyShape(),
    datetime.datetime: TextShape("date-time", datetime.datetime.fromisoformat, "an ISO 8601 date and time"),
    datetime.date: TextShape("date", datetime.date.fromisoformat, "an ISO 8601 date"),
    datetime.time: TextShape("time", datetime.time.fromisoformat, "an ISO 8601 time"),
    uuid.UUID: TextShape("uuid", uuid.UUID, "a UUID"),
    pathlib.Path: TextShape(None, pathlib.Path, "a path"),
}
_LISTS = frozenset(
    {
        list,
        collections.abc.Sequence,
        collections.abc.MutableSequence,
        collections.abc.Iterable,
        collections.abc.Collection,
    }
)
_SETS: dict[object, Callable[..., object]] = {
    set: set,
    frozenset: frozenset,
    collections.abc.Set: frozenset,
    collections.abc.MutableSet: set,
}
_MAPPINGS = frozenset({dict, collections.abc.Mapping, collections.abc.MutableMapping})
_FIELD_MARKS = frozenset({Required, NotRequired})
_JSON_SCALARS = (str, int, float, bool, types.NoneType)


def parameters_shape(function: Callable[..., object], docstring: Docstring) -> ObjectShape:
    """The parameters of a function as one object, read to a dict of its arguments by name."""
    name = getattr(function, "__name__", type(function).__name__)
    shape = ObjectShape(name, build=lambda values: values)
    shape.fields = _AnnotationReader().signature_fields(function, _hints(function, name), docstring.parameters, name)
    return shape


class _AnnotationReader:
    """Reads the annotations of one tool; remembers objects, as they may contain themselves."""

    def __init__(self) -> None:
        self._objects: dict[type, ObjectShape] = {}
        self._open_aliases: list[object] = []

    def signature_fields(
        self, function: Callable[..., object], hints: Mapping[str, object], descriptions: Mapping[str, str], owner: str
    ) -> list[Field]:
        fields: list[Field] = []
        try:
            parameters = inspect.signature(function).parameters.values()
        except ValueError as error:
            raise ToolDefinitionError(f"{owner} does not tell its parameters: {error}") from error
        for parameter in parameters:
            place = f"parameter {parameter.name!r} of {owner}"
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise ToolDefinitionError(f"{place}: a model can't fill {parameter}; name the parameters")
            if parameter.name not in hints:
                raise ToolDefinitionError(f"{place} has no annotation")
            description = descriptions.get(parameter.name, "")
            fields.append(self.field(parameter.name, hints[parameter.name], place, description, parameter.default))
        return fields

    def field(self, name: str, annotation: object, place: str, description: str, default: object) -> Field:
        """`default` is `inspect.Parameter.empty` for a field that must be given."""
        annotation, noted = _unwrap(annotation)
        shape = self.shape(annotation, place)
        if default is None and not _takes_null(shape):
            shape = UnionShape((shape, NULL))
        extra: Schema = {"description": noted or description} if noted or description else {}
        if default is not inspect.Parameter.empty and (shown := _json_default(default)) is not _NO_JSON:
            extra["default"] = shown
        return Field(name, shape, default is inspect.Parameter.empty, extra)

    def shape(self, annotation: object, place: str) -> Shape:
        annotation, _ = _unwrap(annotation)
        if (plain := _PLAIN.get(annotation) if isinstance(annotation, collections.abc.Hashable) else None) is not None:
            return plain
        origin, arguments = get_origin(annotation) or annotation, get_args(annotation)
        if origin is Literal:
            return ChoiceShape(tuple(_literal(value, place) for value in arguments))
        if origin in (Union, types.UnionType):
            return UnionShape(tuple(self.shape(member, place) for member in arguments))
        if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
            return _enum_shape(annotation, place)
        if dataclasses.is_dataclass(annotation) or typing.is_typeddict(annotation):
            assert isinstance(annotation, type)
            return self._object(annotation)
        if (container := self._container(origin, arguments, place)) is not None:
            return container
        if (meant := getattr(annotation, "__supertype__", None) or getattr(annotation, "__value__", None)) is not None:
            return self._alias(annotation, meant, place)
        raise ToolDefinitionError(f"{place}: no JSON Schema is known for {_shown(annotation)}")

    def _container(self, origin: object, arguments: tuple[object, ...], place: str) -> Shape | None:
        item = arguments[0] if arguments else Any
        if origin in _LISTS:
            return ListShape(self.shape(item, place), list, is_set=False)
        if origin in _SETS:
            return ListShape(self.shape(item, place), _SETS[origin], is_set=True)
        if origin is tuple:
            if not arguments or arguments[-1] is Ellipsis:
                return ListShape(self.shape(item, place), tuple, is_set=False)
            return TupleShape(tuple(self.shape(argument, place) for argument in arguments))
        if origin in _MAPPINGS:
            key, value = arguments or (str, Any)
            key_shape = self.shape(key, place)
            if not (key_shape == _PLAIN[str] or _is_text_choice(key_shape)):
                raise ToolDefinitionError(f"{place}: JSON has no keys of {_shown(key)}; use strings")
            return MappingShape(key_shape, self.shape(value, place))
        return None

    def _alias(self, alias: object, meant: object, place: str) -> Shape:
        if alias in self._open_aliases:
            raise ToolDefinitionError(f"{place}: {_shown(alias)} contains itself; use a dataclass for that")
        self._open_aliases.append(alias)
        shape = self.shape(meant, place)
        self._open_aliases.pop()
        return shape

    def _object(self, kind: type) -> ObjectShape:
        if (known := self._objects.get(kind)) is not None:
            return known
        is_dataclass = dataclasses.is_dataclass(kind)
        docstring = parse_docstring(_own_docstring(kind))
        shape = ObjectShape(kind.__name__, lambda values: kind(**values), description=docstring.text)
        self._objects[kind] = shape
        hints = _hints(kind, kind.__name__)
        if is_dataclass:
            # InitVar fields are parameters too.
            hints = {name: getattr(hint, "type", hint) if _is_init_var(hint) else hint for name, hint in hints.items()}
            shape.fields = self.signature_fields(kind, hints, docstring.parameters, kind.__name__)
        else:
            shape.fields = self._keys(kind, hints, docstring.parameters)
        return shape

    def _keys(self, kind: type, hints: Mapping[str, object], descriptions: Mapping[str, str]) -> list[Field]:
        """The keys of a TypedDict."""
        fields: list[Field] = []
        for name, hint in hints.items():
            mark = get_origin(hint)
            # Asked first: under `from __future__ import annotations` the class itself does not know of these marks.
            is_required = mark is Required or (mark is not NotRequired and name in kind.__required_keys__)  # type: ignore[attr-defined]
            annotation = get_args(hint)[0] if mark in _FIELD_MARKS else hint
            place = f"key {name!r} of {kind.__name__}"
            field = self.field(name, annotation, place, descriptions.get(name, ""), inspect.Parameter.empty)
            fields.append(dataclasses.replace(field, is_required=is_required))
        return fields


_NO_JSON = object()


def beneath(function: Callable[..., object]) -> Callable[..., object]:
    """The function that holds the annotations: a partial's and a callable object's stand on another one."""
    if isinstance(function, functools.partial):
        return beneath(function.func)
    is_plain = inspect.isroutine(function) or inspect.isclass(function)
    return function if is_plain else type(function).__call__


def _hints(owner: Callable[..., object], name: str) -> dict[str, object]:
    owner = beneath(owner)
    try:
        return typing.get_type_hints(owner, include_extras=True)
    except NameError as error:
        raise ToolDefinitionError(
            f"{name}: {error}; annotations given as text are looked up in the module, so define the type there"
        ) from error


def _unwrap(annotation: object) -> tuple[object, str]:
    """The annotation without `Annotated`, and the description that stood there."""
    description = ""
    while get_origin(annotation) is Annotated:
        annotation, *notes = get_args(annotation)
        description = description or next((note for note in notes if isinstance(note, str)), "")
    return annotation, description


def _literal(value: object, place: str) -> tuple[object, object]:
    if isinstance(value, enum.Enum):
        return _member_on_wire(value), value
    if not isinstance(value, _JSON_SCALARS):
        raise ToolDefinitionError(f"{place}: JSON can't say {value!r}")
    return value, value


def _enum_shape(kind: type[enum.Enum], place: str) -> ChoiceShape:
    if not len(kind):
        raise ToolDefinitionError(f"{place}: {kind.__name__} has no members")
    return ChoiceShape(tuple((_member_on_wire(member), member) for member in kind))


def _member_on_wire(member: enum.Enum) -> object:
    """The member's value; its name where the values of its class are not all JSON scalars."""
    plain = all(isinstance(other.value, _JSON_SCALARS) for other in type(member))
    return member.value if plain else member.name


def _is_text_choice(shape: Shape) -> bool:
    return isinstance(shape, ChoiceShape) and all(isinstance(wire, str) for wire, _ in shape.choices)


def _takes_null(shape: Shape) -> bool:
    problems: list[str] = []
    shape.read(None, "", problems)
    return not problems


def _is_init_var(hint: object) -> bool:
    return isinstance(hint, dataclasses.InitVar)


def _own_docstring(kind: type) -> str | None:
    """A dataclass without a docstring is given its signature as one, a TypedDict that of dict: neither says a thing."""
    docstring = kind.__doc__
    is_made_up = docstring is None or docstring.startswith(f"{kind.__name__}(") or docstring == dict.__doc__
    return None if is_made_up else docstring


def _json_default(value: object) -> object:
    if isinstance(value, enum.Enum):
        return _member_on_wire(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError):
        return _NO_JSON


def _shown(annotation: object) -> str:
    if isinstance(annotation, TypeVar):
        return f"the type variable {annotation}"
    return getattr(annotation, "__qualname__", None) or str(annotation)
