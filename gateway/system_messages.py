"""System messages where chat templates do not want them.

Agents tell what has changed by system messages amid a conversation. Many templates refuse those, and some leave them
out without a word; a few know no system messages at all. Such messages become the user's words, at the same place:
moved to the head they would change the cached prefix, and left out the model would not know. Knows nothing of tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from inference.errors import InvalidTurn

Messages = Sequence[Mapping[str, Any]]
Tools = Sequence[Mapping[str, Any]] | None

_LATE = ("late system message one", "late system message two")
_PROBE_MESSAGES = (
    {"role": "system", "content": "first"},
    {"role": "user", "content": "a"},
    {"role": "system", "content": _LATE[0]},
    {"role": "assistant", "content": "b"},
    {"role": "user", "content": "c"},
    {"role": "system", "content": _LATE[1]},
)
_PROBE_TOOL = {
    "type": "function",
    "function": {"name": "probe", "description": "", "parameters": {"type": "object", "properties": {}}},
}


class SystemMessages:
    """Renders conversations so that no system message is lost. What a template does is found out once, when needed.

    `render` raises InvalidTurn for messages that the template refuses. May be used from several threads.
    """

    def __init__(self, render: Callable[..., str]) -> None:
        self._render = render
        # By whether there are tools: many templates write the head of a prompt in another way then.
        self._takes_late: dict[bool, bool] = {}

    def render(self, messages: Messages, tools: Tools, template_kwargs: Mapping[str, Any]) -> str:
        """Raises InvalidTurn with what the template said to the messages as they are."""
        if _has_late(messages) and not self._takes_late_with(tools):
            messages = lowered(messages, keeps_first=True)
        try:
            return self._render(messages, tools, **template_kwargs)
        except InvalidTurn:
            if not any(message["role"] == "system" for message in messages):
                raise
            try:
                return self._render(lowered(messages, keeps_first=False), tools, **template_kwargs)
            except InvalidTurn:
                pass
            raise

    def _takes_late_with(self, tools: Tools) -> bool:
        has_tools = bool(tools)
        if has_tools not in self._takes_late:
            try:
                text = self._render(_PROBE_MESSAGES, [_PROBE_TOOL] if has_tools else None)
                self._takes_late[has_tools] = all(words in text for words in _LATE)
            except InvalidTurn:
                self._takes_late[has_tools] = False
        return self._takes_late[has_tools]


def _has_late(messages: Messages) -> bool:
    return any(message["role"] == "system" for message in messages[1:])


def lowered(messages: Messages, *, keeps_first: bool) -> list[dict[str, Any]]:
    """System messages as the user's, but one at the head if it is to be kept; neighbours of the user's become one."""
    result: list[dict[str, Any]] = []
    texts: list[list[str]] = []
    for i, message in enumerate(messages):
        is_kept = i == 0 and keeps_first
        role = "user" if message["role"] == "system" and not is_kept else message["role"]
        if role == "user" and result and result[-1]["role"] == "user":
            texts[-1].append(message["content"])
        else:
            result.append({**message, "role": role})
            texts.append([message["content"]])
    # Joined once: adding to a text that grows would copy it each time.
    return [{**message, "content": "\n".join(parts)} for message, parts in zip(result, texts, strict=True)]
