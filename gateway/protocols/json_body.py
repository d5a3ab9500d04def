"""Bytes or text of a request to one JSON object, or a refusal that says what is wrong with it."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.errors import InvalidRequest
from gateway.protocols.fields import type_name

# Deeper than any schema in use; templates and schema compilers walk what they get recursively.
MAX_DEPTH = 128


def parse_object(raw: bytes | str) -> dict[str, Any]:
    """Raises InvalidRequest. Takes no NaN, Infinity, lone surrogates or bytes that are not UTF-8."""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(None, f"The body is not valid JSON: {error}.", code="invalid_json") from None
    if not isinstance(value, dict):
        raise InvalidRequest(None, f"The body must be a JSON object, got {type_name(value)}.", code="invalid_type")
    if _num_opened(raw) > MAX_DEPTH:
        check_depth(value)
    return value


def _num_opened(raw: bytes | str) -> int:
    """At least as many levels as there are: prompts of a million token ids need not be walked through."""
    if isinstance(raw, str):
        return raw.count("{") + raw.count("[")
    return raw.count(b"{") + raw.count(b"[")


def check_depth(value: object) -> None:
    """Raises InvalidRequest for what is nested deeper than MAX_DEPTH."""
    if _is_deeper_than(value, MAX_DEPTH):
        raise InvalidRequest(None, f"The body is nested more than {MAX_DEPTH} levels deep.", code="invalid_json")


def _is_deeper_than(value: object, max_depth: int) -> bool:
    level = [value]
    for _ in range(max_depth):
        below: list[object] = []
        for container in level:
            if isinstance(container, dict):
                below += [item for item in container.values() if isinstance(item, (dict, list))]
            elif isinstance(container, list):
                below += [item for item in container if isinstance(item, (dict, list))]
        if not below:
            return False
        level = below
    return True
