"""The models of an upstream as this server's own: its list, asked for when a client asks; any name passes through."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.errors import GatewayError, ModelNotFound
from gateway.protocols.fields import missing
from gateway.types import ServedModel
from gateway.upstream_client import UpstreamClient

_FRESH_S = 5.0


class UpstreamModels:
    """clock: monotonic seconds. Names that are not listed pass: servers know aliases, and say what is none."""

    def __init__(self, client: UpstreamClient, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        self._models: tuple[ServedModel, ...] = ()
        self._has_list = True
        self._asked_s: float | None = None
        self._asking = asyncio.Lock()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(model.name for model in self._models)

    async def refresh(self) -> None:
        """Raises GatewayError."""
        found = await self._client.models()
        self._has_list = found is not None
        self._models = found or ()
        self._asked_s = self._clock()

    async def list(self) -> tuple[ServedModel, ...]:
        async with self._asking:
            if self._asked_s is None or self._clock() - self._asked_s > _FRESH_S:
                try:
                    await self.refresh()
                except GatewayError:
                    if not self._models:
                        raise
        return self._models

    async def find(self, name: str) -> ServedModel:
        for model in await self.list():
            if model.name == name:
                return model
        if not self._has_list:
            return ServedModel(name)
        raise ModelNotFound(name, self.names)

    def resolve(self, name: str | None) -> str:
        if name:
            return name
        if not self._models:
            raise missing("model", "the name of a model of the upstream")
        return self._models[0].name
