"""/v1/responses/compact and compaction items: a conversation made shorter, for the client to carry.

No model is asked. Reasoning goes, and long texts of tools keep their beginning and end; what people and the model said
stays word for word, and the latest items stay as they are. The items travel inside one `compaction` item.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gateway.protocols.frames import TurnLabels, dumps
from gateway.protocols.responses_encoder import usage_object
from gateway.protocols.responses_items import Item, item_type
from gateway.protocols.responses_opaque import Unsealer, seal
from gateway.types import Usage

_NUM_KEPT_WHOLE = 6
_MAX_CHARS = 1_600
_HEAD_CHARS, _TAIL_CHARS = 1_000, 400
_LONG_FIELDS = ("output", "arguments", "input")
_DROPPED = ("reasoning", "compaction_trigger")


def compaction_item(item_id: str, items: Sequence[Item]) -> dict[str, Any]:
    return {"type": "compaction", "id": item_id, "encrypted_content": seal(compacted(items))}


def compaction_body(labels: TurnLabels, items: Sequence[Item]) -> bytes:
    suffix = labels.turn_id.partition("_")[2]
    return dumps(
        {
            "id": labels.turn_id,
            "object": "response.compaction",
            "created_at": labels.created_s,
            "output": [compaction_item(f"cmp_{suffix}00", items)],
            "usage": usage_object(Usage(0, 0)),
        }
    )


def compacted(items: Sequence[Item]) -> list[Item]:
    """The items, shorter. Earlier compactions are opened, so that none is ever inside another."""
    unsealer = Unsealer()
    opened: list[Item] = []
    for item in items:
        inner = unsealer.open(item.get("encrypted_content") or "") if item_type(item) == "compaction" else None
        opened += inner if isinstance(inner, list) else [item]
    kept = [item for item in opened if item_type(item) not in _DROPPED]
    num_cut = max(0, len(kept) - _NUM_KEPT_WHOLE)
    return [*(_shorter(item) for item in kept[:num_cut]), *kept[num_cut:]]


def _shorter(item: Item) -> Item:
    if item_type(item) == "message":
        return item
    cut = {name: _cut(item[name]) for name in _LONG_FIELDS if isinstance(item.get(name), str)}
    if isinstance(item.get("output"), list):
        cut["output"] = [_shorter_part(part) for part in item["output"]]
    return {**item, **cut}


def _shorter_part(part: Any) -> Any:
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return {**part, "text": _cut(part["text"])}
    return part


def _cut(text: str) -> Any:
    if len(text) <= _MAX_CHARS:
        return text
    num_left_out = len(text) - _HEAD_CHARS - _TAIL_CHARS
    return f"{text[:_HEAD_CHARS]}\n[{num_left_out} characters left out]\n{text[-_TAIL_CHARS:]}"
