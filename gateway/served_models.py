"""Which models clients may name, and what is told of them: one under several names, or whatever an upstream has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gateway.errors import ModelNotFound
from gateway.types import ServedModel


class ServedModels(Protocol):
    @property
    def names(self) -> tuple[str, ...]:
        """As far as they are known now; a list that somebody else keeps may be empty or old."""

    async def list(self) -> tuple[ServedModel, ...]:
        """As they are now. Raises GatewayError where that cannot be found out and never was."""

    async def find(self, name: str) -> ServedModel:
        """Raises ModelNotFound."""

    def resolve(self, name: str | None) -> str:
        """The name that answers carry, for the `model` of a request. Raises ModelNotFound, InvalidRequest."""


class FixedModels:
    """One model: `names` are all it is called, and the first is for requests that name none."""

    def __init__(self, names: tuple[str, ...], max_model_len: Callable[[], int | None]) -> None:
        self._names = names
        self._max_model_len = max_model_len

    @property
    def names(self) -> tuple[str, ...]:
        return self._names

    async def list(self) -> tuple[ServedModel, ...]:
        return tuple(ServedModel(name, self._max_model_len()) for name in self._names)

    async def find(self, name: str) -> ServedModel:
        return ServedModel(self.resolve(name), self._max_model_len())

    def resolve(self, name: str | None) -> str:
        if name is None:
            return self._names[0]
        if name not in self._names:
            raise ModelNotFound(name, self._names)
        return name
