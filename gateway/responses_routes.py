"""/v1/responses over HTTP: create, fetch, follow, cancel, delete, count and compact."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gateway.auth import key_owner
from gateway.errors import GatewayError, InvalidRequest
from gateway.exchange import Exchange
from gateway.header_text import estimate_headers, warning_headers
from gateway.peer import WriteWatch, part_from
from gateway.protocols.fields import shown
from gateway.protocols.frames import Frame, dumps, sse
from gateway.protocols.responses_compact import compaction_body
from gateway.protocols.responses_request import PATH, ResponsesRequest, decode_request
from gateway.request_body import read_request
from gateway.responses_background import BackgroundResponse, EventLog, WholeResponse
from gateway.responses_store import StoredResponse
from gateway.responses_turns import (
    OpenResponse,
    Recorder,
    as_responses_error,
    context_of,
    open_response_aside,
    remember,
    stored_entry,
    whole_answer,
)
from gateway.service import Route, Service
from gateway.sse import SSE_HEADERS, OutboxReader, collect_turn, stream_turn
from gateway.turn import slow_reader

logger = logging.getLogger("headrace.responses")

# What may be followed and cancelled.
_BACKGROUND = (BackgroundResponse, WholeResponse)
_DEFAULT_LIMIT = 20
_MAX_LIMIT = 100
_TRUE = ("true", "1")
_FALSE = ("false", "0")
_BATCH_BYTES = 64 * 1024


async def create(service: Service, exchange: Exchange) -> None:
    request = await _read_request(service, exchange)
    try:
        response = await open_response_aside(service, key_owner(exchange.headers), request)
        await _answer(service, exchange, response)
    except GatewayError as error:
        raise as_responses_error(error) from None


async def _read_request(service: Service, exchange: Exchange) -> ResponsesRequest:
    return await read_request(exchange, service.config.max_body_bytes, decode_request)


async def _answer(service: Service, exchange: Exchange, response: OpenResponse) -> None:
    request = response.turn.request
    headers = warning_headers(response.turn.chat.warnings)
    if request.compacts:
        await _answer_whole(service, exchange, response, headers)
    elif request.background:
        await _answer_background(service, exchange, response, headers)
    else:
        await _answer_live(service, exchange, response, headers)


async def _answer_live(
    service: Service, exchange: Exchange, response: OpenResponse, headers: Mapping[str, str]
) -> None:
    config, encoder = service.config, response.encoder
    recorder = Recorder(response, lambda ended: remember(service.responses, ended))
    reader = OutboxReader(config.max_pending_chars, config.keepalive_s, config.slow_reader_timeout_s)
    live = service.runner.start(response.turn.chat, response.labels, reader.outbox)
    if not response.turn.request.stream:
        await collect_turn(exchange, live, reader, recorder, headers)
        return
    with service.metrics.open_stream("sse"):
        await stream_turn(exchange, live, reader, recorder, lambda: sse(encoder.keepalive()), headers)


async def _answer_whole(
    service: Service, exchange: Exchange, response: OpenResponse, headers: Mapping[str, str]
) -> None:
    frames = whole_answer(response)
    if response.turn.request.background:
        source = WholeResponse(response.encoder.status, response.encoder.body(), frames)
        service.responses.put(stored_entry(response, source), context_of(response))
    else:
        remember(service.responses, response)
    if response.turn.request.stream:
        await exchange.respond(200, b"".join(map(sse, frames)), {**SSE_HEADERS, **headers})
    else:
        await exchange.respond(200, response.encoder.body(), headers)


# Background


async def _answer_background(
    service: Service, exchange: Exchange, response: OpenResponse, headers: Mapping[str, str]
) -> None:
    background = _start_background(service, response)
    await background.begin()
    if response.turn.request.stream:
        await _follow(service, exchange, background.log, -1, headers)
    else:
        await exchange.respond(200, background.body(), headers)


def _start_background(service: Service, response: OpenResponse) -> BackgroundResponse:
    store = service.responses
    entry: StoredResponse | None = None

    def on_change(background: BackgroundResponse, num_bytes: int) -> None:
        nonlocal entry
        if background.failure is not None:
            # Refused before it began: the client gets an HTTP error, and nothing is left to fetch.
            return
        if entry is None:
            entry = stored_entry(response, background)
            store.put(entry, context_of(response))
        elif background.log.is_closed:
            store.settle(entry, context_of(response))
        else:
            store.grow(entry, num_bytes)

    return BackgroundResponse(service.runner, response.labels, response.turn, response.encoder, on_change)


async def _follow(service: Service, exchange: Exchange, log: EventLog, after: int, headers: Mapping[str, str]) -> None:
    """Sends what is kept and what is still to come. The response goes on when this client goes away."""
    log.after(after)  # Raises what has to be an HTTP error.
    following = asyncio.create_task(_send_log(service, exchange, log, after, headers), name="follow a response")
    watching = asyncio.create_task(exchange.wait_for_disconnect(), name="watch a follower")
    try:
        with service.metrics.open_stream("sse"):
            await asyncio.wait([following, watching], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (following, watching):
            task.cancel()
        await asyncio.wait([following, watching])
    if not following.cancelled() and following.result():
        await part_from(exchange.peer, service.config.slow_reader_timeout_s)


async def _send_log(
    service: Service, exchange: Exchange, log: EventLog, after: int, headers: Mapping[str, str]
) -> bool:
    """Returns whether the client was stuck at the end."""

    def give_up() -> None:
        logger.warning("a follower of a response has stopped reading")

    patience_s = service.config.slow_reader_timeout_s
    await exchange.start(200, {**SSE_HEADERS, **headers})
    watch = WriteWatch(exchange.peer, patience_s, lambda: None, give_up)
    try:
        await _write_log(exchange, log, after, watch, patience_s)
        with watch:
            await exchange.end()
    except asyncio.CancelledError:
        # Returning without the end of the body makes the server close the connection.
        if not watch.is_cut:
            raise
    finally:
        watch.close()
    return watch.is_stuck


async def _write_log(exchange: Exchange, log: EventLog, after: int, watch: WriteWatch, patience_s: float) -> None:
    """A reader that the log has left behind, or that has stopped reading, gets no more events, and is told so."""
    try:
        while True:
            events = log.after(after)
            if not events and log.is_closed:
                return
            if watch.is_stuck:
                raise slow_reader(patience_s)
            if not events:
                await log.wait()
            for last, data in _batches(events):
                with watch:
                    await exchange.write(data)
                after = last
                if watch.is_stuck:
                    break
    except GatewayError as error:
        event = {"type": "error", "code": error.code, "message": error.message, "param": error.param}
        with watch:
            await exchange.write(sse(Frame(dumps(event), "error")))


def _batches(events: Sequence[tuple[int, Frame]]) -> Iterator[tuple[int, bytes]]:
    """What goes out in one write, with the number of its last event. Each event has its number as its id, which
    browsers send back as Last-Event-ID."""
    parts: list[bytes] = []
    num_bytes = 0
    for number, frame in events:
        parts.append(b"id: %d\n%b" % (number, sse(frame)))
        num_bytes += len(frame.data)
        if num_bytes >= _BATCH_BYTES or number == events[-1][0]:
            yield number, b"".join(parts)
            parts, num_bytes = [], 0


# Stored responses


async def get(service: Service, exchange: Exchange) -> None:
    entry = _entry(service, exchange)
    if not _wants_stream(exchange):
        await exchange.respond(200, entry.source.body())
        return
    if not isinstance(entry.source, _BACKGROUND):
        message = f"The response {entry.id} was not created with background: true, so its events are not kept."
        raise InvalidRequest("stream", message, code="response_not_background")
    log, after = entry.source.log, _starting_after(exchange)
    if log.is_closed and _is_browsers(exchange) and not log.after(after):
        # Browsers come back to every stream that ended, until they are told that there is no more.
        await exchange.respond(204, b"")
        return
    await _follow(service, exchange, log, after, {})


def _is_browsers(exchange: Exchange) -> bool:
    """An EventSource (WHATWG HTML, section 9.2). SDKs ask for JSON, and OpenAI's for JavaScript fails at a 204."""
    return "last-event-id" in exchange.headers or "text/event-stream" in exchange.headers.get("accept", "")


