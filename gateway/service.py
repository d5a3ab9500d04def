"""What all handlers share, and the shape of a route. The table of paths is in gateway.routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from gateway.admission import Admission
from gateway.backend import Backend
from gateway.config import GatewayConfig
from gateway.exchange import Exchange
from gateway.metrics import Metrics
from gateway.protocols.frames import HttpProtocol
from gateway.responses_store import ResponseStore
from gateway.streams import StreamHub
from gateway.turn import TurnRunner


@dataclass(frozen=True, slots=True)
class Service:
    """wall_clock: Unix time in seconds. created_s: when the server began to serve its model."""

    backend: Backend
    config: GatewayConfig
    runner: TurnRunner
    admission: Admission
    metrics: Metrics
    responses: ResponseStore
    streams: StreamHub
    wall_clock: Callable[[], float]
    created_s: int


Handler = Callable[[Service, Exchange], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Route:
    """is_public: served without an API key. protocol: spells this path's errors; OpenAI's way where there is none."""

    path: str
    handlers: Mapping[str, Handler]
    is_public: bool = False
    protocol: HttpProtocol | None = None
