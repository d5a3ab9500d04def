"""Fields of a request that an engine behind an upstream gets as the client gave them, as Chat Completions spells them.

A list of what may pass, not of what may not: servers have fields of their own for their operators (where KV comes from,
which code picks tokens), and clients must not reach those. What only some servers know is handed on only where a client
of Chat Completions or Completions wrote it itself. Sources: OpenAI's API reference and the documentations of vLLM,
SGLang, llama.cpp, Ollama, DeepSeek and OpenRouter, 2026-11.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.protocols.frames import Json

_SAMPLING = frozenset(
    (
        "temperature", "top_p", "top_k", "min_p", "typical_p", "presence_penalty", "frequency_penalty",
        "repetition_penalty", "repeat_penalty", "logit_bias", "seed", "min_tokens", "ignore_eos", "stop_token_ids",
        "include_stop_str_in_output", "skip_special_tokens", "bad_words", "cache_salt",
    )
)  # fmt: skip
_FORMAT = frozenset(
    (
        "response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar",
        "json_schema", "regex", "ebnf", "grammar", "verbosity", "prediction",
    )
)  # fmt: skip
_REASONING = frozenset(
    (
        "reasoning_effort", "reasoning", "thinking", "enable_thinking", "thinking_budget", "include_reasoning",
        "separate_reasoning", "chat_template_kwargs",
    )
)  # fmt: skip
_ACCOUNT = frozenset(
    (
        "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "service_tier", "metadata", "store",
        "provider", "transforms", "web_search_options", "cache_prompt",
    )
)  # fmt: skip
_LENGTH = frozenset(("max_tokens", "max_completion_tokens"))
OPENAI_FIELDS = _SAMPLING | _FORMAT | _REASONING | _ACCOUNT | _LENGTH


def openai_fields(body: Json) -> dict[str, Any]:
    return _given(body, OPENAI_FIELDS)


def messages_fields(body: Json) -> dict[str, Any]:
    """Of Anthropic's Messages. Its effort and its thinking are in the turn's template_kwargs."""
    handed_on = _given(body, _SAMPLING)
    config = body.get("output_config") or {}
    wanted = _format(config.get("format") or body.get("output_format"))
    return handed_on | ({"response_format": wanted} if wanted else {})


def responses_fields(body: Json) -> dict[str, Any]:
    """Of OpenAI's Responses. Its reasoning effort is in the turn's template_kwargs."""
    handed_on = _given(body, _SAMPLING | {"user"})
    text = body.get("text") or {}
    wanted = _format(text.get("format"))
    if wanted:
        handed_on["response_format"] = wanted
    if text.get("verbosity") is not None:
        handed_on["verbosity"] = text["verbosity"]
    return handed_on


def _given(body: Json, names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name in names and value is not None}


def _format(value: object) -> Mapping[str, Any] | None:
    """The other protocols put a schema beside its type, Chat Completions one level down and never without a name."""
    if not isinstance(value, dict) or value.get("type") in (None, "text"):
        return None
    if value["type"] != "json_schema":
        return value
    schema = {name: field for name, field in value.items() if name != "type" and field is not None}
    return {"type": "json_schema", "json_schema": {"name": "answer", **schema}}
