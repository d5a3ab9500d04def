"""What is read of an upstream's chunks beside the answer itself: usage, log-probabilities, which choice, what ended it.

The answer is the normalizer's (stream_parser.upstream). Whatever is not understood is not there: nothing raises. Pure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from gateway.pieces import TextPiece, UsageReport
from gateway.types import TokenLogprob

Chunk = Mapping[str, Any]

# Where servers put the string that ended the answer: vLLM, SGLang.
_STOP_FIELDS = ("stop_reason", "matched_stop")


def decode_event(data: str) -> list[Chunk]:
    """The chunks of one event: one, or one a line from servers that put no empty line between their events."""
    whole = decode_chunk(data)
    if whole is not None:
        return [whole]
    lines = data.split("\n") if "\n" in data else []
    return [chunk for line in lines if (chunk := decode_chunk(line)) is not None]


def decode_chunk(data: str) -> Chunk | None:
    """None for what is no JSON object."""
    try:
        chunk = orjson.loads(data)
    except orjson.JSONDecodeError:
        # Half of a surrogate pair, NaN: Python's own decoder takes more.
        try:
            chunk = json.loads(data)
        except (ValueError, RecursionError):
            return None
    return chunk if isinstance(chunk, dict) else None


def split_choices(chunk: Chunk) -> Iterator[tuple[int, Chunk, Chunk]]:
    """For each choice in the chunk: its number, a chunk with that choice alone, and the choice."""
    choices = chunk.get("choices")
    if isinstance(choices, dict):
        choices = [choices]
    if not isinstance(choices, list):
        # A format of its own, with its fields at the top: the normalizer knows some.
        yield 0, chunk, chunk
        return
    entries = [choice for choice in choices if isinstance(choice, dict)]
    for entry in entries:
        alone = chunk if len(entries) == 1 else {**chunk, "choices": [entry]}
        yield _number(entry.get("index")) or 0, alone, entry


def num_tokens(choice: Chunk, logprobs: tuple[TokenLogprob, ...]) -> int:
    """About: servers send a token or a few a chunk, and do not say how many."""
    if logprobs:
        return len(logprobs)
    delta = choice.get("delta")
    fields = delta if isinstance(delta, dict) else choice
    return 1 if any(value for name, value in fields.items() if name not in _NO_TEXT) else 0


_NO_TEXT = ("role", "index", "finish_reason", "logprobs", *_STOP_FIELDS)


def stop_string(choice: Chunk) -> str | None:
    for name in _STOP_FIELDS:
        value = choice.get(name)
        if isinstance(value, str) and value:
            return value
    return None


def logprobs_of(choice: Chunk) -> tuple[TokenLogprob, ...]:
    """Chat's list of tokens with their alternatives."""
    holder = choice.get("logprobs")
    content = holder.get("content") if isinstance(holder, dict) else None
    entries = content if isinstance(content, list) else []
    return tuple(_logprob(entry) for entry in entries if isinstance(entry, dict))


def _logprob(entry: Chunk) -> TokenLogprob:
    token = _text(entry.get("token"))
    tops = entry.get("top_logprobs")
    pairs = [(_text(top.get("token")), _real(top.get("logprob"))) for top in tops or () if isinstance(top, dict)]
    return TokenLogprob(token, _real(entry.get("logprob")), tuple(pairs), len(token))


def completion_piece(number: int, choice: Chunk) -> TextPiece:
    """A piece of raw text. finish_reason is left to whoever knows when the stream is over."""
    logprobs = _completion_logprobs(choice.get("logprobs"))
    text = _text(choice.get("text"))
    return TextPiece(number, text, (), len(logprobs) or int(bool(text)), logprobs)


def _completion_logprobs(holder: object) -> tuple[TokenLogprob, ...]:
    """The legacy form: parallel lists."""
    if not isinstance(holder, dict) or not isinstance(holder.get("tokens"), list):
        return ()
    tokens = [_text(token) for token in holder["tokens"]]
    values = _padded(holder.get("token_logprobs"), len(tokens))
    tops = _padded(holder.get("top_logprobs"), len(tokens))
    return tuple(
        TokenLogprob(token, _real(value), _legacy_top(top), len(token))
        for token, value, top in zip(tokens, values, tops, strict=True)
    )


def _padded(values: object, length: int) -> list[Any]:
    found = values[:length] if isinstance(values, list) else []
    return [*found, *[None] * (length - len(found))]


def _legacy_top(top: object) -> tuple[tuple[str, float], ...]:
    return tuple((_text(token), _real(value)) for token, value in top.items()) if isinstance(top, dict) else ()


def usage_report(chunk: Chunk) -> UsageReport | None:
    """OpenAI's names first, then DeepSeek's, Moonshot's and Anthropic's."""
    usage = chunk.get("usage")
    if not isinstance(usage, dict):
        return None
    prompt = _first(usage, "prompt_tokens", "input_tokens")
    completion = _first(usage, "completion_tokens", "output_tokens")
    if prompt is None and completion is None:
        return None
    prompt_details = usage.get("prompt_tokens_details")
    details = usage.get("completion_tokens_details")
    cached = _first(prompt_details, "cached_tokens") if isinstance(prompt_details, dict) else None
    if cached is None:
        cached = _first(usage, "prompt_cache_hit_tokens", "cached_tokens", "cache_read_input_tokens")
    reasoning = _first(details, "reasoning_tokens") if isinstance(details, dict) else None
    return UsageReport(prompt or 0, completion or 0, cached or 0, reasoning)


def _first(fields: Mapping[str, Any], *names: str) -> int | None:
    return next((number for name in names if (number := _number(fields.get(name))) is not None), None)


def _number(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return max(int(value), 0)


def _real(value: object) -> float:
    """A log-probability. Servers that cannot say one as JSON send what stands for "almost impossible"."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if is_number else -9999.0  # type: ignore[arg-type]


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
