"""From a decoded Responses request to a turn, and from a turn's end to what is remembered: for HTTP and WebSocket.

Knows nothing of connections. What a socket remembers for itself comes in as a function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from gateway.errors import GatewayError, InvalidRequest
from gateway.protocols.frames import Frame, TurnLabels
from gateway.protocols.responses_compact import compaction_item
from gateway.protocols.responses_encoder import ResponsesEncoder
from gateway.protocols.responses_items import Item, item_type
from gateway.protocols.responses_request import (
    ID_PREFIX,
    FindItem,
    ResponsesRequest,
    ResponsesTurn,
    build_turn,
    resolve_items,
)
from gateway.responses_store import Context, Finished, ResponseStore, Source, StoredResponse
from gateway.service import Service
from gateway.threads import in_thread_if
from gateway.types import TurnDone, TurnFailed, TurnItem, TurnStarted, Usage

# What the engine and the chat template call fields of the request.
_PARAM_NAMES = {"messages": "input", "max_tokens": "max_output_tokens"}
# One whose model was cut off can be taken up over HTTP; sockets are stricter (OpenAI's WebSocket guide, 2026-11).
_CAN_BE_PARENT = ("completed", "incomplete")
# Of a conversation that goes on by previous_response_id, in bodies of the largest size.
_MAX_CHAIN_BODIES = 4
# Making messages of as many takes some milliseconds.
_INLINE_ITEMS = 1_000
_INLINE_CHAIN_BYTES = 128 * 1024


@dataclass(frozen=True, slots=True)
class OpenResponse:
    """A response about to run, or running. parent: what it continues."""

    owner: str
    labels: TurnLabels
    turn: ResponsesTurn
    parent: Context | None
    encoder: ResponsesEncoder


FindParent = Callable[[str], Context | None]


def open_response(
    service: Service,
    owner: str,
    request: ResponsesRequest,
    find_parent: FindParent | None = None,
    first_number: int = 0,
) -> OpenResponse:
    """Raises InvalidRequest, NotFound. `find_parent` is asked before the store; first_number: of the first event."""
    return _Opening(service, owner, request, find_parent).open(first_number)


async def open_response_aside(service: Service, owner: str, request: ResponsesRequest) -> OpenResponse:
    """The same; what is long is read beside the event loop."""
    opening = _Opening(service, owner, request, None)
    return await in_thread_if(opening.is_long, opening.open)


class _Opening:
    """In two steps: everything that the request refers to, found in the loop's thread; and the turn, made in any."""

    def __init__(self, service: Service, owner: str, request: ResponsesRequest, find_parent: FindParent | None) -> None:
        self._service, self._owner, self._request = service, owner, request
        self._parent = _parent_of(service, owner, request, find_parent)
        self._items = resolve_items(request.input, _item_finder(service.responses, owner, self._parent))

    @property
    def is_long(self) -> bool:
        num_chain_bytes = self._parent.num_chain_bytes if self._parent is not None else 0
        return len(self._items) > _INLINE_ITEMS or num_chain_bytes > _INLINE_CHAIN_BYTES

    def open(self, first_number: int = 0) -> OpenResponse:
        service, parent = self._service, self._parent
        turn = build_turn(self._request, parent.chain() if parent is not None else (), self._items)
        turn = replace(turn, chat=service.runner.accepted(turn.chat))
        labels = service.runner.labels(turn.chat, ID_PREFIX)
        encoder = ResponsesEncoder(labels, turn, service.wall_clock, first_number)
        return OpenResponse(self._owner, labels, turn, parent, encoder)


def _parent_of(
    service: Service, owner: str, request: ResponsesRequest, find_parent: FindParent | None
) -> Context | None:
    store = service.responses
    parent: Context | None = None
    if request.previous_response_id is not None:
        parent = find_parent(request.previous_response_id) if find_parent is not None else None
        parent = parent or store.parent(owner, request.previous_response_id)
        _check_size(parent, _MAX_CHAIN_BODIES * service.config.max_body_bytes)
    return parent


