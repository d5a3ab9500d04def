"""What a request demands of its output, as values: which calls, which form of answer, which bounds.

Knows nothing of wire formats: a named tool is `required` with that tool alone, and a list of allowed tools is that
subset of the declared ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

JsonSchemaValue: TypeAlias = Mapping[str, Any] | bool
CallMode: TypeAlias = Literal["auto", "none", "required"]


@dataclass(frozen=True, slots=True)
class Tool:
    """parameters: JSON schema of the arguments' object; {} allows any object.

    strict: in mode "auto", calls of this tool are constrained too, and its objects take no undeclared members.
    place: where the request has it, "" for its number in the policy.
    """

    name: str
    parameters: JsonSchemaValue
    strict: bool = False
    place: str = ""


@dataclass(frozen=True, slots=True)
class CallPolicy:
    """auto: calls where the model wants them. none: no call can begin. required: at least one, before anything else.

    parallel: False ends the answer behind its first call.
    """

    mode: CallMode = "auto"
    tools: tuple[Tool, ...] = ()
    parallel: bool = True


@dataclass(frozen=True, slots=True)
class FreeText:
    """No demand."""


@dataclass(frozen=True, slots=True)
class JsonObject:
    """Any JSON object, within the bounds."""


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """JSON text valid under `schema` (draft 2020-12; docs/structured-outputs.md says which keywords)."""

    schema: JsonSchemaValue


@dataclass(frozen=True, slots=True)
class Regex:
    """The whole answer matches `pattern` (Rust's regex syntax: no look-around, no back-references)."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Choice:
    """The answer is one of `options`, word for word."""

    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TextGrammar:
    """The answer derives from `start`: Lark as llguidance reads it, or GBNF, told apart by their definition signs."""

    text: str


OutputFormat: TypeAlias = FreeText | JsonObject | JsonSchema | Regex | Choice | TextGrammar
FREE_TEXT = FreeText()


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far values may run where their schema says nothing. Small models write numbers and strings without end.

    A schema's own `maxLength`, `maxItems` and the like win; a `minLength` above a bound raises it.
    """

    integer_digits: int = 15  # what a double holds exactly
    fraction_digits: int = 9
    exponent_digits: int = 2
    string_chars: int = 32_768  # a larger file as an argument needs a larger bound
    key_chars: int = 128
    array_items: int = 256
    extra_members: int = 64  # of an object, beyond its declared properties
    free_depth: int = 4  # containers within each other where any value is allowed
    recursion_depth: int = 6  # of a $ref within itself
    calls: int = 32  # in one answer
    compact_json: bool = False  # True: no blanks at all; False: ", " and ": " as models write them


DEFAULT_BOUNDS = Bounds()
