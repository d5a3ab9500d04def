"""What Anthropic's clients ask for beside turns: counting tokens, the list of models, and whether anyone is there."""

from __future__ import annotations

from starlette.datastructures import Headers

from gateway.errors import ModelNotFound
from gateway.exchange import Exchange
from gateway.protocols.anthropic_decode import decode_count_tokens
from gateway.protocols.anthropic_messages import VERSION_HEADER, model_object, models_body
from gateway.protocols.frames import dumps
from gateway.protocols.json_body import parse_object
from gateway.service import Service


def speaks_messages(headers: Headers) -> bool:
    """Anthropic's clients send their API's version with every request, also to paths that others have as well."""
    return VERSION_HEADER in headers


async def count_tokens(service: Service, exchange: Exchange) -> None:
    turn = decode_count_tokens(parse_object(await exchange.read_body(service.config.max_body_bytes)))
    service.runner.check_model(turn.model)
    tokens = await service.backend.tokenize(turn)
    await exchange.respond(200, dumps({"input_tokens": len(tokens)}))


async def list_models(service: Service, exchange: Exchange) -> None:
    config, limit = service.config, service.backend.max_model_len
    await exchange.respond(200, models_body(config.served_names, service.created_s, limit))


async def get_model(service: Service, exchange: Exchange, name: str) -> None:
    if name not in service.config.served_names:
        raise ModelNotFound(name, service.config.served_names)
    await exchange.respond(200, dumps(model_object(name, service.created_s, service.backend.max_model_len)))


async def hello(service: Service, exchange: Exchange) -> None:
    """Claude Code looks whether its server can be reached before it starts."""
    await exchange.respond(200, dumps({"status": "ok"}))
