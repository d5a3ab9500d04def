"""Picks the dialect that a checkpoint speaks, from the literals in its chat template and vocabulary.

Every declaration states fingerprints: sets of literals that all have to occur. `DETECTION_ORDER` goes from the most
specific dialect to the most common, and the first that fits wins. Knows nothing of files or hubs.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from stream_parser.dialect import Dialect
from stream_parser.dialects import DETECTION_ORDER
from stream_parser.errors import UnknownDialect


def dialect_for(chat_template: str, vocab: Mapping[str, int] | Container[str] | None = None) -> Dialect:
    """The dialect of a checkpoint with this Jinja template and these tokens.

    Raises `UnknownDialect`, naming the nearest one, if none fits: then name the dialect yourself.
    """
    tokens = vocab if vocab is not None else ()
    for dialect in DETECTION_ORDER:
        if any(literal in chat_template for literal in dialect.unless):
            continue
        if any(all(_occurs(t, chat_template, tokens) for t in mark) for mark in dialect.fingerprints):
            return dialect

    nearest = max(DETECTION_ORDER, key=lambda d: _closeness(d, chat_template, tokens))
    raise UnknownDialect(
        f"no known tool-call dialect fits this chat template; the nearest is {nearest.name!r}. "
        f"Choose one by hand: StreamParser(dialect=NAME) or --dialect NAME, with NAME from DIALECTS.",
        nearest.name,
    )


def _occurs(literal: str, template: str, tokens: Container[str]) -> bool:
    return literal in template or literal in tokens


def _closeness(dialect: Dialect, template: str, tokens: Container[str]) -> float:
    shares = [sum(_occurs(t, template, tokens) for t in mark) / len(mark) for mark in dialect.fingerprints]
    return max(shares, default=0.0)
