"""Anthropic Messages (API reference, versions 2023-06-01 and 2026-10-21, read 2026-11): the whole protocol's seam.

Decoding is in anthropic_decode and anthropic_content, the stream's events in anthropic_events; here are the body of an
answer that is not streamed, the list of models, and the row of the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, assert_never

import orjson

from gateway.protocols.anthropic_decode import decode_messages_request
from gateway.protocols.anthropic_events import Ending, MessagesEncoder, Signature, error_body, message_object
from gateway.protocols.cut_json import completed, without_open_member
from gateway.protocols.frames import HttpProtocol, TurnLabels, dumps
from gateway.types import (
    ServedModel,
    Turn,
    TurnDone,
    TurnEvent,
    TurnFailed,
    TurnItem,
    TurnStarted,
    TurnText,
    Usage,
)
from stream_parser.events import ContentDelta, Event, Finish, ReasoningDelta, ToolCallDelta, ToolCallEnd, ToolCallStart

VERSION_HEADER = "anthropic-version"
PING = b'event: ping\ndata: {"type":"ping"}\n\n'


class _TextBlock:
    """A text or thinking block that grows; `kind` is also the name of its text."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._parts: list[str] = []
        self._signature = Signature()

    def add(self, text: str) -> None:
        self._parts.append(text)
        self._signature.add(text)

    def object(self) -> dict[str, Any]:
        block = {"type": self.kind, self.kind: "".join(self._parts)}
        if self.kind == "thinking":
            block["signature"] = self._signature.value()
        return block


class MessagesCollector:
    """The body of a response that is not streamed. Add every item of a turn that did not fail, then take the body."""

    def __init__(self, labels: TurnLabels, turn: Turn) -> None:
        self._labels = labels
        self._ending = Ending()
        self._usage = Usage(0, 0)
        self._blocks: list[_TextBlock | dict[str, Any]] = []
        self._calls: dict[int, dict[str, Any]] = {}

    def add(self, item: TurnItem) -> None:
        match item:
            case TurnEvent(event=Finish() as finish, stop=stop):
                self._ending.note(finish, stop)
            case TurnEvent(event=event):
                self._add_event(event)
            case TurnDone(usage=usage):
                self._usage = usage
            case TurnStarted() | TurnText() | TurnFailed():
                pass
            case _:
                assert_never(item)

    def _add_event(self, event: Event) -> None:
        match event:
            case ContentDelta(text=text):
                self._text_block("text").add(text)
            case ReasoningDelta(text=text):
                self._text_block("thinking").add(text)
            case ToolCallStart(index=index, id=call_id, name=name):
                self._calls[index] = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
                self._blocks.append(self._calls[index])
            case ToolCallEnd(index=index, arguments=arguments):
                self._calls[index]["input"] = tool_input(arguments)
            case ToolCallDelta() | Finish():
                pass
            case _:
                assert_never(event)

    def _text_block(self, kind: str) -> _TextBlock:
        last = self._blocks[-1] if self._blocks else None
        if isinstance(last, _TextBlock) and last.kind == kind:
            return last
        block = _TextBlock(kind)
        self._blocks.append(block)
        return block

    def body(self) -> bytes:
        content = [block.object() if isinstance(block, _TextBlock) else block for block in self._blocks]
        return dumps(message_object(self._labels, content, self._ending, self._usage))


def tool_input(arguments: str) -> dict[str, Any]:
    """The input of a call, which must be an object here. Of one that was cut off, what is there; what is no object at
    all is wrapped under the name that Anthropic's guide to tool streaming gives for it."""
    for text in (arguments or "{}", completed(without_open_member(arguments))):
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError:
            continue
        if isinstance(value, dict):
            return value
    return {"INVALID_JSON": arguments}


def models_body(models: Sequence[ServedModel], created_s: int) -> bytes:
    data = [model_object(model, created_s) for model in models]
    first_id, last_id = (models[0].name, models[-1].name) if models else (None, None)
    return dumps({"data": data, "has_more": False, "first_id": first_id, "last_id": last_id})


def model_object(model: ServedModel, created_s: int) -> dict[str, Any]:
    return {
        "type": "model",
        "id": model.name,
        "display_name": model.name,
        "created_at": datetime.fromtimestamp(created_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lifecycle": "active",
        "max_input_tokens": model.max_model_len,
        "max_tokens": model.max_model_len,
    }


ANTHROPIC_MESSAGES = HttpProtocol(
    name="anthropic_messages",
    path="/v1/messages",
    id_prefix="msg_",
    decode=decode_messages_request,
    encoder=MessagesEncoder,
    collector=MessagesCollector,
    error_body=error_body,
    param_names={},
    keepalive=PING,
    request_id_headers=("request-id", "x-request-id"),
)
