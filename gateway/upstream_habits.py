"""What is learnt about an upstream from its answers: what it calls reasoning, and how long its tokens are."""

from __future__ import annotations

from gateway.pieces import UsageReport
from gateway.upstream_answer import Chunk

_REASONING_FIELDS = ("reasoning_content", "reasoning")
# English in JSON; code and other languages differ, so it is measured as soon as the upstream counts.
_TOKENS_PER_BYTE = 0.25
_LEAST, _MOST = 0.02, 1.0
_WEIGHT = 0.2
# What a chat template adds is much of a short prompt.
_MIN_BYTES = 400


class UpstreamHabits:
    """reasoning_field: under which name reasoning came, and so goes back; None while none has."""

    def __init__(self) -> None:
        self.reasoning_field: str | None = None
        self._tokens_per_byte = _TOKENS_PER_BYTE

    def note_choice(self, choice: Chunk) -> None:
        delta = choice.get("delta")
        if self.reasoning_field is None and isinstance(delta, dict):
            self.reasoning_field = next((name for name in _REASONING_FIELDS if delta.get(name)), None)

    def note_usage(self, num_bytes: int, report: UsageReport) -> None:
        """num_bytes: of the request."""
        if num_bytes >= _MIN_BYTES and report.prompt_tokens:
            measured = min(max(report.prompt_tokens / num_bytes, _LEAST), _MOST)
            self._tokens_per_byte += _WEIGHT * (measured - self._tokens_per_byte)

    def num_tokens(self, num_bytes: int) -> int:
        """About as many as a request of this length has."""
        return max(round(num_bytes * self._tokens_per_byte), 1)
