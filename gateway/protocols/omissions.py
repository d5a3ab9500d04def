"""What of a conversation the model cannot read: an image, a document, what another server's tools did.

One rule for every protocol. In the conversation's history (all that the model has already answered, what it wrote
itself, and the results of its tools) a note stands in its place, and the client is warned: nobody can take it back, so
refusing it would end the conversation. What is new in a request, and so is its sender's to change, is refused.
"""

from __future__ import annotations

from gateway.errors import InvalidRequest
from gateway.protocols.fields import Fields, named, shown


class Omissions:
    """Of one request. O(1) a part."""

    def __init__(self) -> None:
        self._kinds: dict[str, None] = {}

    @property
    def warnings(self) -> tuple[str, ...]:
        """One a kind, in the order in which they first came."""
        return tuple(f"{kind} in the conversation is left out: the model reads text only" for kind in self._kinds)

    def note(self, kind: str) -> str:
        """The same for every part of a kind, so that the next turn finds this one's prefix."""
        kind = named(kind)
        self._kinds[kind] = None
        return f"[{kind} left out: the model reads text only]"

    def replace(self, part: Fields, kind: str, is_history: bool) -> str:
        """Raises InvalidRequest for what is new."""
        if is_history:
            return self.note(kind)
        path = part.path("type")
        message = f"{path} is {shown(kind)}, but the model reads text only: send parts of type 'text'."
        raise InvalidRequest(path, message, code="unsupported_content_part")
