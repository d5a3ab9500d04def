"""The output items of a response while they grow: which events each gives, and what it is in the end.

An item is opened, gets deltas, and is closed once; each step returns events that have no sequence number yet. Between
`output_item.added` and `output_item.done` the events follow the table of OpenAI's streaming reference (2026-11).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from gateway.protocols.frames import dumps
from gateway.protocols.openai_chat import logprob_entry
from gateway.protocols.responses_custom import CustomInput
from gateway.protocols.responses_opaque import seal
from gateway.protocols.responses_tools import ToolName
from gateway.types import TokenLogprob

ItemStatus: TypeAlias = Literal["completed", "incomplete"]


class Unnumbered(NamedTuple):
    """An event without its sequence number. fields: JSON members, without braces."""

    kind: str
    fields: bytes


def _event(kind: str, **fields: Any) -> Unnumbered:
    return Unnumbered(kind, dumps(fields)[1:-1])


def item_events(index: int, opened: dict[str, Any], closed: dict[str, Any]) -> list[Unnumbered]:
    """An item that is whole at once."""
    return [
        _event("response.output_item.added", output_index=index, item=opened),
        _event("response.output_item.done", output_index=index, item=closed),
    ]


class _Place:
    """Where an item's events belong. `deltas`: the members before the text, which are the same for each."""

    def __init__(self, item_id: str, index: int, part: dict[str, int]) -> None:
        self.item_id = item_id
        self.index = index
        self._fields = {"item_id": item_id, "output_index": index, **part}
        self._head = dumps(self._fields)[1:-1] + b',"delta":'

    def event(self, kind: str, **fields: Any) -> Unnumbered:
        return _event(kind, **self._fields, **fields)

    def delta(self, kind: str, text: str, rest: bytes = b"") -> Unnumbered:
        return Unnumbered(kind, self._head + dumps(text) + rest)

    def added(self, item: dict[str, Any]) -> Unnumbered:
        return _event("response.output_item.added", output_index=self.index, item=item)

    def done(self, item: dict[str, Any]) -> Unnumbered:
        return _event("response.output_item.done", output_index=self.index, item=item)


