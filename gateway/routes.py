"""What is served where: a table of paths, and the handlers behind it."""

from __future__ import annotations

from functools import partial

from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.datastructures import Headers

from gateway import __version__, messages_routes
from gateway.errors import EngineDown, GatewayError, NotFound
from gateway.exchange import Exchange
from gateway.header_text import warning_headers
from gateway.messages_routes import speaks_messages
from gateway.protocols.anthropic_messages import ANTHROPIC_MESSAGES
from gateway.protocols.completions import COMPLETIONS
from gateway.protocols.frames import HttpProtocol, dumps
from gateway.protocols.openai_chat import CHAT_BY_REASONING_FIELD, OPENAI_CHAT
from gateway.protocols.responses_request import PATH as RESPONSES_PATH
from gateway.protocols.tokenizing import decode_detokenize, decode_tokenize
from gateway.request_body import read_request
from gateway.responses_routes import find_responses_route
from gateway.service import Route, Service
from gateway.sse import OutboxReader, collect_turn, stream_turn
from gateway.threads import in_thread_if
from gateway.types import ServedModel


def spoken_protocol(route: Route | None, headers: Headers) -> HttpProtocol:
    """Whose errors and request ids this client reads: the path's own, or on shared paths what its headers tell."""
    if route is not None and route.protocol is not None:
        return route.protocol
    return ANTHROPIC_MESSAGES if speaks_messages(headers) else OPENAI_CHAT


def error_body(protocol: HttpProtocol, error: GatewayError, request_id: str) -> bytes:
    if error.param is not None:
        error.param = protocol.param_names.get(error.param, error.param)
    return protocol.error_body(error, request_id)


async def answer_turn(protocol: HttpProtocol, service: Service, exchange: Exchange) -> None:
    config = service.config
    turn = await read_request(exchange, config.max_body_bytes, protocol.decode)
    turn = service.runner.accepted(turn)
    labels = service.runner.labels(turn, protocol.id_prefix, exchange.request_id)

    reader = OutboxReader(config.max_pending_chars, config.keepalive_s, config.slow_reader_timeout_s)
    live = service.runner.start(turn, labels, reader.outbox)
    headers = warning_headers(turn.warnings)
    if not turn.stream:
        await collect_turn(exchange, live, reader, protocol.collector(labels, turn), headers)
        return
    with service.metrics.open_stream("sse"):
        await stream_turn(exchange, live, reader, protocol.encoder(labels, turn), lambda: protocol.keepalive, headers)


async def answer_chat(service: Service, exchange: Exchange) -> None:
    await answer_turn(CHAT_BY_REASONING_FIELD[service.config.reasoning_field], service, exchange)


async def list_models(service: Service, exchange: Exchange) -> None:
    if speaks_messages(exchange.headers):
        await messages_routes.list_models(service, exchange)
        return
    models = [_model_object(service, model) for model in await service.runner.models.list()]
    await exchange.respond(200, dumps({"object": "list", "data": models}))


async def get_model(service: Service, exchange: Exchange) -> None:
    name = exchange.path.removeprefix(_MODEL_PREFIX)
    if speaks_messages(exchange.headers):
        await messages_routes.get_model(service, exchange, name)
        return
    await exchange.respond(200, dumps(_model_object(service, await service.runner.models.find(name))))


def _model_object(service: Service, model: ServedModel) -> dict[str, object]:
    return {
        "id": model.name,
        "object": "model",
        "created": service.created_s,
        "owned_by": "headrace",
        "max_model_len": model.max_model_len,
    }


async def health(service: Service, exchange: Exchange) -> None:
    await exchange.respond(200, dumps({"status": "ok"}))


async def ready(service: Service, exchange: Exchange) -> None:
    if service.admission.is_draining:
        raise EngineDown("The server is shutting down.", code="server_shutting_down", retry_after_s=1.0)
    if not service.backend.is_ready:
        raise EngineDown("The engine is not ready yet.", retry_after_s=1.0)
    await exchange.respond(200, dumps({"status": "ready", "models": list(service.runner.models.names)}))


async def metrics(service: Service, exchange: Exchange) -> None:
    await exchange.respond(200, generate_latest(service.metrics.registry), content_type=CONTENT_TYPE_LATEST)


async def version(service: Service, exchange: Exchange) -> None:
    await exchange.respond(200, dumps({"version": __version__}))


async def tokenize(service: Service, exchange: Exchange) -> None:
    turn = await read_request(exchange, service.config.max_body_bytes, decode_tokenize)
    service.runner.models.resolve(turn.model)
    tokens = await service.backend.tokenize(turn)
    limit = service.backend.max_model_len
    await exchange.respond(200, dumps({"count": len(tokens), "max_model_len": limit, "tokens": tokens}))


async def detokenize(service: Service, exchange: Exchange) -> None:
    request = await read_request(exchange, service.config.max_body_bytes, decode_detokenize)
    service.runner.models.resolve(request.model)
    is_long = len(request.tokens) > _INLINE_TOKENS
    prompt = await in_thread_if(is_long, service.backend.detokenize, list(request.tokens))
    await exchange.respond(200, dumps({"prompt": prompt}))


async def refuse_conversations(service: Service, exchange: Exchange) -> None:
    message = "Conversations are not kept here: send previous_response_id with the next response, or all items again."
    raise NotFound(message, code="conversations_not_supported")


# Looking this many up takes some milliseconds.
_INLINE_TOKENS = 20_000
_PROTOCOLS = (COMPLETIONS, ANTHROPIC_MESSAGES)

_MODEL_PREFIX = "/v1/models/"
_MODEL_ROUTE = Route("/v1/models/{id}", {"GET": get_model})
_CONVERSATIONS_PATH = "/v1/conversations"
_CONVERSATIONS_ROUTE = Route(_CONVERSATIONS_PATH, dict.fromkeys(("GET", "POST", "DELETE"), refuse_conversations))
_ROUTES: tuple[Route, ...] = (
    Route(OPENAI_CHAT.path, {"POST": answer_chat}, protocol=OPENAI_CHAT),
    *(Route(p.path, {"POST": partial(answer_turn, p)}, protocol=p) for p in _PROTOCOLS),
    Route("/v1/messages/count_tokens", {"POST": messages_routes.count_tokens}, protocol=ANTHROPIC_MESSAGES),
    Route("/api/hello", {"GET": messages_routes.hello}, is_public=True),
    Route("/v1/models", {"GET": list_models}),
    Route("/health", {"GET": health}, is_public=True),
    Route("/ready", {"GET": ready}),
    Route("/metrics", {"GET": metrics}),
    Route("/version", {"GET": version}),
    Route("/tokenize", {"POST": tokenize}),
    Route("/detokenize", {"POST": detokenize}),
)
_BY_PATH = {route.path: route for route in _ROUTES}


def find_route(path: str) -> Route | None:
    """Model names may have slashes, so everything below /v1/models/ is one."""
    if path.startswith(_MODEL_PREFIX) and len(path) > len(_MODEL_PREFIX):
        return _MODEL_ROUTE
    if path == RESPONSES_PATH or path.startswith(RESPONSES_PATH + "/"):
        return find_responses_route(path)
    if path == _CONVERSATIONS_PATH or path.startswith(_CONVERSATIONS_PATH + "/"):
        return _CONVERSATIONS_ROUTE
    return _BY_PATH.get(path.rstrip("/") or "/")
