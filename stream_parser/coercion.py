"""Changes of type whose meaning is certain: "5" for an integer, one value for an array of one, JSON text for an object.

What is not certain stays as it is; whether it then fits is for `schema_check` to say.
"""

from __future__ import annotations

from collections.abc import Callable

from stream_parser import repair
from stream_parser.json_text import Scalar, is_number, quoted, read_scalar
from stream_parser.json_value import JsonError, Number, Value, dump, parse, type_name
from stream_parser.schema_types import TypeSet

# Of arrays of one within each other: a schema may go on in them without an end.
_MAX_WRAPS = 4
_BOOLEANS = {"true": True, "True": True, "false": False, "False": False}


# Reads text as a literal in another spelling than JSON's, as JSON; None: it is none.
LiteralReader = Callable[[str], str | None]


def no_literal(_text: str) -> None:
    return None


def fit(text: str, types: TypeSet | None, read_literal: LiteralReader = no_literal) -> str:
    """JSON text of the type that the schema wants, or `text` itself where it fits already or no change is certain."""
    if types is None or types.is_unknown:
        return text
    try:
        value = parse(text)
    except JsonError:
        return text
    changed = coerce(value, types, read_literal)
    return text if changed == value else dump(changed)


def coerce(
    value: Value, types: TypeSet | None, read_literal: LiteralReader = no_literal, num_wraps: int = 0
) -> Value:
    """The value with every part brought to its declared type, where that is certain. num_wraps: arrays around it that
    nobody wrote."""
    if types is None or types.is_unknown:
        return value
    if types.allows(type_name(value)):
        return _coerce_parts(value, types, read_literal)
    if isinstance(value, str):
        changed = _coerce_text(value, types, read_literal)
        if changed is not value:
            return changed
    if "array" not in types.types or value is None or isinstance(value, list) or num_wraps >= _MAX_WRAPS:
        return value
    items = types.items
    changed = coerce(value, items, read_literal, num_wraps + 1)
    return [changed] if items is None or items.allows(type_name(changed)) else value


def read_word(word: str, types: TypeSet | None) -> Scalar:
    """A bare word where the schema decides: "750" is text for a string and a number for an integer."""
    scalar = read_scalar(word)
    if scalar is None:
        return Scalar(quoted(word), repair.UNQUOTED_STRING)
    if types is None or "string" not in types.types:
        return scalar
    return scalar if _allows_text(scalar.text, types) else Scalar(quoted(word), "")


def _allows_text(json_text: str, types: TypeSet) -> bool:
    return types.allows(type_name(parse(json_text)))


def _coerce_parts(value: Value, types: TypeSet, read_literal: LiteralReader) -> Value:
    if isinstance(value, list):
        return [coerce(item, types.items, read_literal) for item in value]
    if isinstance(value, dict):
        return {key: coerce(item, types.property(key), read_literal) for key, item in value.items()}
    return value


def _coerce_text(text: str, types: TypeSet, read_literal: LiteralReader) -> Value:
    """What the text of a string spells, if the schema wants that and no string; else the same object."""
    word = text.strip()
    if is_number(word) and types.allows(type_name(Number(word))):
        return Number(word)
    if word in _BOOLEANS and "boolean" in types.types:
        return _BOOLEANS[word]
    if word in ("null", "None") and "null" in types.types:
        return None
    if word[:1] in ("{", "[", "("):
        value = _parse_container(word, read_literal)
        if value is not None and types.allows(type_name(value)):
            return _coerce_parts(value, types, read_literal)
    return text


def _parse_container(word: str, read_literal: LiteralReader) -> Value:
    """None for text that is no container after all."""
    try:
        return parse(word)
    except JsonError:
        literal = read_literal(word)
    try:
        return None if literal is None else parse(literal)
    except JsonError:
        return None
