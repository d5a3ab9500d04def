"""What the inference core refuses or reports, each saying whose fault it is and what helps."""

from collections.abc import Mapping

from inference.types import ContextBound

# What helps against a context that is too short, by what makes it short.
_REMEDIES: Mapping[ContextBound, str] = {
    "model": "Shorten the prompt; the model itself reaches no further",
    "option": "Shorten the prompt or serve with a larger --max-model-len",
    "memory": "Shorten the prompt or serve with a larger --kv-memory, which the model's own context does not fit into",
}


class InferenceError(Exception):
    """Root of every error this package raises to its callers."""


class InvalidTurn(InferenceError):
    """The turn can never run as asked. `field` names the sampling or prompt field at fault."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class ContextLengthExceeded(InvalidTurn):
    """The prompt leaves no room for an answer: `num_prompt_tokens` against `max_model_len` (both in tokens).

    is_at_least: the prompt is so long that it was not counted to its end.
    """

    def __init__(
        self, num_prompt_tokens: int, max_model_len: int, bound: ContextBound = "model", *, is_at_least: bool = False
    ) -> None:
        self.num_prompt_tokens = num_prompt_tokens
        self.max_model_len = max_model_len
        at_least = "at least " if is_at_least else ""
        super().__init__(
            "messages",
            f"This model's maximum context length is {max_model_len} tokens, but the prompt has "
            f"{at_least}{num_prompt_tokens} tokens: the request exceeds the context window. {_REMEDIES[bound]} "
            f"(prompt is too long: {num_prompt_tokens} tokens > {max_model_len} maximum).",
        )


class QueueFull(InferenceError):
    """As many turns wait as the server admits. Try again after `retry_after_s`."""

    def __init__(self, num_waiting: int, limit: int, retry_after_s: float) -> None:
        super().__init__(f"{num_waiting} turns wait and the queue holds {limit}. Try again in {retry_after_s:g}s.")
        self.retry_after_s = retry_after_s


class EngineUnavailable(InferenceError):
    """The engine process is starting, restarting, or died while the turn ran. Retrying is safe."""


class ModelLoadError(InferenceError):
    """The model given to --model cannot be served; the message says why and what can."""
