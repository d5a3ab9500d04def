"""What an engine writes for a prompt, as text: incremental detokenising, and which text each log-probability is of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.errors import InternalError, InvalidRequest, from_inference
from gateway.pieces import TextPiece
from gateway.types import Prepared, TokenLogprob
from inference.errors import InferenceError
from inference.tokenizer import IncrementalDetokenizer, Tokenizer
from inference.types import TokenChunk, TokenLogprobs, TurnRequest


class Tokens(Protocol):
    """What `Engine.submit` returns; see inference.engine_client.TokenStream."""

    async def __anext__(self) -> TokenChunk: ...

    def cancel(self) -> None: ...

    def cancel_choice(self, choice: int) -> None: ...


@dataclass(frozen=True, slots=True)
class ModelPrompt(Prepared):
    """hidden_ids: tokens whose text is left out (special tokens, where the text is not parsed)."""

    request: TurnRequest
    hidden_ids: frozenset[int]


class ModelPieces:
    """The engine's chunks of one prompt as text."""

    def __init__(self, prompt: ModelPrompt, tokens: Tokens, tokenizer: Tokenizer) -> None:
        self._tokens = tokens
        self._tokenizer = tokenizer
        self._hidden_ids = prompt.hidden_ids
        self._detokenizers = [tokenizer.detokenizer() for _ in range(prompt.n)]

    async def taken(self, timeout_s: float) -> None:
        """The engine has said so to `submit`."""

    def __aiter__(self) -> ModelPieces:
        return self

    async def __anext__(self) -> TextPiece:
        try:
            chunk = await self._tokens.__anext__()
        except InferenceError as error:
            raise from_inference(error) from error
        return self._piece(chunk)

    def end_choice(self, choice: int) -> None:
        self._tokens.cancel_choice(choice)

    def close(self) -> None:
        self._tokens.cancel()

    def _piece(self, chunk: TokenChunk) -> TextPiece:
        reason = chunk.finish_reason
        if reason == "error":
            # Only what a turn is held to fails it alone; the same request would fail again.
            raise InvalidRequest(None, chunk.error or "This turn cannot be generated.", code="grammar_failed")
        if reason == "cancelled":
            raise InternalError("The engine cancelled this turn.")
        token_ids, entries = chunk.token_ids, chunk.logprobs
        if chunk.stop_token_id is not None and token_ids and token_ids[-1] == chunk.stop_token_id:
            token_ids, entries = token_ids[:-1], entries[: len(token_ids) - 1]
        if self._hidden_ids:
            token_ids = tuple([token_id for token_id in token_ids if token_id not in self._hidden_ids])

        detokenizer = self._detokenizers[chunk.choice]
        logprobs: tuple[TokenLogprob, ...] = ()
        if entries:
            text, logprobs = self._with_logprobs(detokenizer, token_ids, entries)
        else:
            text = detokenizer.feed(token_ids)
        if reason is not None:
            text += detokenizer.flush()
        return TextPiece(
            choice=chunk.choice,
            text=text,
            token_ids=token_ids,
            num_tokens=len(chunk.token_ids),
            output_ids=chunk.token_ids,
            logprobs=logprobs,
            finish_reason=reason,
            num_cached_tokens=chunk.num_cached_tokens,
        )

    def _with_logprobs(
        self, detokenizer: IncrementalDetokenizer, visible_ids: Sequence[int], entries: Sequence[TokenLogprobs]
    ) -> tuple[str, tuple[TokenLogprob, ...]]:
        """Token by token, to learn how much text each gave. Tokens without visible text keep their entry."""
        waiting = list(visible_ids)
        texts: list[str] = []
        found: list[TokenLogprob] = []
        for entry in entries:
            text = ""
            if waiting and waiting[0] == entry.token_id:
                text = detokenizer.feed([waiting.pop(0)])
            texts.append(text)
            top = tuple((self._tokenizer.decode([token_id]), logprob) for token_id, logprob in entry.top)
            found.append(TokenLogprob(self._tokenizer.decode([entry.token_id]), entry.logprob, top, len(text)))
        return "".join(texts), tuple(found)
