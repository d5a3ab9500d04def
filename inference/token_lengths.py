"""How much text one token can stand for at most, where a tokenizer's description says so for certain.

A text longer than that many times the context cannot fit into it, and need not be tokenised to know. Source: the
`tokenizers` library's serialised form (its documentation of components, 2026-11).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# Canonical composition makes one character of four at most (Unicode 16, the longest canonical decomposition).
_NORMALIZERS: Mapping[str, int] = {"NFC": 4, "NFD": 1, "Prepend": 1}
# These cut texts up or write them otherwise, and drop nothing.
_PRE_TOKENIZERS = ("ByteLevel", "Digits", "Metaspace", "Split")

_Part = Mapping[str, Any]


def max_chars_per_token(described: Mapping[str, Any]) -> int | None:
    """Characters of text; None where a token may stand for any number of them, as far as is known here.

    described: tokenizer.json.
    """
    model = described.get("model") or {}
    added = described.get("added_tokens") or []
    if model.get("type") != "BPE" or not model.get("vocab") or not _covers_every_text(described):
        return None
    if any(token.get("lstrip") or token.get("rstrip") for token in added):
        # They take all blanks beside them along.
        return None
    factor = _shrinking(_parts(described.get("normalizer"), "normalizers"))
    if factor is None or not all(map(_keeps_all, _parts(described.get("pre_tokenizer"), "pretokenizers"))):
        return None
    longest = max(map(len, (*model["vocab"], *(token["content"] for token in added))))
    return factor * longest


def _covers_every_text(described: _Part) -> bool:
    """Whether no text is unknown to the vocabulary: one token for unknown text may stand for any length of it."""
    if described["model"].get("byte_fallback"):
        return True
    decoders = _parts(described.get("decoder"), "decoders")
    return any(part.get("type") == "ByteLevel" for part in decoders)


def _parts(described: _Part | None, name: str) -> Iterator[_Part]:
    if described is None:
        return
    if described.get("type") == "Sequence":
        for part in described.get(name) or []:
            yield from _parts(part, name)
    else:
        yield described


def _shrinking(normalizers: Iterator[_Part]) -> int | None:
    """How many characters become one."""
    factor = 1
    for part in normalizers:
        kind = str(part.get("type"))
        if kind == "Replace":
            pattern = (part.get("pattern") or {}).get("String")
            if not isinstance(pattern, str) or len(part.get("content", "")) < len(pattern):
                return None
        elif kind not in _NORMALIZERS:
            return None
        factor *= _NORMALIZERS.get(kind, 1)
    return factor


def _keeps_all(part: _Part) -> bool:
    return part.get("type") in _PRE_TOKENIZERS and part.get("behavior") != "Removed"
