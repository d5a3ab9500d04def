"""How many turns may be live at once, and whether new ones are taken at all."""

from __future__ import annotations

from gateway.errors import ShuttingDown, TooManyTurns

_RETRY_AFTER_S = 1.0


class Admission:
    """Counts live turns. Every `admit` that returns is paired with one `release`. Refusals name the limit."""

    def __init__(self, max_live_turns: int) -> None:
        self._max_live_turns = max_live_turns
        self.num_live = 0
        self.is_draining = False

    def admit(self) -> None:
        """Raises ShuttingDown or TooManyTurns."""
        if self.is_draining:
            message = "The server is shutting down and takes no new turns. Try again on another or a restarted server."
            raise ShuttingDown(message, retry_after_s=_RETRY_AFTER_S)
        if self.num_live >= self._max_live_turns:
            limit = self._max_live_turns
            message = f"{self.num_live} turns are live and this server takes {limit} (--max-turns). "
            raise TooManyTurns(message + f"Try again in {_RETRY_AFTER_S:g}s.", retry_after_s=_RETRY_AFTER_S)
        self.num_live += 1

    def release(self) -> None:
        assert self.num_live > 0
        self.num_live -= 1
