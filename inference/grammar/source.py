"""A grammar before it meets a tokenizer: plain frozen values, which travel between processes and key caches."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Trigger:
    """Free text up to `text` begins a call; `lead` is how the grammar spells what has been written then.

    line_start: counts only as the first text of the answer or of a line.
    """

    text: str
    lead: str
    line_start: bool = False


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A budget of the model's thoughts: past `max_tokens` of them, `close` is written in the model's own words.

    opens, closes: the markers that begin and end reasoning. inside: the prompt has opened it already.
    """

    opens: tuple[str, ...]
    closes: tuple[str, ...]
    close: str
    inside: bool
    max_tokens: int


@dataclass(frozen=True, slots=True)
class GrammarSource:
    """What one row may write.

    lark: the grammar, "" if the text is free throughout. triggers: if any, the text is free, at no cost, until one of
    them; then `lark` holds for one call (or section of calls), after which the text is free again, or, with
    `ends_after_call`, over. special_tokens: the tokenizer's own, by text, that any of these texts contains.
    not_enforced: keywords, as paths, that the grammar lets pass and that are to be validated afterwards. searches_text:
    some text or undeclared key has a pattern or a format, or no slice of the vocabulary; masks within it take 0.2 to
    2.5 ms at 152k tokens. has_plain_strings: all text with a bound is in strings in JSON, see PlainStrings;
    has_plain_keys: and so are undeclared keys.
    """

    lark: str
    triggers: tuple[Trigger, ...] = ()
    ends_after_call: bool = False
    reasoning: Reasoning | None = None
    special_tokens: tuple[tuple[str, int], ...] = ()
    not_enforced: tuple[str, ...] = ()
    searches_text: bool = False
    has_plain_strings: bool = False
    has_plain_keys: bool = False

    def mentions(self, text: str) -> bool:
        """Does any text that this consists of contain `text`?"""
        reasoning = self.reasoning
        marks = (*reasoning.opens, *reasoning.closes, reasoning.close) if reasoning else ()
        begins = (words for trigger in self.triggers for words in (trigger.text, trigger.lead))
        return any(text in words for words in (self.lark, *begins, *marks))
