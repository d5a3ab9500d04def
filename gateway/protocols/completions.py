"""OpenAI Completions (API reference, 2026-11, with vLLM's ignore_eos and min_tokens): raw prompts, plain text.

The text goes out as the model wrote it, with no parser between. One chunk per engine step as soon as it is there, even
when it carries no text that is certain yet: clients that measure count chunks.
"""

from __future__ import annotations

from typing import Any, assert_never

from gateway.errors import InvalidRequest
from gateway.protocols.fields import Fields, integers, missing, wrong_type
from gateway.protocols.frames import Frame, HttpProtocol, Json, TurnLabels, dumps, openai_error_body
from gateway.protocols.handed_on import openai_fields
from gateway.protocols.openai_chat import DONE_FRAME, usage_object
from gateway.protocols.output_format import chat_format
from gateway.protocols.sampling import (
    MAX_LOGPROBS,
    MAX_TOKEN_ID,
    decode_choices,
    decode_include_usage,
    decode_max_tokens,
    decode_sampling,
    decode_stop,
)
from gateway.protocols.unforced import forced_format
from gateway.types import (
    FREE_TEXT,
    CompletionTurn,
    TokenLogprob,
    Turn,
    TurnDone,
    TurnEvent,
    TurnFailed,
    TurnItem,
    TurnStarted,
    TurnText,
    Usage,
)

MAX_PROMPTS = 128
MAX_PROMPT_TOKENS = 2**24
_DEFAULT_MAX_TOKENS = 16

Prompt = str | tuple[int, ...]


def decode_completion(body: Json) -> CompletionTurn:
    """Raises InvalidRequest. Fields that are not listed in docs/protocols.md are accepted and ignored."""
    fields = Fields(body)
    echo = fields.boolean("echo")
    logprobs = fields.integer("logprobs", low=0, high=MAX_LOGPROBS)
    if echo and logprobs is not None:
        raise InvalidRequest("logprobs", "logprobs of an echoed prompt are not computed: send echo or logprobs.")
    n = decode_choices(fields)
    best_of = fields.integer("best_of", low=1, high=128)
    if best_of is not None and best_of != n:
        raise InvalidRequest("best_of", f"best_of must equal n ({n}), got {best_of}: choices are not ranked here.")
    if fields.string("suffix"):
        raise InvalidRequest("suffix", "suffix is not supported: the model continues a prompt, it does not infill.")
    stop = decode_stop(fields)
    max_tokens = decode_max_tokens(fields, "max_tokens", "max_completion_tokens", low=0)
    output, output_field = chat_format(fields)

    return CompletionTurn(
        model=fields.string("model"),
        prompts=_prompts(fields),
        params=decode_sampling(
            fields, max_tokens=_DEFAULT_MAX_TOKENS if max_tokens is None else max_tokens, logprobs=logprobs
        ),
        n=n,
        stop=stop.strings,
        include_stop=stop.include,
        stream=fields.boolean("stream"),
        include_usage=decode_include_usage(fields),
        echo=echo,
        add_special_tokens=fields.boolean("add_special_tokens", True),
        skip_special_tokens=fields.boolean("skip_special_tokens", True),
        cache_salt=fields.string("cache_salt", max_chars=256) or "",
        warnings=() if output == FREE_TEXT else (forced_format(output_field),),
        output=output,
        output_field=output_field,
        handed_on=openai_fields(body),
    )


def _prompts(fields: Fields) -> tuple[Prompt, ...]:
    """One string, one list of token ids, or a list of either."""
    value = fields.get("prompt")
    path = fields.path("prompt")
    expected = "a string, an array of token ids, or an array of strings or of arrays of token ids"
    if value is None:
        raise missing(path, expected)
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list):
        raise wrong_type(path, expected, value)
    if not value:
        raise InvalidRequest(path, f"{path} must not be an empty array.", code="empty_array")
    if type(value[0]) is int:
        return (integers(value, path, low=0, high=MAX_TOKEN_ID, max_items=MAX_PROMPT_TOKENS),)
    if len(value) > MAX_PROMPTS:
        raise InvalidRequest(path, f"{path} may have {MAX_PROMPTS} prompts at most, got {len(value)}.")
    return tuple(_one_prompt(prompt, f"{path}[{i}]") for i, prompt in enumerate(value))


def _one_prompt(value: object, path: str) -> Prompt:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return integers(value, path, low=0, high=MAX_TOKEN_ID, max_items=MAX_PROMPT_TOKENS)
    raise wrong_type(path, "a string or an array of token ids", value)


