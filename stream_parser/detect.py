"""Picks the dialect that a checkpoint speaks, from the literals in its chat template and vocabulary.

Every declaration states fingerprints: sets of literals that all have to occur. `DETECTION_ORDER` goes from the most
specific dialect to the most common, and the first that fits wins. Knows nothing of files or hubs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Mapping

from stream_parser.dialect import Dialect
from stream_parser.dialects import DETECTION_ORDER, DIALECTS
from stream_parser.errors import UnknownDialect, UnsupportedTemplate
from stream_parser.response_template import import_response_template

_MARKER = re.compile(r"(?=.*\w)(?=.*[^\w\s]).+", re.DOTALL)


def dialect_for(
    chat_template: str,
    vocab: Mapping[str, int] | Container[str] | None = None,
    *,
    response_template: Mapping[str, object] | None = None,
) -> Dialect:
    """The dialect of a checkpoint with this Jinja template and these tokens.

    A dialect known here wins over the checkpoint's own `response_template`, because it also knows what goes wrong; the
    template is imported where none is known. Raises `UnknownDialect`, which names the nearest, if neither fits: then
    choose one by hand.
    """
    tokens = vocab if vocab is not None else ()
    text = chat_template
    if response_template is not None:
        text += json.dumps(response_template, ensure_ascii=False).replace("\\", "")
    for dialect in DETECTION_ORDER:
        if any(literal in text for literal in dialect.unless):
            continue
        if any(all(_occurs(t, text, tokens) for t in mark) for mark in dialect.fingerprints):
            return dialect

    nearest = max(DETECTION_ORDER, key=lambda d: (_closeness(d, text, tokens), len(d.families)))
    if response_template is not None:
        try:
            return import_response_template(response_template)
        except UnsupportedTemplate as error:
            raise _unknown(nearest, f" ({error})") from error
    raise _unknown(nearest)


def dialect_named(name: str) -> Dialect:
    """The dialect or alias `name`; `UnknownDialect` lists what there is."""
    if name not in DIALECTS:
        raise UnknownDialect(f"no dialect is called {name!r}; there are {', '.join(sorted(DIALECTS))}")
    return DIALECTS[name]


def _unknown(nearest: Dialect, why: str = "") -> UnknownDialect:
    return UnknownDialect(
        f"no known tool-call dialect fits this chat template{why}; the nearest is {nearest.name!r}. "
        "Choose one by hand: StreamParser(dialect=NAME) or --dialect NAME, with NAME from stream_parser.DIALECTS.",
        nearest.name,
    )


def _occurs(literal: str, template: str, tokens: Container[str]) -> bool:
    """In a vocabulary only what looks like a marker counts: a word or a run of signs may be a token of any text."""
    return literal in template or (_MARKER.fullmatch(literal) is not None and literal in tokens)


def _closeness(dialect: Dialect, template: str, tokens: Container[str]) -> float:
    shares = [sum(_occurs(t, template, tokens) for t in mark) / len(mark) for mark in dialect.fingerprints]
    same_turn = any(turn.strip() in template for turn in dialect.turns)
    return max(shares, default=0.0) + 0.1 * same_turn
