"""A tool whose annotations are text, as under `from __future__ import annotations`."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from headrace import tool


class Query(TypedDict):
    text: str
    limit: NotRequired[int]


@tool
def search(query: Query, sort: Literal["up", "down"]) -> str:
    return f"{query['text']} {sort}"
