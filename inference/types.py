"""The values that cross the engine's border. Frozen, picklable, standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from inference.grammar.source import GrammarSource

FinishReason = Literal["stop", "length", "cancelled", "error"]
# What sets the longest sequence: the model's own maximum, --max-model-len, or the memory for its KV.
ContextBound = Literal["model", "option", "memory"]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are chosen. Neutral values leave the model's distribution as it is.

    temperature: 0 is greedy, and so is below a millionth. top_p in (0, 1], min_p in [0, 1], top_k 0 = off.
    Penalties as OpenAI's API defines them; repetition_penalty as in CTRL (arXiv:1909.05858), over prompt and output.
    logit_bias: (token id, bias) pairs.
    seed: same seed, prompt and position give the same token whatever else is in the batch; None draws fresh noise.
    max_tokens: None = as far as the context allows. min_tokens: no end or stop token before that many.
    logprobs: None = off; n = the chosen token's log-probability and the n most likely alternatives (0..20).
    Stop strings are not here: text is the gateway's matter (gateway.text_stop).
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int | None = None
    max_tokens: int | None = None
    min_tokens: int = 0
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None

    @property
    def is_plain(self) -> bool:
        """The logits, at most divided by the temperature, are drawn from, but for filters and early end tokens."""
        return not (self.logit_bias or self.has_penalties or self.logprobs is not None)

    @property
    def has_filters(self) -> bool:
        return self.temperature != 0 and (self.top_k != 0 or self.top_p != 1 or self.min_p != 0)

    @property
    def has_penalties(self) -> bool:
        return self.presence_penalty != 0 or self.frequency_penalty != 0 or self.repetition_penalty != 1


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """One prompt, `n` sampled continuations (choices 0..n-1). `turn_id` is unique among live turns.

    cache_salt: turns share cached prefixes only within one salt. grammar: what the output is held to, if anything.
    """

    turn_id: str
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    n: int = 1
    cache_salt: str = ""
    grammar: GrammarSource | None = None


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probabilities of one output token: its own, and the most likely ones as (token id, logprob), best first."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class TokenChunk(NamedTuple):
    """New tokens of one choice of a turn, in order. The chunk with a finish_reason is that choice's last.

    token_ids holds every generated token, the end or stop token included (it counts as generated);
    stop_token_id names it when finish_reason is "stop". num_cached_tokens: prompt tokens found in the prefix cache,
    set on each choice's first chunk. error: with finish_reason "error", why the turn's grammar cannot go on.

    A tuple, as one a row and step is made, sent and read: a third of what a dataclass takes.
    """

    turn_id: str
    choice: int
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()
    finish_reason: FinishReason | None = None
    stop_token_id: int | None = None
    num_cached_tokens: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What an engine that is ready serves; limits in tokens, blocks, bytes. context_bound: what sets max_model_len."""

    model_name: str
    architecture: str
    device: str
    dtype: str
    attention_backend: str
    max_model_len: int
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    block_size: int
    num_blocks: int
    kv_bytes: int
    num_parameters: int
    context_bound: ContextBound = "model"


@dataclass(slots=True)
class EngineStats:
    """A snapshot after a step. Counters grow over the engine's life, in one of these; the rest is now.

    num_forced_tokens: generated tokens that were known without a pass of their own. num_guessed_tokens,
    num_right_guesses: guessed from a turn's history, and those that held. num_masks, mask_s: masks of
    constrained rows that were computed, and the time it took in all; num_late_masks: how often a row sat a step out
    because its mask had not come. num_redrawn_tokens: drawn without a mask, refused, and drawn again with it.
    num_blocks_in_use counts blocks that a live turn holds; num_blocks_cached those kept for reuse only.
    """

    num_running: int = 0
    num_waiting: int = 0
    num_blocks: int = 0
    num_blocks_in_use: int = 0
    num_blocks_cached: int = 0
    num_steps: int = 0
    num_prompt_tokens: int = 0
    num_cached_prompt_tokens: int = 0
    num_generated_tokens: int = 0
    num_preemptions: int = 0
    num_forced_tokens: int = 0
    num_guessed_tokens: int = 0
    num_right_guesses: int = 0
    num_late_masks: int = 0
    num_redrawn_tokens: int = 0
    num_masks: int = 0
    mask_s: float = 0.0
    last_step_s: float = 0.0
