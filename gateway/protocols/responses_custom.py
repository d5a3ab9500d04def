"""The free text of a custom tool, out of the JSON arguments that the model writes, while it writes them.

The model sees a custom tool as a function with one string, `input`. Text streams when the arguments begin with that
member, which is how models write them; otherwise it comes at the call's end.
"""

from __future__ import annotations

import re

import orjson

from gateway.protocols.cut_json import completed
from gateway.protocols.messages import CUSTOM_INPUT

_HEAD = re.compile(rf'\s*\{{\s*"{CUSTOM_INPUT}"\s*:\s*"')
_MAX_HEAD_CHARS = 256
# What the model writes begins with one of these, unless it is the text itself.
_WRAPPERS = ("{", '"')
# Text up to the next quote, or up to an escape or surrogate pair that is not whole yet.
_WHOLE = re.compile(
    r'(?:[^"\\]+|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\[^u])*'
)


class CustomInput:
    """Feed the deltas of a call's arguments; `finish` with the whole of them. What was returned, joined, is `text`."""

    def __init__(self) -> None:
        self._held = ""
        self._is_inside = False
        self._is_over = False
        self._parts: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._parts)

    def feed(self, arguments: str) -> str:
        if self._is_over:
            return ""
        self._held += arguments
        if not self._is_inside:
            head = _HEAD.match(self._held)
            if head is None:
                # What does not begin this way by now waits for the end.
                self._is_over = len(self._held) > _MAX_HEAD_CHARS
                return ""
            self._is_inside = True
            self._held = self._held[head.end() :]
        return self._take()

    def finish(self, arguments: str, *, is_cut: bool = False) -> str:
        """is_cut: the call ended before its arguments did."""
        if self._is_inside and self._is_over:
            return ""
        given, whole = self.text, _whole_input(arguments)
        if self._is_inside:
            # Cut off within the text: what is left is half an escape, and stands for nothing.
            rest = whole.removeprefix(given) if whole is not None and whole.startswith(given) else ""
        elif whole is None and is_cut and arguments.lstrip().startswith(_WRAPPERS):
            # Cut off within what stands around the text, of which there is none then.
            rest = _whole_input(completed(arguments)) or ""
        else:
            rest = arguments if whole is None else whole
        self._parts.append(rest)
        return rest

    def _take(self) -> str:
        whole = _WHOLE.match(self._held)
        assert whole is not None
        raw, self._held = whole[0], self._held[whole.end() :]
        self._is_over = self._held.startswith('"')
        if not raw:
            return ""
        text = _unescaped(raw)
        self._parts.append(text)
        return text


def _unescaped(raw: str) -> str:
    if "\\" not in raw:
        return raw
    try:
        text = orjson.loads(f'"{raw}"')
    except orjson.JSONDecodeError:
        # Raw control characters, or an escape that JSON does not have: as the model wrote it.
        return raw
    assert isinstance(text, str)
    return text


def _whole_input(arguments: str) -> str | None:
    try:
        value = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return None
    text = value.get(CUSTOM_INPUT) if isinstance(value, dict) else value
    return text if isinstance(text, str) else None
