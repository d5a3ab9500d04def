"""Typed reading of a decoded JSON object. Every refusal names the field by its path, the value and what is expected.

null counts as absent, unknown fields are ignored, a whole number may be spelled 5.0; nothing else is converted.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping
from typing import Any, TypeVar

from gateway.errors import InvalidRequest

_SHOWN_CHARS = 60
_PLAIN_WORD = re.compile(r"[\w.:-]{1,60}", re.ASCII)
_T = TypeVar("_T", bound=str)

_TYPE_NAMES: dict[type, str] = {
    dict: "an object",
    list: "an array",
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    type(None): "null",
}


def type_name(value: object) -> str:
    return _TYPE_NAMES.get(type(value), type(value).__name__)


def shown(value: object) -> str:
    """A value as an error message quotes it, cut to a readable length."""
    # Neither the whole of a long text is looked at nor that of an array: `repr` of megabytes takes its time.
    text = repr(value[: _SHOWN_CHARS + 1]) if isinstance(value, str) else reprlib.repr(value)
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"


def named(word: str) -> str:
    """A client's word within a sentence of ours: bare if it is a plain name, as `shown` quotes it otherwise."""
    return word if _PLAIN_WORD.fullmatch(word) else shown(word)


def wrong_type(path: str, expected: str, value: object) -> InvalidRequest:
    message = f"{path} must be {expected}, got {type_name(value)}"
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        message += f" ({shown(value)})"
    return InvalidRequest(path, message + ".", code="invalid_type")


def missing(path: str, expected: str) -> InvalidRequest:
    return InvalidRequest(path, f"{path} is required: give {expected}.", code="missing_required_parameter")


class Fields:
    """One object of a request, with its path for error messages ("" for the whole body)."""

    __slots__ = ("_prefix", "raw")

    def __init__(self, raw: Mapping[str, Any], path: str = "") -> None:
        self.raw = raw
        self._prefix = path + "." if path else ""

    @classmethod
    def of(cls, value: object, path: str) -> Fields:
        """Raises InvalidRequest unless `value` is an object."""
        if not isinstance(value, dict):
            raise wrong_type(path, "an object", value)
        return cls(value, path)

    def path(self, name: str) -> str:
        return self._prefix + name

    def get(self, name: str) -> Any:
        return self.raw.get(name)

    def string(self, name: str, *, max_chars: int | None = None) -> str | None:
        value = self.raw.get(name)
        if value is None:
            return None
        if not isinstance(value, str):
            raise wrong_type(self.path(name), "a string", value)
        if max_chars is not None and len(value) > max_chars:
            path = self.path(name)
            raise InvalidRequest(path, f"{path} may have {max_chars} characters at most, got {len(value)}.")
        return value

    def required_string(self, name: str, *, max_chars: int | None = None) -> str:
        """A string of at least one character."""
        value = self.string(name, max_chars=max_chars)
        if value is None:
            raise missing(self.path(name), "a string")
        if not value:
            raise InvalidRequest(self.path(name), f"{self.path(name)} must not be empty.")
        return value

    def choice(self, name: str, allowed: tuple[_T, ...]) -> _T | None:
        value = self.string(name)
        if value is None:
            return None
        for option in allowed:
            if value == option:
                return option
        path = self.path(name)
        options = ", ".join(repr(option) for option in allowed)
        raise InvalidRequest(path, f"{path} must be one of {options}, got {shown(value)}.")

    def boolean(self, name: str, default: bool = False) -> bool:
        value = self.raw.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise wrong_type(self.path(name), "a boolean", value)
        return value

    def integer(self, name: str, *, low: int, high: int) -> int | None:
        """A whole number in [low, high]."""
        value = self.raw.get(name)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise wrong_type(self.path(name), "an integer", value)
        self._check_range(name, value, low, high)
        return value

    def number(self, name: str, default: float, *, low: float, high: float) -> float:
        """A finite number in [low, high]."""
        value = self.raw.get(name)
        if value is None:
            return default
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise wrong_type(self.path(name), "a number", value)
        self._check_range(name, value, low, high)
        return float(value)

    def _check_range(self, name: str, value: float, low: float, high: float) -> None:
        if low <= value <= high:
            return
        path = self.path(name)
        if high >= 2**31 - 1:
            wanted = f"at least {low}" if value < low else f"at most {high}"
        else:
            wanted = f"between {low} and {high}"
        raise InvalidRequest(path, f"{path} must be {wanted}, got {shown(value)}.")

    def array(self, name: str) -> list[Any] | None:
        value = self.raw.get(name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise wrong_type(self.path(name), "an array", value)
        return value

    def object(self, name: str) -> Fields | None:
        value = self.raw.get(name)
        return None if value is None else Fields.of(value, self.path(name))

    def integers(self, name: str, *, low: int, high: int, max_items: int) -> tuple[int, ...]:
        return integers(self.array(name) or [], self.path(name), low=low, high=high, max_items=max_items)


def integers(values: list[Any], path: str, *, low: int, high: int, max_items: int) -> tuple[int, ...]:
    """A list of whole numbers in [low, high]. Prompts come this way, so the good case has no Python loop."""
    if len(values) > max_items:
        raise InvalidRequest(path, f"{path} may have {max_items} entries at most, got {len(values)}.")
    if values and (set(map(type, values)) != {int} or min(values) < low or max(values) > high):
        for i, value in enumerate(values):
            if type(value) is not int:
                raise wrong_type(f"{path}[{i}]", "an integer", value)
            if not low <= value <= high:
                message = f"{path}[{i}] must be between {low} and {high}, got {shown(value)}."
                raise InvalidRequest(f"{path}[{i}]", message)
    return tuple(values)
