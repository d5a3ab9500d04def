"""Which texts a regular expression stands for, asked of the lexer that will follow it: in linear time, by its rules.

Expressions are the grammar's own: whole matches, as `text_patterns` writes them. Thread-safe; answers are kept.
"""

from __future__ import annotations

import threading
from functools import lru_cache

from llguidance import LLMatcher, LLParserLimits

from inference.grammar.lark import regex
from inference.grammar.vocabulary import Vocabulary

_LIMITS = LLParserLimits(
    initial_lexer_fuel=500_000, step_lexer_fuel=200_000, max_lexer_states=20_000, max_grammar_size=200_000,
    verbose_errors=False,
)  # fmt: skip
_MAX_ASKED_CHARS = 4_096
# What the library says of a grammar in which not even a first byte may come.
_NOTHING_FITS = "NoExtensionBias"
_END = 0


class TextSet:
    """The texts that all of `expressions` match and none of `but`. `fault`: why that cannot be told, "" if it can."""

    def __init__(self, expressions: tuple[str, ...], but: tuple[str, ...]) -> None:
        inside = [regex(f"(?s:{expression})") for expression in expressions]
        body = " & ".join([*inside, *("~" + regex(f"(?s:{expression})") for expression in but)])
        grammar = LLMatcher.grammar_from_lark(f"start: TEXT\nTEXT: {body}\n")
        self._matcher = LLMatcher(_vocabulary().tokenizer, grammar, log_level=0, limits=_LIMITS)
        self._lock = threading.Lock()
        if not self._matcher.is_error():
            self._matcher.compute_bitmask()  # the first mask finds what the grammar alone does not show
        error = self._matcher.get_error().strip() if self._matcher.is_error() else ""
        self.is_empty = error.startswith(_NOTHING_FITS)
        self.fault = "" if self.is_empty else error.partition("\n")[0]

    def __contains__(self, text: str) -> bool:
        """True as well where that cannot be told: what is asked here may only rule out what is certain."""
        if self.is_empty or self.fault or len(text) > _MAX_ASKED_CHARS:
            return not self.is_empty
        tokens = [byte + 1 for byte in text.encode("utf-8", "surrogatepass")]
        with self._lock:
            self._matcher.reset()
            num_taken = self._matcher.try_consume_tokens(tokens)
            return bool(num_taken == len(tokens) and self._matcher.is_accepting())


@lru_cache(maxsize=1024)
def text_set(*expressions: str, but: tuple[str, ...] = ()) -> TextSet:
    return TextSet(expressions, but)


@lru_cache(maxsize=1)
def _vocabulary() -> Vocabulary:
    return Vocabulary.from_token_bytes([b"<end>", *(bytes([byte]) for byte in range(256))], 257, [_END], [_END])