class _Logprobs:
    """The legacy log-probability object of one choice; text_offset counts characters over the whole choice."""

    def __init__(self) -> None:
        self._offset = 0

    def take(self, entries: tuple[TokenLogprob, ...] | list[TokenLogprob]) -> dict[str, Any]:
        offsets: list[int] = []
        for entry in entries:
            offsets.append(self._offset)
            self._offset += entry.num_chars
        return {
            "tokens": [entry.token for entry in entries],
            "token_logprobs": [entry.logprob for entry in entries],
            "top_logprobs": [dict(entry.top) or None for entry in entries],
            "text_offset": offsets,
        }


class CompletionsEncoder:
    """Chunks of one turn. The constant parts of each are laid down as bytes once."""

    def __init__(self, labels: TurnLabels, turn: Turn) -> None:
        assert isinstance(turn, CompletionTurn)
        head = {"id": labels.turn_id, "object": "text_completion", "created": labels.created_s}
        self._head = dumps({**head, "model": labels.model})[:-1]
        self._include_usage = turn.include_usage
        self._tail = b'}],"usage":null}' if turn.include_usage else b"}]}"
        self._logprobs = [_Logprobs() for _ in range(len(turn.prompts) * turn.n)]

    def encode(self, item: TurnItem) -> list[Frame]:
        match item:
            case TurnText():
                return [self._chunk(item)]
            case TurnStarted():
                return []
            case TurnDone(usage=usage):
                return [self._usage_chunk(usage), DONE_FRAME] if self._include_usage else [DONE_FRAME]
            case TurnFailed(error=error):
                return [Frame(dumps({"error": error.body()}))]
            case TurnEvent():
                raise AssertionError("completions are not parsed")
            case _:
                assert_never(item)

    def _chunk(self, item: TurnText) -> Frame:
        logprobs = b"null"
        if item.logprobs:
            logprobs = dumps(self._logprobs[item.choice].take(item.logprobs))
        return Frame(
            b'%b,"choices":[{"index":%d,"text":%b,"logprobs":%b,"finish_reason":%b%b'
            % (self._head, item.choice, dumps(item.text), logprobs, dumps(item.finish_reason), self._tail)
        )

    def _usage_chunk(self, usage: Usage) -> Frame:
        return Frame(self._head + b',"choices":[],"usage":' + dumps(usage_object(usage)) + b"}")


class CompletionsCollector:
    """The body of a response that is not streamed. Add every item of a turn that did not fail, then take the body."""

    def __init__(self, labels: TurnLabels, turn: Turn) -> None:
        assert isinstance(turn, CompletionTurn)
        self._labels = labels
        num_choices = len(turn.prompts) * turn.n
        self._texts: list[list[str]] = [[] for _ in range(num_choices)]
        self._reasons: list[str | None] = [None] * num_choices
        self._logprobs: list[list[TokenLogprob]] | None = None
        if turn.params.logprobs is not None:
            self._logprobs = [[] for _ in range(num_choices)]
        self._usage = Usage(0, 0)

    def add(self, item: TurnItem) -> None:
        match item:
            case TurnText(choice=choice):
                self._texts[choice].append(item.text)
                self._reasons[choice] = item.finish_reason
                if self._logprobs is not None:
                    self._logprobs[choice].extend(item.logprobs)
            case TurnDone(usage=usage):
                self._usage = usage
            case TurnStarted() | TurnEvent() | TurnFailed():
                pass
            case _:
                assert_never(item)

    def body(self) -> bytes:
        return dumps(
            {
                "id": self._labels.turn_id,
                "object": "text_completion",
                "created": self._labels.created_s,
                "model": self._labels.model,
                "choices": [self._choice(i) for i in range(len(self._texts))],
                "usage": usage_object(self._usage),
            }
        )

    def _choice(self, choice: int) -> dict[str, Any]:
        logprobs = None if self._logprobs is None else _Logprobs().take(self._logprobs[choice])
        text = "".join(self._texts[choice])
        return {"index": choice, "text": text, "logprobs": logprobs, "finish_reason": self._reasons[choice]}


COMPLETIONS = HttpProtocol(
    name="completions",
    path="/v1/completions",
    id_prefix="cmpl-",
    decode=decode_completion,
    encoder=CompletionsEncoder,
    collector=CompletionsCollector,
    error_body=openai_error_body,
    param_names={"messages": "prompt", "prompt_token_ids": "prompt"},
)