def _item_finder(store: ResponseStore, owner: str, parent: Context | None) -> FindItem:
    """Looks where the conversation was first. That is indexed once, and only for a request that looks anything up."""
    by_id: dict[str, Item] | None = None

    def find(item_id: str) -> Item | None:
        nonlocal by_id
        if by_id is None:
            by_id = parent.items_by_id() if parent is not None else {}
        return by_id.get(item_id) or store.find_item(owner, item_id)

    return find


def _check_size(parent: Context, max_bytes: int) -> None:
    """Without it, a conversation could grow for ever on a server whose engine has no limit."""
    if parent.num_chain_bytes > max_bytes:
        size = parent.num_chain_bytes
        message = f"The conversation has {size} bytes and exceeds the context window: {max_bytes} are kept of one."
        raise InvalidRequest("previous_response_id", message, code="context_length_exceeded")


def as_responses_error(error: GatewayError) -> GatewayError:
    """The same error, which names the field as the client spelled it."""
    if error.param is not None:
        error.param = _PARAM_NAMES.get(error.param, error.param)
    return error


def context_of(response: OpenResponse) -> Context | None:
    """What a later response continues from; None when it cannot."""
    if response.encoder.status not in _CAN_BE_PARENT:
        return None
    output = response.encoder.output
    if response.turn.request.compacts:
        # The compaction stands for everything before it.
        return Context(None, output)
    return Context(response.parent, (*_with_ids(response), *output))


def remember(store: ResponseStore, response: OpenResponse) -> None:
    """Call when the response has ended. Not kept is what the client does not want stored, and what ended with its
    connection: OpenAI's API knows nothing of that afterwards either."""
    if not response.turn.request.store or response.encoder.status == "cancelled":
        return
    finished = Finished(response.encoder.status, response.encoder.body())
    store.put(stored_entry(response, finished), context_of(response))


def stored_entry(response: OpenResponse, source: Source) -> StoredResponse:
    return StoredResponse(response.labels.turn_id, response.owner, _with_ids(response), source)


def _with_ids(response: OpenResponse) -> list[dict[str, Any]]:
    """The request's items as the API lists them: each with a type and an id."""
    suffix = response.labels.turn_id.removeprefix(ID_PREFIX)
    return [_listed(item, f"{suffix}i{i:02x}") for i, item in enumerate(response.turn.items)]


_ITEM_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc", "function_call_output": "fco"}


def _listed(item: Item, suffix: str) -> dict[str, Any]:
    kind = item_type(item) or "item"
    listed: dict[str, Any] = {**item, "type": kind}
    if not isinstance(item.get("id"), str):
        listed["id"] = f"{_ITEM_PREFIXES.get(kind, 'item')}_{suffix}"
    if kind == "message" and isinstance(item.get("content"), str):
        part_type = "output_text" if item.get("role") == "assistant" else "input_text"
        part: dict[str, Any] = {"type": part_type, "text": item["content"]}
        listed["content"] = [{**part, "annotations": []} if part_type == "output_text" else part]
    if kind == "message":
        listed.setdefault("status", "completed")
    return listed


def whole_answer(response: OpenResponse) -> list[Frame]:
    """The events of a response that needs no model: a prepared one without output, or a compaction."""
    encoder = response.encoder
    frames = encoder.encode(TurnStarted())
    if response.turn.request.compacts:
        history = response.parent.chain() if response.parent is not None else []
        item_id = f"cmp_{response.labels.turn_id.removeprefix(ID_PREFIX)}00"
        item = compaction_item(item_id, (*history, *response.turn.items))
        frames += encoder.add_whole({**item, "encrypted_content": ""}, item)
    return [*frames, *encoder.encode(TurnDone(Usage(0, 0)))]


class Recorder:
    """An encoder, or collector, that remembers the response at its end. `on_end` is called before the last frame is
    out: whoever reads it may come back at once."""

    def __init__(self, response: OpenResponse, on_end: Callable[[OpenResponse], None]) -> None:
        self._response = response
        self._on_end = on_end

    def encode(self, item: TurnItem) -> list[Frame]:
        if isinstance(item, TurnFailed):
            as_responses_error(item.error)
        frames = self._response.encoder.encode(item)
        if isinstance(item, (TurnDone, TurnFailed)):
            self._on_end(self._response)
        return frames

    def add(self, item: TurnItem) -> None:
        self.encode(item)

    def body(self) -> bytes:
        return self._response.encoder.body()
