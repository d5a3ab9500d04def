"""The order rules of Responses streams, as a checker: what clients rely on, event by event."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

Event = dict[str, Any]

TERMINAL = ("response.completed", "response.incomplete", "response.failed")
_OPENING = ("response.created", "response.queued", "response.in_progress")
# part type -> (its own events, those of its text)
_PARTS = {
    "output_text": ("response.content_part", "response.output_text"),
    "reasoning_text": ("response.content_part", "response.reasoning_text"),
    "summary_text": ("response.reasoning_summary_part", "response.reasoning_summary_text"),
}
_CALLS = {
    "function_call": ("response.function_call_arguments", "arguments"),
    "custom_tool_call": ("response.custom_tool_call_input", "input"),
}
_STATUS = {"response.completed": ("completed",), "response.failed": ("failed",)}
_INCOMPLETE = ("incomplete", "cancelled")


def check_order(events: Sequence[Event]) -> Event:
    """Asserts every rule; returns the response of the terminal event."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    kept = [event for event in events if event["type"] != "keepalive"]
    kinds = [event["type"] for event in kept]
    assert kinds[0] == "response.created"
    assert kinds[-1] in TERMINAL
    assert not set(kinds[:-1]) & set(TERMINAL)

    num_opening = 3 if kinds[1] == "response.queued" else 2
    assert kinds[num_opening - 1] == "response.in_progress"
    assert not set(kinds[num_opening:]) & set(_OPENING)
    response = kept[-1]["response"]
    assert response["status"] in _STATUS.get(kinds[-1], _INCOMPLETE)
    assert len({event["response"]["id"] for event in kept if "response" in event}) == 1

    items = _check_items(kept[num_opening:-1], may_end_open=kinds[-1] == "response.failed")
    assert response["output"] == items
    check_response(response)
    return response


def check_response(response: Event) -> None:
    """What a response has whether it was streamed or not."""
    assert response["object"] == "response"
    for name in ("id", "created_at", "model", "output", "parallel_tool_calls", "tool_choice", "tools", "metadata"):
        assert name in response
    assert (response["status"] == "failed") == (response["error"] is not None)
    assert (response["status"] == "incomplete") == (response["incomplete_details"] is not None)
    if response["status"] in ("completed", "incomplete"):
        usage = response["usage"]
        assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    ids = [item["id"] for item in response["output"]]
    assert len(set(ids)) == len(ids)


def _check_items(events: Iterable[Event], *, may_end_open: bool) -> list[Event]:
    items: list[Event] = []
    within: list[Event] | None = None
    for event in events:
        if event["type"] == "response.output_item.added":
            assert within is None, "an item begins inside another"
            within = [event]
            continue
        assert within is not None, f"{event['type']} outside of an item"
        within.append(event)
        assert event["output_index"] == len(items)
        if event["type"] == "response.output_item.done":
            items.append(_check_item(within))
            within = None
    assert within is None or may_end_open
    return items


def _check_item(events: list[Event]) -> Event:
    opened, inner, closed = events[0]["item"], events[1:-1], events[-1]["item"]
    assert events[0]["output_index"] == events[-1]["output_index"]
    assert (opened["id"], opened["type"]) == (closed["id"], closed["type"])
    assert {event["item_id"] for event in inner} <= {closed["id"]}
    if closed["type"] in _CALLS:
        _check_call(opened, inner, closed)
    elif closed["type"] != "compaction":
        _check_part(opened, inner, closed)
    return closed


def _check_call(opened: Event, inner: list[Event], closed: Event) -> None:
    prefix, field = _CALLS[closed["type"]]
    assert opened[field] == ""
    assert opened["status"] == "in_progress"
    assert (opened["call_id"], opened["name"]) == (closed["call_id"], closed["name"])
    assert inner[-1]["type"] == f"{prefix}.done"
    assert {event["type"] for event in inner[:-1]} <= {f"{prefix}.delta"}
    assert "".join(event["delta"] for event in inner[:-1]) == inner[-1][field] == closed[field]


def _check_part(opened: Event, inner: list[Event], closed: Event) -> None:
    assert opened["status"] == "in_progress"
    assert not opened.get("content")
    assert not opened.get("summary")
    [part] = [*(closed.get("content") or ()), *(closed.get("summary") or ())]
    part_event, text_event = _PARTS[part["type"]]
    kinds = [event["type"] for event in inner]
    assert kinds[0] == f"{part_event}.added"
    assert inner[0]["part"]["text"] == ""
    assert kinds[-2:] == [f"{text_event}.done", f"{part_event}.done"]
    assert set(kinds[1:-2]) <= {f"{text_event}.delta"}
    text = "".join(event["delta"] for event in inner[1:-2])
    assert text == inner[-2]["text"] == inner[-1]["part"]["text"] == part["text"]
