"""Conversations kept on the server, so that a client sends only what is new and the prompt goes on token by token.

The next prompt of a session is the previous prompt, the output as the model wrote it (not as it was parsed and would be
rendered again), and the new messages: all but these is found in the prefix cache. Bounded in number, size and age.
Knows nothing of templates: the backend makes the prompt of what `ChatTurn.continues` says.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gateway.errors import Conflict, GatewayError, InvalidRequest, NotFound
from gateway.pieces import Piece, TextPiece
from gateway.types import ChatMessage, ChatTurn, Continuation, Prepared, ToolUse, TurnEvent, TurnText
from stream_parser import collect
from stream_parser.events import Event

_Key = tuple[str, str]
_TOKEN_BYTES = 4


@dataclass(frozen=True, slots=True)
class Session:
    """After a turn. token_ids: its prompt and its output. used_s: when it was committed, on the store's clock."""

    turn: ChatTurn
    token_ids: array[int]
    is_closed: bool
    num_bytes: int
    used_s: float


class SessionStore:
    """Keyed by owner and the client's id. Times and sizes: `ttl_s` after its last turn a session is gone; beyond
    `max_sessions` and `max_bytes` those not used for the longest go first."""

    def __init__(self, max_sessions: int, max_bytes: int, ttl_s: float, clock: Callable[[], float]) -> None:
        self._max_sessions = max_sessions
        self._max_bytes = max_bytes
        self._ttl_s = ttl_s
        self._clock = clock
        self._sessions: OrderedDict[_Key, Session] = OrderedDict()
        self._running: set[_Key] = set()
        self._num_bytes = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, owner: str, session_id: str, turn: ChatTurn, is_continued: bool) -> tuple[ChatTurn, Recorder]:
        """The turn as it is to run, and what has to hear of it. Raises NotFound, Conflict and InvalidRequest."""
        self._drop_old()
        key = (owner, session_id)
        if key in self._running:
            message = f"The session {session_id!r} has a turn that still runs: wait for its end, or use a lane."
            raise Conflict(message, param="session", code="session_busy", retry_after_s=1.0)
        whole = replace(turn, continues=Continuation())
        if is_continued:
            session = self._sessions.get(key)
            if session is None:
                raise _not_found(session_id, self._ttl_s)
            whole = _continue(session, turn)
        self._running.add(key)
        return whole, Recorder(self, key, whole)

    def commit(self, key: _Key, turn: ChatTurn, answer: ChatMessage, token_ids: array[int], is_closed: bool) -> None:
        messages = (*turn.messages, answer)
        num_chars = sum(len(m.content) + len(m.reasoning or "") for m in messages)
        num_chars += sum(len(use.arguments) for m in messages for use in m.tool_uses)
        num_bytes = num_chars + _TOKEN_BYTES * len(token_ids)
        self._drop(key)
        whole = replace(turn, messages=messages)
        self._sessions[key] = Session(whole, token_ids, is_closed, num_bytes, self._clock())
        self._num_bytes += num_bytes
        while len(self._sessions) > self._max_sessions or self._num_bytes > self._max_bytes:
            self._drop(next(iter(self._sessions)))

    def release(self, key: _Key) -> None:
        self._running.discard(key)

    def _drop(self, key: _Key) -> None:
        session = self._sessions.pop(key, None)
        if session is not None:
            self._num_bytes -= session.num_bytes

    def _drop_old(self) -> None:
        """In order of their last turn, so this looks at no more than it drops."""
        before_s = self._clock() - self._ttl_s
        while self._sessions:
            key, session = next(iter(self._sessions.items()))
            if session.used_s > before_s:
                return
            self._drop(key)


class Recorder:
    """Hears what one turn of a session does, and brings the session up to it when the turn ends by its rules."""

    def __init__(self, store: SessionStore, key: _Key, turn: ChatTurn) -> None:
        self._store = store
        self._key = key
        self._turn = turn
        self._token_ids = array("I")
        self._events: list[Event] = []
        self._is_prepared = False
        self._is_closed = False

    def prepared(self, prepared: Prepared) -> None:
        self._token_ids.extend(prepared.prompt_ids)
        self._is_prepared = True

    def piece(self, piece: Piece) -> None:
        if not isinstance(piece, TextPiece):
            # An upstream's answer has no token ids: its session goes on by its messages.
            return
        self._token_ids.extend(piece.output_ids)
        self._is_closed = len(piece.output_ids) > len(piece.token_ids)

    def item(self, item: TurnEvent | TurnText) -> None:
        if isinstance(item, TurnEvent):
            self._events.append(item.event)

    def done(self) -> None:
        """Also of a turn that was cancelled or cut: what it wrote is part of the conversation."""
        self._store.release(self._key)
        if not self._is_prepared:
            return
        message = collect(self._events)
        uses = tuple(ToolUse(call.id, call.name, call.arguments) for call in message.tool_calls)
        answer = ChatMessage("assistant", message.content, None, message.reasoning or None, uses)
        self._store.commit(self._key, self._turn, answer, self._token_ids, self._is_closed)

    def failed(self) -> None:
        """The session stays as it was before the turn, which can be tried again."""
        self._store.release(self._key)


def _continue(session: Session, turn: ChatTurn) -> ChatTurn:
    past = session.turn
    if turn.tools and turn.tools != past.tools:
        raise InvalidRequest("tools", "A session keeps its tools: leave them out, or begin a new session.")
    if turn.model is not None and turn.model != past.model:
        raise InvalidRequest("model", f"The session runs on {past.model!r}: leave model out, or begin a new session.")
    kwargs: Mapping[str, Any] = {**past.template_kwargs, **turn.template_kwargs}
    return replace(
        turn,
        model=past.model,
        messages=(*past.messages, *turn.messages),
        tools=past.tools,
        template_kwargs=kwargs,
        cache_salt=past.cache_salt,
        continues=Continuation(tuple(session.token_ids), len(past.messages), session.is_closed),
    )


def _not_found(session_id: str, ttl_s: float) -> GatewayError:
    message = f"There is no session {session_id!r} to continue: none was begun, it was not used for {ttl_s:g}s, or it "
    message += "made room for others. Begin it again: send the whole conversation without 'continue'."
    return NotFound(message, param="session", code="session_not_found")