def _wants_stream(exchange: Exchange) -> bool:
    return _one_of(exchange, "stream", (*_TRUE, *_FALSE), _FALSE[0]) in _TRUE


def _one_of(exchange: Exchange, name: str, allowed: tuple[str, ...], default: str) -> str:
    """A parameter of the query. Raises InvalidRequest."""
    given = exchange.query.get(name, default)
    if given.lower() not in allowed:
        options = ", ".join(map(repr, allowed))
        raise InvalidRequest(name, f"{name} must be one of {options}, got {shown(given)}.")
    return given.lower()


def _starting_after(exchange: Exchange) -> int:
    """A browser that comes back sends the same address, and in the header how far it has come since."""
    name, given = "Last-Event-ID", exchange.headers.get("last-event-id")
    if not given:
        name, given = "starting_after", exchange.query.get("starting_after")
    if not given:
        return -1
    if not (given.isascii() and given.isdecimal() and len(given) < 16):
        raise InvalidRequest(name, f"{name} must be a sequence number, got {shown(given)}.")
    return int(given)


async def delete(service: Service, exchange: Exchange) -> None:
    entry = _entry(service, exchange)
    service.responses.delete(entry)
    if isinstance(entry.source, _BACKGROUND):
        await entry.source.cancel()
    await exchange.respond(200, dumps({"id": entry.id, "object": "response", "deleted": True}))


