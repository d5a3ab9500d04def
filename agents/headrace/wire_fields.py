"""Fields that both wire formats share, read out of parsed JSON; knows nothing of frames, chunks or sockets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, cast

from headrace.errors import ProtocolError
from headrace.events import FINISH_REASONS, FinishReason, Usage

Fields: TypeAlias = Mapping[str, object]


def finish_reason(value: object) -> FinishReason:
    if not isinstance(value, str) or value not in FINISH_REASONS:
        raise ProtocolError(f"unknown finish_reason {value!r}")
    return cast(FinishReason, value)


def usage(value: object) -> Usage | None:
    """Token counts off the wire; a count that is missing is 0."""
    if not isinstance(value, Mapping):
        return None
    prompt, completion = _count(value, "prompt_tokens"), _count(value, "completion_tokens")
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=_count(value, "total_tokens") or prompt + completion,
        cached_tokens=_count(value.get("prompt_tokens_details"), "cached_tokens"),
        reasoning_tokens=_count(value.get("completion_tokens_details"), "reasoning_tokens"),
    )


def _count(fields: object, name: str) -> int:
    value = fields.get(name) if isinstance(fields, Mapping) else None
    return value if isinstance(value, int) else 0


def text_field(fields: Fields, name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise ProtocolError(f"{fields.get('type', 'answer')}: {name} is no string")
    return value


def int_field(fields: Fields, name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int):
        raise ProtocolError(f"{fields.get('type', 'answer')}: {name} is no integer")
    return value
