"""Writes a grammar in llguidance's Lark: rules, terminals, and literals in which special tokens are tokens.

Rules with equal bodies are one rule. Knows nothing of schemas or dialects. Syntax: llguidance 1.9 docs/syntax.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from inference.grammar.errors import GrammarError, GrammarTooComplex

MAX_RULES = 50_000
_SURROGATE = re.compile("[\ud800-\udfff]")


class LarkWriter:
    """One grammar being written. special_tokens: the tokenizer's own, by text; searches_text: see GrammarSource."""

    def __init__(self, special_tokens: Mapping[str, int] | None = None) -> None:
        self.special_tokens: Mapping[str, int] = dict(special_tokens or {})
        longest_first = sorted((token for token in self.special_tokens if token), key=len, reverse=True)
        self._special = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")") if longest_first else None
        self.searches_text = False
        self._names: dict[tuple[str, str], str] = {}
        self._lines: list[str] = []
        self._spelled: list[str] = []

    def may_spell(self, text: str) -> None:
        """Texts of the grammar may contain what stands in `text`, though no literal of it does as a whole."""
        self._spelled.append(text)

    def rule(self, body: str, options: str = "") -> str:
        """The name of a rule with this body."""
        return self._define(body, options, "r")

    def terminal(self, body: str) -> str:
        """The name of a terminal with this body: a regular expression, one lexeme."""
        return self._define(body, "", "T")

    def literal(self, text: str) -> str:
        """An expression for `text`, whose special tokens are matched as tokens; "" for no text."""
        return " ".join(
            f"<[{self.special_tokens[piece]}]>" if is_special else quoted(piece)
            for piece, is_special in self.pieces(text)
        )

    def pieces(self, text: str) -> list[tuple[str, bool]]:
        """`text` cut at its special tokens: (piece, is it one)."""
        cut = self._special.split(text) if self._special else [text]
        return [(piece, number % 2 == 1) for number, piece in enumerate(cut) if piece]

    def has_special(self, text: str) -> bool:
        return any(is_special for _, is_special in self.pieces(text))

    def grammar(self, start: str) -> str:
        """The whole text, beginning at expression `start`."""
        text = "\n".join([f"start: {start}", *self._lines, ""])
        if _SURROGATE.search(text):
            raise GrammarError("", "a schema holds half a surrogate pair, which no text can.")
        if self._special is None or not any(map(self._special.search, [text, *self._spelled])):
            return text
        # A schema spells a special token. Forced text is tokenised, and that would force the token itself.
        return '%llguidance {"no_forcing": true}\n' + text

    def _define(self, body: str, options: str, prefix: str) -> str:
        key = (prefix + options, body)
        name = self._names.get(key)
        if name is None:
            if len(self._names) >= MAX_RULES:
                raise GrammarTooComplex("", f"the schemas need more than {MAX_RULES} grammar rules. Simplify them.")
            name = self._names[key] = f"{prefix}{len(self._names)}"
            self._lines.append(f"{name}{options}: {body}")
        return name


def quoted(text: str) -> str:
    """A string literal."""
    return json.dumps(text, ensure_ascii=False)


def regex(pattern: str) -> str:
    """A regular expression literal. Line breaks and slashes would end it."""
    escaped = re.sub(r"\\.|/|\n", lambda m: {"/": r"\/", "\n": r"\n"}.get(m[0], m[0]), pattern, flags=re.DOTALL)
    return f"/{escaped}/"


def sequence(parts: Iterable[str]) -> str:
    return " ".join(part for part in parts if part)


def either(options: Sequence[str]) -> str:
    """One of several expressions; the empty one comes out as an optional rest."""
    filled = list(dict.fromkeys(option for option in options if option))
    if not filled:
        return ""
    joined = filled[0] if len(filled) == 1 else "(" + " | ".join(filled) + ")"
    return f"({joined})?" if len(filled) < len(options) and "" in options else joined


def repeated(item: str, low: int, high: int, separator: str = "") -> str:
    """`low` to `high` items with separators between them; "" for none at all."""
    assert 0 <= low <= high
    if high == 0:
        return ""
    if not separator:
        return _times(item, low, high)
    rest = sequence([item, _times(f"({separator} {item})", max(low - 1, 0), high - 1)])
    return rest if low else f"({rest})?"


def _times(item: str, low: int, high: int) -> str:
    if high == 0:
        return ""
    return f"({item})" + ("?" if (low, high) == (0, 1) else "" if low == high == 1 else f"{{{low},{high}}}")