async def cancel(service: Service, exchange: Exchange) -> None:
    entry = _entry(service, exchange)
    if not isinstance(entry.source, _BACKGROUND):
        message = "Only a response with background: true can be cancelled. Others end when their connection closes."
        raise InvalidRequest("response_id", message, code="response_not_background")
    await entry.source.cancel()
    await exchange.respond(200, entry.source.body())


async def list_input_items(service: Service, exchange: Exchange) -> None:
    query = exchange.query
    items = list(_entry(service, exchange).input_items)
    if _one_of(exchange, "order", ("asc", "desc"), "desc") == "desc":
        items.reverse()
    after = query.get("after")
    if after is not None:
        position = next((i for i, item in enumerate(items) if item.get("id") == after), None)
        if position is None:
            raise InvalidRequest("after", f"The response has no input item with id {shown(after)}.")
        items = items[position + 1 :]
    limit = _limit(query.get("limit"))
    page = items[:limit]
    fields: dict[str, Any] = {"object": "list", "data": page, "has_more": len(items) > limit}
    fields["first_id"] = page[0]["id"] if page else None
    fields["last_id"] = page[-1]["id"] if page else None
    await exchange.respond(200, dumps(fields))


def _limit(given: str | None) -> int:
    if given is None:
        return _DEFAULT_LIMIT
    if not (given.isascii() and given.isdecimal() and len(given) < 4 and 1 <= int(given) <= _MAX_LIMIT):
        raise InvalidRequest("limit", f"limit must be between 1 and {_MAX_LIMIT}, got {shown(given)}.")
    return int(given)


def _entry(service: Service, exchange: Exchange) -> StoredResponse:
    response_id = exchange.path.removeprefix(PATH).strip("/").split("/")[0]
    return service.responses.get(key_owner(exchange.headers), response_id)


# Without an answer


async def count_input_tokens(service: Service, exchange: Exchange) -> None:
    request = await _read_request(service, exchange)
    try:
        response = await open_response_aside(service, key_owner(exchange.headers), request)
        count = await service.backend.count_tokens(response.turn.chat)
    except GatewayError as error:
        raise as_responses_error(error) from None
    body = dumps({"object": "response.input_tokens", "input_tokens": count.num_tokens})
    await exchange.respond(200, body, estimate_headers(count))


async def compact(service: Service, exchange: Exchange) -> None:
    request = await _read_request(service, exchange)
    response = await open_response_aside(service, key_owner(exchange.headers), request)
    history = response.parent.chain() if response.parent is not None else []
    await exchange.respond(200, compaction_body(response.labels, [*history, *response.turn.items]))


_CREATE = Route(PATH, {"POST": create})
_ONE = Route(f"{PATH}/{{id}}", {"GET": get, "DELETE": delete})
_FIXED = {
    "input_tokens": Route(f"{PATH}/input_tokens", {"POST": count_input_tokens}),
    "compact": Route(f"{PATH}/compact", {"POST": compact}),
}
_BELOW_ONE = {
    "cancel": Route(f"{PATH}/{{id}}/cancel", {"POST": cancel}),
    "input_items": Route(f"{PATH}/{{id}}/input_items", {"GET": list_input_items}),
}


def find_responses_route(path: str) -> Route | None:
    match path.strip("/").split("/")[2:]:
        case []:
            return _CREATE
        case [name]:
            return _FIXED.get(name, _ONE)
        case [_, action]:
            return _BELOW_ONE.get(action)
        case _:
            return None
