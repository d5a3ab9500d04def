"""Turn items as fixtures spell them: one small JSON object an item."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gateway.errors import EngineDown
from gateway.types import TokenLogprob, TurnDone, TurnEvent, TurnFailed, TurnItem, TurnStarted, TurnText, Usage
from stream_parser.events import (
    ContentDelta,
    Event,
    Finish,
    ReasoningDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)


def turn_items(specs: Iterable[Mapping[str, Any]]) -> list[TurnItem]:
    return [_item(spec) for spec in specs]


def _item(spec: Mapping[str, Any]) -> TurnItem:
    choice = spec.get("choice", 0)
    logprobs = tuple(_logprob(entry) for entry in spec.get("logprobs", ()))
    match spec["item"]:
        case "started":
            return TurnStarted(spec.get("prompt_tokens", 0))
        case "done":
            return TurnDone(Usage(*spec["usage"]))
        case "failed":
            return TurnFailed(EngineDown(spec["message"], retry_after_s=1.0))
        case "text":
            return TurnText(choice, spec["text"], spec.get("finish_reason"), logprobs)
        case _:
            return TurnEvent(choice, _event(spec), logprobs, spec.get("stop"))


def _event(spec: Mapping[str, Any]) -> Event:
    match spec["item"]:
        case "content":
            return ContentDelta(spec["text"])
        case "reasoning":
            return ReasoningDelta(spec["text"])
        case "call":
            return ToolCallStart(spec["index"], spec["id"], spec["name"])
        case "arguments":
            return ToolCallDelta(spec["index"], spec["text"])
        case "call_end":
            return ToolCallEnd(spec["index"], spec["text"], spec.get("outcome", "ok"), spec.get("reason", ""))
        case "finish":
            return Finish(spec["reason"])
        case kind:
            raise ValueError(f"no item {kind!r}")


def _logprob(entry: list[Any]) -> TokenLogprob:
    token, logprob, *top = entry
    return TokenLogprob(token, logprob, tuple((name, value) for name, value in top), len(token))
