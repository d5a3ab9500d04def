"""What Anthropic's clients ask for beside turns: counting tokens, the list of models, and whether anyone is there."""

from __future__ import annotations

from starlette.datastructures import Headers

from gateway.exchange import Exchange
from gateway.header_text import estimate_headers
from gateway.protocols.anthropic_decode import decode_count_tokens
from gateway.protocols.anthropic_messages import VERSION_HEADER, model_object, models_body
from gateway.protocols.frames import dumps
from gateway.request_body import read_request
from gateway.service import Service


def speaks_messages(headers: Headers) -> bool:
    """Anthropic's clients send their API's version with every request, also to paths that others have as well."""
    return VERSION_HEADER in headers


async def count_tokens(service: Service, exchange: Exchange) -> None:
    turn = await read_request(exchange, service.config.max_body_bytes, decode_count_tokens)
    service.runner.models.resolve(turn.model)
    count = await service.backend.count_tokens(turn)
    await exchange.respond(200, dumps({"input_tokens": count.num_tokens}), estimate_headers(count))


async def list_models(service: Service, exchange: Exchange) -> None:
    await exchange.respond(200, models_body(await service.runner.models.list(), service.created_s))


async def get_model(service: Service, exchange: Exchange, name: str) -> None:
    model = await service.runner.models.find(name)
    await exchange.respond(200, dumps(model_object(model, service.created_s)))


async def hello(service: Service, exchange: Exchange) -> None:
    """Claude Code looks whether its server can be reached before it starts."""
    await exchange.respond(200, dumps({"status": "ok"}))
