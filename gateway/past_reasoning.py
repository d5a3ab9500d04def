"""Past reasoning, where a chat template looks for it.

Most templates that have a place for an assistant message's earlier thoughts read `reasoning_content`, some read
`reasoning`, `thinking` or a part of the content; what a template reads is found out by asking it, once. Clients that
keep thoughts in the content, as `<think>…</think>` before the answer, get them there as well. A template that has no
place for them gets the messages as they are. Knows nothing of tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from inference.errors import InvalidTurn

Message = Mapping[str, Any]
_Spell = Callable[[str, str], dict[str, Any]]

_OPENS, _CLOSES = "<think>", "</think>"
_WORDS = "what was thought before"
_CALL = {"id": "call00000", "type": "function", "function": {"name": "probe", "arguments": "{}"}}
_TOOL = {
    "type": "function",
    "function": {"name": "probe", "description": "", "parameters": {"type": "object", "properties": {}}},
}
# From thoughts and content to fields of the message, the most usual first.
_SPELLINGS: tuple[_Spell, ...] = (
    lambda thoughts, content: {"reasoning_content": thoughts, "content": content},
    lambda thoughts, content: {"reasoning": thoughts, "content": content},
    lambda thoughts, content: {"thinking": thoughts, "content": content},
    lambda thoughts, content: {
        "content": [{"type": "thinking", "thinking": thoughts}, *([{"type": "text", "text": content}] * bool(content))]
    },
)


class PastReasoning:
    """`render` is `Tokenizer.render_chat`; so is the `render` that this gives. May be used from several threads."""

    def __init__(self, render: Callable[..., str]) -> None:
        self._render = render

    def render(self, messages: Sequence[Message], tools: Sequence[Message] | None = None, **variables: Any) -> str:
        """Raises InvalidTurn for messages that the template refuses."""
        if not any(_thoughts(message) for message in messages) or self._spell is None:
            return self._render(messages, tools, **variables)
        try:
            return self._render([_spelled(message, self._spell) for message in messages], tools, **variables)
        except InvalidTurn:
            # Some templates refuse thoughts beside text in a message that calls tools.
            return self._render(messages, tools, **variables)

    @cached_property
    def _spell(self) -> _Spell | None:
        return next((spell for spell in _SPELLINGS if self._reads(spell)), None)

    def _reads(self, spell: _Spell) -> bool:
        """Whether thoughts before a call, or those of the latest answer, are in the prompt."""
        user = {"role": "user", "content": "a"}
        calling = {"role": "assistant", **spell(_WORDS, ""), "tool_calls": [_CALL]}
        result = {"role": "tool", "content": "b", "tool_call_id": _CALL["id"], "name": "probe"}
        answer = {"role": "assistant", **spell(_WORDS, "b")}
        return self._shows([user, calling, result], [_TOOL]) or self._shows([user, answer], None)

    def _shows(self, messages: Sequence[Message], tools: Sequence[Message] | None) -> bool:
        try:
            text = self._render(messages, tools)
        except (InvalidTurn, ArithmeticError, LookupError, TypeError):
            return False
        # A template that knows no such parts may write the list as it stands.
        return _WORDS in text and not any(key in text for key in ("'thinking':", '"thinking":'))


def _thoughts(message: Message) -> tuple[str, str] | None:
    """The message's thoughts and its content without them."""
    if message["role"] != "assistant":
        return None
    if message.get("reasoning_content"):
        return message["reasoning_content"], message["content"]
    text = message["content"].lstrip()
    if not text.startswith(_OPENS):
        return None
    thoughts, end, answer = text.removeprefix(_OPENS).partition(_CLOSES)
    return (thoughts.strip("\n"), answer.lstrip("\n")) if end and thoughts.strip() else None


def _spelled(message: Message, spell: _Spell) -> Message:
    found = _thoughts(message)
    if found is None:
        return message
    others = {name: value for name, value in message.items() if name not in ("reasoning_content", "content")}
    return {**others, **spell(*found)}
