"""The closed list of reason codes with which a call says how it was repaired or why it is not valid.

A code is stable: it is part of the public contract (``ToolCallEnd.reason``), is never renamed, and means one thing.
Several reasons of one call are joined by commas, in the order in which they came up. ``docs/repair.md`` shows each with
its text before and after.
"""

from typing import Final

# Repairs of the JSON text itself.
BRACES: Final = "braces"  # parentheses around an object
QUOTES: Final = "quotes"  # single, smart, escaped or triple quotes as string delimiters
UNQUOTED_KEY: Final = "unquoted_key"
UNQUOTED_STRING: Final = "unquoted_string"
INNER_QUOTE: Final = "inner_quote"  # an unescaped quote inside a string
PYTHON_LITERAL: Final = "python_literal"  # True, False, None, undefined, tuples, prefixes, adjacent strings
NUMBER: Final = "number"  # +1, .5, 01, 1_000, 0x1f
NOT_A_NUMBER: Final = "not_a_number"  # NaN and infinities, which JSON cannot hold
EXTRA_COMMA: Final = "extra_comma"
MISSING_COMMA: Final = "missing_comma"
COLON: Final = "colon"  # a missing or foreign separator of key and value
MISSING_VALUE: Final = "missing_value"
COMMENT: Final = "comment"
CONTROL_CHARACTER: Final = "control_character"  # a raw newline or control character inside a string
ESCAPE: Final = "escape"  # a backslash sequence that JSON does not know
SURROGATE: Final = "surrogate"  # half a surrogate pair
CODE_FENCE: Final = "code_fence"
DOUBLE_ENCODED: Final = "double_encoded"  # the object came as a JSON string
EMPTY_ARGUMENTS: Final = "empty_arguments"  # null, "" or nothing for an object
STRAY_TEXT: Final = "stray_text"  # text where JSON can have none, dropped
EXTRA_CLOSER: Final = "extra_closer"
MISSING_CLOSER: Final = "missing_closer"
UNCLOSED_STRING: Final = "unclosed_string"

# Repairs of the call around its arguments.
UNCLOSED_CALL: Final = "unclosed_call"
UNCLOSED_VALUE: Final = "unclosed_value"
DUPLICATE_KEY: Final = "duplicate_key"
ALIAS_KEY: Final = "alias_key"
NAME_FROM_ARGUMENTS: Final = "name_from_arguments"
WRAPPED_ARGUMENTS: Final = "wrapped_arguments"
MARKER_IN_STRING: Final = "marker_in_string"
RESENT_ARGUMENTS: Final = "resent_arguments"  # an upstream sent arguments once more, or all so far each time
OBJECT_ARGUMENTS: Final = "object_arguments"  # an upstream sent arguments as an object, not as text

# Repairs after the last byte, and what no repair could help.
COERCED_TYPE: Final = "coerced_type"
NOT_JSON: Final = "not_json"
NOT_OBJECT: Final = "not_object"
TOO_DEEP: Final = "too_deep"
SCHEMA_TYPE: Final = "schema_type"
SCHEMA_REQUIRED: Final = "schema_required"
SCHEMA_ENUM: Final = "schema_enum"
SCHEMA_EXTRA: Final = "schema_extra"  # a member that the schema forbids
SCHEMA_RANGE: Final = "schema_range"  # a bound of a number, length or count
SCHEMA_PATTERN: Final = "schema_pattern"
SCHEMA_FORM: Final = "schema_form"  # none (or too many) of the schema's alternatives
CUT: Final = "cut"  # the length limit or a cancel came first

REASONS: Final = frozenset(value for name, value in globals().items() if name.isupper() and isinstance(value, str))