class MessageItem:
    def __init__(self, item_id: str, index: int) -> None:
        self._place = _Place(item_id, index, {"content_index": 0})
        self._texts: list[str] = []
        self._logprobs: list[dict[str, Any]] = []

    def open(self) -> list[Unnumbered]:
        return [
            self._place.added(self._item("in_progress", [])),
            self._place.event("response.content_part.added", part=self._part("", [])),
        ]

    def write(self, text: str, logprobs: Sequence[TokenLogprob] = ()) -> list[Unnumbered]:
        self._texts.append(text)
        if not logprobs:
            return [self._place.delta("response.output_text.delta", text, b',"logprobs":[]')]
        entries = [logprob_entry(entry) for entry in logprobs]
        self._logprobs += entries
        return [self._place.delta("response.output_text.delta", text, b',"logprobs":' + dumps(entries))]

    def close(self, status: ItemStatus) -> tuple[list[Unnumbered], dict[str, Any]]:
        text = "".join(self._texts)
        part = self._part(text, self._logprobs)
        item = self._item(status, [part])
        events = [
            self._place.event("response.output_text.done", text=text, logprobs=self._logprobs),
            self._place.event("response.content_part.done", part=part),
            self._place.done(item),
        ]
        return events, item

    @staticmethod
    def _part(text: str, logprobs: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}

    def _item(self, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
        head = {"type": "message", "id": self._place.item_id, "status": status, "role": "assistant"}
        return {**head, "content": content}


class ReasoningItem:
    """As raw text (a content part), or as one summary part when the client asked for a summary."""

    def __init__(self, item_id: str, index: int, *, summarises: bool, seals: bool) -> None:
        self._part_type = "summary_text" if summarises else "reasoning_text"
        self._text_event = "response.reasoning_summary_text" if summarises else "response.reasoning_text"
        self._part_event = "response.reasoning_summary_part" if summarises else "response.content_part"
        self._place = _Place(item_id, index, {"summary_index" if summarises else "content_index": 0})
        self._summarises = summarises
        self._seals = seals
        self._texts: list[str] = []

    def open(self) -> list[Unnumbered]:
        part = {"type": self._part_type, "text": ""}
        return [
            self._place.added(self._item("in_progress", [])),
            self._place.event(f"{self._part_event}.added", part=part),
        ]

    def write(self, text: str) -> list[Unnumbered]:
        self._texts.append(text)
        return [self._place.delta(f"{self._text_event}.delta", text)]

    def close(self, status: ItemStatus) -> tuple[list[Unnumbered], dict[str, Any]]:
        text = "".join(self._texts)
        part = {"type": self._part_type, "text": text}
        item = self._item(status, [part])
        if self._seals:
            item["encrypted_content"] = seal(text)
        events = [
            self._place.event(f"{self._text_event}.done", text=text),
            self._place.event(f"{self._part_event}.done", part=part),
            self._place.done(item),
        ]
        return events, item

    def _item(self, status: str, parts: list[dict[str, str]]) -> dict[str, Any]:
        head: dict[str, Any] = {"type": "reasoning", "id": self._place.item_id}
        if self._summarises:
            return {**head, "summary": parts, "status": status}
        return {**head, "summary": [], "content": parts, "status": status}


class FunctionCallItem:
    def __init__(self, item_id: str, index: int, call_id: str, name: ToolName) -> None:
        self._place = _Place(item_id, index, {})
        self._call_id = call_id
        self._name = name

    def open(self) -> list[Unnumbered]:
        return [self._place.added(self._item("in_progress", ""))]

    def write(self, arguments: str) -> list[Unnumbered]:
        return [self._place.delta("response.function_call_arguments.delta", arguments)]

    def close(self, arguments: str, status: ItemStatus) -> tuple[list[Unnumbered], dict[str, Any]]:
        item = self._item(status, arguments)
        name = self._name.name
        events = [
            self._place.event("response.function_call_arguments.done", name=name, arguments=arguments),
            self._place.done(item),
        ]
        return events, item

    def _item(self, status: str, arguments: str) -> dict[str, Any]:
        head = {"type": "function_call", "id": self._place.item_id, "call_id": self._call_id, **_named(self._name)}
        return {**head, "arguments": arguments, "status": status}


class CustomCallItem:
    """The model writes a function's arguments; what goes out is the text in them."""

    def __init__(self, item_id: str, index: int, call_id: str, name: ToolName) -> None:
        self._place = _Place(item_id, index, {})
        self._call_id = call_id
        self._name = name
        self._input = CustomInput()

    def open(self) -> list[Unnumbered]:
        return [self._place.added(self._item("in_progress", ""))]

    def write(self, arguments: str) -> list[Unnumbered]:
        return self._delta(self._input.feed(arguments))

    def close(self, arguments: str, status: ItemStatus) -> tuple[list[Unnumbered], dict[str, Any]]:
        rest = self._delta(self._input.finish(arguments, is_cut=status == "incomplete"))
        text = self._input.text
        item = self._item(status, text)
        done = self._place.event("response.custom_tool_call_input.done", input=text)
        return [*rest, done, self._place.done(item)], item

    def _delta(self, text: str) -> list[Unnumbered]:
        return [self._place.delta("response.custom_tool_call_input.delta", text)] if text else []

    def _item(self, status: str, text: str) -> dict[str, Any]:
        head = {"type": "custom_tool_call", "id": self._place.item_id, "call_id": self._call_id, **_named(self._name)}
        return {**head, "input": text, "status": status}


def _named(name: ToolName) -> dict[str, str]:
    return {"name": name.name} if name.namespace is None else {"name": name.name, "namespace": name.namespace}


OpenItem: TypeAlias = MessageItem | ReasoningItem | FunctionCallItem | CustomCallItem
