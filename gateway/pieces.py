"""What a backend gives of a turn, piece by piece, before it is parsed. Frozen and free of I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from gateway.errors import GatewayError


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """An output token, its log-probability, and the likeliest alternatives, best first.

    num_chars: how many characters of the piece's text this token completed (0 inside a split UTF-8 sequence).
    """

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()
    num_chars: int = 0


@dataclass(frozen=True, slots=True)
class TextPiece:
    """What one engine step gave one choice. Texts of a choice, joined, are all it wrote, special tokens included.

    token_ids are those the text came from, for matching special tokens by id; empty where the backend has none.
    finish_reason is set on the choice's last piece. output_ids are all that the engine sampled, stop token included.
    """

    choice: int
    text: str
    token_ids: tuple[int, ...] = ()
    num_tokens: int = 1
    logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: Literal["stop", "length"] | None = None
    num_cached_tokens: int | None = None
    output_ids: tuple[int, ...] = ()

    @property
    def is_last(self) -> bool:
        return self.finish_reason is not None


@dataclass(frozen=True, slots=True)
class ChunkPiece:
    """A chunk of an upstream, with one choice of its answer. stop: the string that ended it, where the upstream says.

    num_tokens: about how many tokens it stands for; upstreams do not count them one by one.
    """

    choice: int
    chunk: Mapping[str, Any]
    num_tokens: int = 1
    logprobs: tuple[TokenLogprob, ...] = ()
    stop: str | None = None

    @property
    def is_last(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class ChunksEnd:
    """No more chunks of this choice come. is_done: the upstream said so itself.

    failure: what the client hears of an answer that has not ended by its own rules.
    """

    choice: int
    is_done: bool
    failure: GatewayError

    @property
    def is_last(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class UsageReport:
    """The counts of all choices together, as the upstream gives them: they hold instead of what was counted here.
    reasoning_tokens None: it does not tell them."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    reasoning_tokens: int | None


Piece: TypeAlias = TextPiece | ChunkPiece | ChunksEnd
