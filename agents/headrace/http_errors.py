"""Answers that refuse, of HTTP requests and of WebSocket handshakes, as exceptions."""

from __future__ import annotations

import json
from collections.abc import Mapping

from headrace.errors import APIError, api_error

_SHOWN_CHARS = 500


def answer_error(status: int, body: bytes, headers: Mapping[str, str]) -> APIError:
    """The exception for an answer of status >= 300; a body that is no error object is shown by its beginning."""
    text = body.decode("utf-8", "replace")
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        answer = None
    if isinstance(answer, Mapping) and answer.get("error") is not None:
        return api_error(answer["error"], status=status, headers=headers)
    return api_error(text.strip()[:_SHOWN_CHARS] or "no body", status=status, headers=headers)
