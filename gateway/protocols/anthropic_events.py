"""Turn items to the events of a Messages stream (Messages streaming reference, 2026-11).

Order: message_start; per block content_block_start, its deltas, content_block_stop; message_delta with the stop reason
and the cumulative usage; message_stop. Blocks are numbered 0, 1, 2 … and never overlap: what comes while a call is
open waits for the call's end. A call's first input_json_delta is empty; a thinking block's last delta is its
signature. A turn that fails or is cancelled ends with an `error` event instead, which may come at any place.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any, assert_never

from gateway.errors import GatewayError
from gateway.protocols.frames import Frame, TurnLabels, dumps
from gateway.types import Turn, TurnDone, TurnEvent, TurnFailed, TurnItem, TurnStarted, TurnText, Usage
from stream_parser.events import ContentDelta, Event, Finish, ReasoningDelta, ToolCallDelta, ToolCallEnd, ToolCallStart

MESSAGE_STOP = Frame(b'{"type":"message_stop"}', "message_stop")
CUT_SHORT = {"type": "api_error", "message": "This turn was ended before the model was done."}

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
# Anthropic's types by status; others are the server's fault.
_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class Ending:
    """Why a message ended, learnt on the way. A turn without any output (max_tokens 0) ends by its limit."""

    def __init__(self) -> None:
        self.is_cut_short = False
        self.stop_reason = "max_tokens"
        self.stop_sequence: str | None = None

    def note(self, finish: Finish, stop: str | None) -> None:
        self.is_cut_short = finish.reason not in _STOP_REASONS
        self.stop_reason = _STOP_REASONS.get(finish.reason, "end_turn")
        # Whole calls are there to be run, also when a stop string came after them.
        if stop is not None and finish.reason == "stop":
            self.stop_reason, self.stop_sequence = "stop_sequence", stop


class Signature:
    """Of a thinking block: opaque to clients, the same for the same text, and not checked when it comes back."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, text: str) -> None:
        self._hash.update(text.encode())

    def value(self) -> str:
        return "hr1." + base64.urlsafe_b64encode(self._hash.digest()).decode().rstrip("=")


def message_object(labels: TurnLabels, content: list[Any], ending: Ending | None, usage: Usage) -> dict[str, Any]:
    return {
        "id": labels.turn_id,
        "type": "message",
        "role": "assistant",
        "model": labels.model,
        "content": content,
        "stop_reason": None if ending is None else ending.stop_reason,
        "stop_sequence": None if ending is None else ending.stop_sequence,
        "usage": usage_object(usage),
    }


def usage_object(usage: Usage) -> dict[str, Any]:
    """Anthropic counts cached tokens beside input_tokens, not within."""
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
    }


def error_object(error: GatewayError) -> dict[str, Any]:
    return {"type": _ERROR_TYPES.get(error.status, "api_error"), "message": error.message}


def error_body(error: GatewayError, request_id: str) -> bytes:
    return _error(error_object(error), request_id)


def _error(inner: dict[str, Any], request_id: str) -> bytes:
    return dumps({"type": "error", "error": inner, "request_id": request_id})


class MessagesEncoder:
    """The events of one turn. `_open` is the kind of the open block, `_index` its number or that of the last one."""

    def __init__(self, labels: TurnLabels, turn: Turn) -> None:
        self._labels = labels
        self._is_started = False
        self._ending = Ending()
        self._index = -1
        self._open: type[ContentDelta | ReasoningDelta | ToolCallStart] | None = None
        self._open_call = -1
        self._signature = Signature()
        self._waiting: list[Event] = []

    def encode(self, item: TurnItem) -> list[Frame]:
        match item:
            case TurnEvent(event=Finish() as finish, stop=stop):
                self._ending.note(finish, stop)
                return self._close()
            case TurnEvent(event=event):
                return self._encode_event(event)
            case TurnStarted(num_prompt_tokens=num_tokens):
                self._is_started = True
                message = message_object(self._labels, [], None, Usage(num_tokens, 0))
                return [Frame(dumps({"type": "message_start", "message": message}), "message_start")]
            case TurnDone() if self._ending.is_cut_short or not self._is_started:
                return [Frame(_error(CUT_SHORT, self._labels.request_id), "error")]
            case TurnDone(usage=usage):
                return [self._message_delta(usage), MESSAGE_STOP]
            case TurnFailed(error=error):
                return [Frame(error_body(error, self._labels.request_id), "error")]
            case TurnText():
                raise AssertionError("chat turns are parsed")
            case _:
                assert_never(item)

    def _message_delta(self, usage: Usage) -> Frame:
        delta = {"stop_reason": self._ending.stop_reason, "stop_sequence": self._ending.stop_sequence}
        data = {"type": "message_delta", "delta": delta, "usage": usage_object(usage)}
        return Frame(dumps(data), "message_delta")

    def _encode_event(self, event: Event) -> list[Frame]:
        if self._open is ToolCallStart and not self._is_of_open_call(event):
            self._waiting.append(event)
            return []
        match event:
            case ContentDelta(text=text):
                opening = self._text_block(ContentDelta, {"type": "text", "text": ""})
                return [*opening, self._delta(b'"text_delta","text":', text)]
            case ReasoningDelta(text=text):
                opening = self._text_block(ReasoningDelta, {"type": "thinking", "thinking": "", "signature": ""})
                self._signature.add(text)
                return [*opening, self._delta(b'"thinking_delta","thinking":', text)]
            case ToolCallStart(index=index, id=call_id, name=name):
                self._open_call = index
                block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
                return [*self._start(ToolCallStart, block), self._json_delta("")]
            case ToolCallDelta(arguments=arguments):
                return [self._json_delta(arguments)] if arguments else []
            case ToolCallEnd():
                return [*self._close(), *self._release()]
            case Finish():
                raise AssertionError("encode() takes the Finish")
            case _:
                assert_never(event)

    def _is_of_open_call(self, event: Event) -> bool:
        return isinstance(event, (ToolCallDelta, ToolCallEnd)) and event.index == self._open_call

    def _release(self) -> list[Frame]:
        """What waited for the end of the call; a second call among it makes the rest wait again."""
        waiting, self._waiting = self._waiting, []
        return [frame for event in waiting for frame in self._encode_event(event)]

    def _text_block(self, kind: type[ContentDelta | ReasoningDelta], block: dict[str, Any]) -> list[Frame]:
        return [] if self._open is kind else self._start(kind, block)

    def _start(self, kind: type[ContentDelta | ReasoningDelta | ToolCallStart], block: dict[str, Any]) -> list[Frame]:
        frames = self._close()
        self._index += 1
        self._open = kind
        data = {"type": "content_block_start", "index": self._index, "content_block": block}
        return [*frames, Frame(dumps(data), "content_block_start")]

    def _close(self) -> list[Frame]:
        if self._open is None:
            return []
        frames = []
        if self._open is ReasoningDelta:
            frames.append(self._delta(b'"signature_delta","signature":', self._signature.value()))
            self._signature = Signature()
        self._open = None
        data = b'{"type":"content_block_stop","index":%d}' % self._index
        return [*frames, Frame(data, "content_block_stop")]

    def _json_delta(self, text: str) -> Frame:
        return self._delta(b'"input_json_delta","partial_json":', text)

    def _delta(self, head: bytes, text: str) -> Frame:
        data = b'{"type":"content_block_delta","index":%d,"delta":{"type":%b%b}}' % (self._index, head, dumps(text))
        return Frame(data, "content_block_delta")
