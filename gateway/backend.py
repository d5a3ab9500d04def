"""The seam between turns and what generates them: a model's engine, an upstream server, or a script."""

from __future__ import annotations

from typing import Protocol, Self

from gateway.pieces import Piece, UsageReport
from gateway.served_models import ServedModels
from gateway.types import EngineInfo, EngineStats, Prepared, TokenCount, Turn


class PieceStream(Protocol):
    """The pieces of one prepared prompt, all choices interleaved, each choice in order. Ends when all have finished.

    Iterating raises GatewayError when the backend fails. Reports of usage come where others count the tokens.
    """

    async def taken(self, timeout_s: float) -> None:
        """Returns when the backend has taken the prompt, or after `timeout_s`. Raises GatewayError where it refuses:
        until then, a refusal can be an HTTP status. Call once, before iterating."""

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> Piece | UsageReport: ...

    def end_choice(self, choice: int) -> None:
        """Cancels this choice, whose end the backend does not know of; no more pieces of it come. Idempotent."""

    def close(self) -> None:
        """Cancels what is left, at once and whatever state the turn is in. Idempotent."""


class Backend(Protocol):
    """One served model. All methods are called from the event loop's thread."""

    @property
    def is_ready(self) -> bool: ...

    @property
    def models(self) -> ServedModels | None:
        """The models it has by itself; None where it serves one, under the names of the configuration."""

    @property
    def forces(self) -> bool:
        """Whether it keeps to tool_choice and to response formats itself."""

    @property
    def max_model_len(self) -> int | None:
        """Prompt and answer together, in tokens; None = no limit or not known yet."""

    @property
    def info(self) -> EngineInfo | None:
        """What the engine runs; None where there is none, or none that is ready."""

    @property
    def stats(self) -> EngineStats | None:
        """The engine's latest snapshot; None where there is no engine."""

    async def start(self) -> None:
        """Returns when turns can be generated, or raises. Call once."""

    async def close(self) -> None:
        """Ends every turn that is left. Idempotent."""

    async def prepare(self, turn: Turn, turn_id: str) -> tuple[Prepared, ...]:
        """Template and tokens: one Prepared a prompt. Raises InvalidRequest."""

    def generate(self, prepared: Prepared) -> PieceStream:
        """Submits the prompt at once. Raises GatewayError (refused, queue full, engine down); close the stream."""

    async def count_tokens(self, turn: Turn) -> TokenCount:
        """How long its prompt is."""

    async def tokenize(self, turn: Turn) -> list[int]:
        """Raises NotAvailable where nobody here has the model's tokenizer."""

    def detokenize(self, token_ids: list[int]) -> str:
        """Raises InvalidRequest, NotAvailable."""
