"""Tools that parser tests declare, and short ways to read one answer."""

from __future__ import annotations

import json

from stream_parser.dialect import Dialect
from stream_parser.events import FinishReason, Message
from tests.testkit.parser_streams import comparable, cuts, parse_message, tool

NOTE = tool(
    "put_note",
    text={"type": "string"},
    level={"type": "integer"},
    urgent={"type": "boolean"},
    tags={"type": "array", "items": {"type": "string"}},
    meta={"type": "object", "properties": {"depth": {"type": "integer"}, "items": {"type": "array"}}},
    owner={"anyOf": [{"type": "string"}, {"type": "null"}]},
)
PING = tool("ping", host={"type": "string"})
BARE = tool("bare")
TOOLS = [NOTE, PING, BARE]


def read(dialect: str | Dialect, text: str, reason: FinishReason = "stop", prompt_tail: str = "") -> Message:
    """Parse `text` whole, after making sure that no cut of it gives anything else."""
    whole = parse_message(dialect, text, TOOLS, reason, prompt_tail)
    for pieces in cuts(text, max_pairs=60):
        assert comparable(parse_message(dialect, pieces, TOOLS, reason, prompt_tail)) == comparable(whole), pieces
    return whole


def calls(message: Message) -> list[tuple[str, object]]:
    return [(call.name, json.loads(call.arguments)) for call in message.tool_calls]


def endings(message: Message) -> list[tuple[str, str]]:
    return [(call.outcome, call.reason) for call in message.tool_calls]
