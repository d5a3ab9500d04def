"""The order rules of a Messages answer, streamed and not: what Anthropic's clients break on when it is missing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

USAGE_FIELDS = {"input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens"}
STOP_REASONS = {"end_turn", "max_tokens", "stop_sequence", "tool_use"}
_CUTS_CALLS = ("max_tokens", "stop_sequence")
ERROR_TYPES = {
    "invalid_request_error",
    "authentication_error",
    "permission_error",
    "not_found_error",
    "request_too_large",
    "rate_limit_error",
    "api_error",
    "overloaded_error",
}
_DELTAS = {
    "text": {"text_delta": "text"},
    "thinking": {"thinking_delta": "thinking", "signature_delta": "signature"},
    "tool_use": {"input_json_delta": "partial_json"},
}


def messages_events(text: str) -> Iterator[dict[str, Any]]:
    """The events of a stream; each is one event line and one data line, and the two agree."""
    assert text.endswith("\n\n")
    for block in text.removesuffix("\n\n").split("\n\n"):
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        yield event


def check_messages_stream(text: str) -> dict[str, Any]:
    """The message that the stream adds up to, or the data of its error. Fails where the order is wrong."""
    reader = _StreamReader()
    for event in messages_events(text):
        reader.read(event)
    assert reader.end is not None, "the stream ended without message_stop or an error"
    return reader.end


class _StreamReader:
    def __init__(self) -> None:
        self.end: dict[str, Any] | None = None
        self._message: dict[str, Any] | None = None
        self._json = ""
        self._num_deltas = 0
        self._is_open = False
        self._has_stop_reason = False

    def read(self, event: dict[str, Any]) -> None:
        assert self.end is None, f"{event} came after the end"
        kind = event["type"]
        if kind == "ping":
            assert event == {"type": "ping"}
        elif kind == "error":
            check_error(event)
            self.end = event
        elif kind == "message_start":
            self._start(event["message"])
        else:
            assert self._message is not None, f"{kind} came before message_start"
            getattr(self, f"_{kind}")(event, self._message)

    def _start(self, message: dict[str, Any]) -> None:
        assert self._message is None, "two message_start"
        assert (message["content"], message["stop_reason"], message["stop_sequence"]) == ([], None, None)
        _check_head(message)
        self._message = message

    def _content_block_start(self, event: dict[str, Any], message: dict[str, Any]) -> None:
        assert not self._is_open, "blocks overlap"
        assert not self._has_stop_reason
        assert event["index"] == len(message["content"])
        block = event["content_block"]
        empty = {
            "text": {"text": ""},
            "thinking": {"thinking": "", "signature": ""},
            "tool_use": {"id": block.get("id"), "name": block.get("name"), "input": {}},
        }
        assert block == {"type": block["type"], **empty[block["type"]]}
        message["content"].append(block)
        self._is_open, self._json, self._num_deltas = True, "", 0

    def _content_block_delta(self, event: dict[str, Any], message: dict[str, Any]) -> None:
        assert self._is_open
        assert event["index"] == len(message["content"]) - 1
        block, delta = message["content"][-1], event["delta"]
        field = _DELTAS[block["type"]][delta["type"]]
        assert delta == {"type": delta["type"], field: delta[field]}
        if field == "partial_json":
            assert (delta[field] == "") == (self._num_deltas == 0), "the first piece of a call is empty, and no other"
            self._json += delta[field]
        else:
            assert delta[field], "an empty delta"
            assert not block.get("signature"), "the signature is a thinking block's last delta"
            block[field] += delta[field]
        self._num_deltas += 1

    def _content_block_stop(self, event: dict[str, Any], message: dict[str, Any]) -> None:
        assert self._is_open
        assert event == {"type": "content_block_stop", "index": len(message["content"]) - 1}
        assert self._num_deltas > 0
        block = message["content"][-1]
        if block["type"] == "thinking":
            assert block["signature"]
        if block["type"] == "tool_use":
            block["input"] = self._json
        self._is_open = False

    def _message_delta(self, event: dict[str, Any], message: dict[str, Any]) -> None:
        assert not self._is_open
        assert not self._has_stop_reason, "two message_delta"
        self._has_stop_reason = True
        message |= event["delta"]
        message["usage"] = event["usage"]

    def _message_stop(self, event: dict[str, Any], message: dict[str, Any]) -> None:
        assert self._has_stop_reason, "message_stop came before message_delta"
        for block in message["content"]:
            if block["type"] == "tool_use" and message["stop_reason"] not in _CUTS_CALLS:
                block["input"] = json.loads(block["input"] or "{}")
        check_message(message)
        self.end = message


def check_message(message: dict[str, Any]) -> None:
    """A whole message, as it is answered without a stream."""
    _check_head(message)
    assert message["stop_reason"] in STOP_REASONS
    assert (message["stop_sequence"] is not None) == (message["stop_reason"] == "stop_sequence")
    kinds = [block["type"] for block in message["content"]]
    assert all(before != after or before == "tool_use" for before, after in pairwise(kinds))
    calls = [block for block in message["content"] if block["type"] == "tool_use"]
    assert len({call["id"] for call in calls}) == len(calls)
    if message["stop_reason"] == "tool_use":
        assert calls


def _check_head(message: dict[str, Any]) -> None:
    assert message["type"] == "message"
    assert message["role"] == "assistant"
    assert message["id"].startswith("msg_")
    assert message["model"]
    usage = message["usage"]
    assert usage.keys() >= USAGE_FIELDS
    assert all(usage[field] >= 0 for field in USAGE_FIELDS)


def check_error(body: dict[str, Any]) -> None:
    assert body.keys() == {"type", "error", "request_id"}
    assert body["type"] == "error"
    assert body["error"].keys() == {"type", "message"}
    assert body["error"]["type"] in ERROR_TYPES
    assert body["error"]["message"]
    assert body["request_id"]
