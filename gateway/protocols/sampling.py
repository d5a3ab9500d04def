"""The sampling fields that OpenAI's two completion APIs and the native protocol share, with vLLM's extras.

Ranges are OpenAI's (API reference, 2026-11) where it has the field, vLLM's otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.errors import InvalidRequest
from gateway.protocols.fields import Fields, shown, wrong_type
from gateway.types import SamplingParams

MAX_CHOICES = 128
MAX_LOGPROBS = 20
MAX_STOP_STRINGS = 16
MAX_STOP_CHARS = 256
MAX_TOKEN_ID = 2**31 - 1
MAX_LOGIT_BIASES = 1024
_MAX_TOKENS = 2**31 - 1
_SEED_LOW, _SEED_HIGH = -(2**63), 2**63 - 1
_SMALLEST_TOP_P = 1e-6


@dataclass(frozen=True, slots=True)
class StopRule:
    """Strings that end the text. include: whether the string itself is part of the text (vLLM's extension)."""

    strings: tuple[str, ...]
    include: bool


def decode_sampling(
    fields: Fields, *, max_tokens: int | None, logprobs: int | None, default_temperature: float = 1.0
) -> SamplingParams:
    """Everything but the two fields whose spelling differs from one API to the other: those are arguments."""
    min_tokens = fields.integer("min_tokens", low=0, high=_MAX_TOKENS) or 0
    if max_tokens is not None and min_tokens > max_tokens:
        message = f"min_tokens must not be above max_tokens, got {min_tokens} and {max_tokens}."
        raise InvalidRequest("min_tokens", message)
    top_k = fields.integer("top_k", low=-1, high=_MAX_TOKENS) or 0

    return SamplingParams(
        temperature=fields.number("temperature", default_temperature, low=0, high=2),
        # OpenAI allows 0 here; it means "the likeliest token only".
        top_p=max(fields.number("top_p", 1.0, low=0, high=1), _SMALLEST_TOP_P),
        top_k=max(top_k, 0),
        min_p=fields.number("min_p", 0.0, low=0, high=1),
        presence_penalty=fields.number("presence_penalty", 0.0, low=-2, high=2),
        frequency_penalty=fields.number("frequency_penalty", 0.0, low=-2, high=2),
        repetition_penalty=_repetition_penalty(fields),
        logit_bias=_logit_bias(fields),
        seed=fields.integer("seed", low=_SEED_LOW, high=_SEED_HIGH),
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        stop_token_ids=fields.integers("stop_token_ids", low=0, high=MAX_TOKEN_ID, max_items=128),
        ignore_eos=fields.boolean("ignore_eos"),
        logprobs=logprobs,
    )


def decode_max_tokens(fields: Fields, *names: str, low: int = 1) -> int | None:
    """The first of `names` that is given."""
    for name in names:
        value = fields.integer(name, low=low, high=_MAX_TOKENS)
        if value is not None:
            return value
    return None


# Efforts with a bound of their own; the others think as long as the model likes. Templates are told in any case.
_EFFORT_TOKENS = {"none": 0, "minimal": 512, "low": 2048}


def decode_reasoning_budget(fields: Fields, effort: str | None) -> int | None:
    """How many tokens of reasoning the model may write, from `max_reasoning_tokens` or from the effort."""
    given = fields.integer("max_reasoning_tokens", low=0, high=_MAX_TOKENS)
    return given if given is not None else _EFFORT_TOKENS.get(effort or "")


def decode_stop(fields: Fields, name: str = "stop") -> StopRule:
    value = fields.get(name)
    path = fields.path(name)
    if value is None:
        strings: list[str] = []
    elif isinstance(value, str):
        strings = [value]
    elif isinstance(value, list):
        strings = value
    else:
        raise wrong_type(path, "a string or an array of strings", value)
    if len(strings) > MAX_STOP_STRINGS:
        raise InvalidRequest(path, f"{path} may have {MAX_STOP_STRINGS} entries at most, got {len(strings)}.")

    for i, text in enumerate(strings):
        where = path if isinstance(value, str) else f"{path}[{i}]"
        if not isinstance(text, str):
            raise wrong_type(where, "a string", text)
        if not 1 <= len(text) <= MAX_STOP_CHARS:
            raise InvalidRequest(where, f"{where} must have 1 to {MAX_STOP_CHARS} characters, got {len(text)}.")
    return StopRule(tuple(strings), fields.boolean("include_stop_str_in_output"))


def decode_include_usage(fields: Fields) -> bool:
    options = fields.object("stream_options")
    return options is not None and options.boolean("include_usage")


def decode_choices(fields: Fields) -> int:
    return fields.integer("n", low=1, high=MAX_CHOICES) or 1


def _repetition_penalty(fields: Fields) -> float:
    value = fields.number("repetition_penalty", 1.0, low=0, high=100)
    if value == 0:
        path = fields.path("repetition_penalty")
        raise InvalidRequest(path, f"{path} must be above 0, got 0: 1 leaves the model as it is.")
    return value


def _logit_bias(fields: Fields) -> tuple[tuple[int, float], ...]:
    biases = fields.object("logit_bias")
    if biases is None:
        return ()
    path = fields.path("logit_bias")
    if len(biases.raw) > MAX_LOGIT_BIASES:
        raise InvalidRequest(path, f"{path} may have {MAX_LOGIT_BIASES} entries at most, got {len(biases.raw)}.")
    found: list[tuple[int, float]] = []
    for key in biases.raw:
        # isdecimal alone also takes digits of other scripts.
        if not (key.isascii() and key.isdecimal() and len(key) <= 10 and int(key) <= MAX_TOKEN_ID):
            raise InvalidRequest(path, f"The keys of {path} must be token ids, got {shown(key)}.")
        found.append((int(key), biases.number(key, 0.0, low=-100, high=100)))
    return tuple(found)
