"""Which tokens stand for markers as a whole, rather than for their letters. Needs the tokenizer's JSON alone."""

from __future__ import annotations

import json


def special_tokens_of(tokenizer_json: str) -> dict[str, int]:
    """Text to id, from the content of tokenizer.json: what `build_grammar` is to be given.

    The special ones, and those in angle brackets, special or not: llguidance takes both for tokens that no text spells,
    and so does a model, for which `<tool_call>` is one token and never its pieces.
    """
    added = json.loads(tokenizer_json).get("added_tokens") or ()
    return {token["content"]: token["id"] for token in added if _is_marker(token["content"], token["special"])}


def _is_marker(content: str, is_special: bool) -> bool:
    return bool(content) and (is_special or (content[0] == "<" and content[-1] == ">"))
