"""Nodes as expressions of a notation that quotes its strings: JSON, Python, Gemma's braces. Knows no dialects."""

from __future__ import annotations

from collections.abc import Sequence

from inference.grammar.errors import GrammarError, GrammarTooComplex
from inference.grammar.lark import LarkWriter, either, quoted, regex, repeated, sequence
from inference.grammar.members import member_list
from inference.grammar.nodes import (
    ExtraMembers,
    Items,
    Literals,
    Member,
    Members,
    Node,
    NumberRange,
    OneOf,
    Text,
)
from inference.grammar.notations import KeySpelling, Notation, Quotes
from inference.grammar.numbers import number_expression
from inference.grammar.policy import Bounds
from inference.grammar.spelled_patterns import Spelling, bounded_pattern, num_endless, spelled_pattern
from inference.grammar.text_patterns import FORMATS, whole_pattern
from inference.grammar.text_sets import text_set


class ValueWriter:
    """Writes values into `writer`. One expression a node, however often it occurs."""

    def __init__(self, writer: LarkWriter, notation: Notation, bounds: Bounds) -> None:
        self.notation = notation
        self._writer = writer
        self._bounds = bounds
        self._memo: dict[Node, str | None] = {}

    def expression(self, node: Node, path: str) -> str:
        """Raises GrammarError where the notation cannot write any value that fits."""
        found = self.value(node)
        if found is None:
            raise GrammarError(path, f"nothing that fits this schema can be written in {self.notation.name} syntax.")
        return found

    def value(self, node: Node) -> str | None:
        if node not in self._memo:
            found = self._value(node)
            self._memo[node] = self._writer.rule(found) if found and " " in found else found
        return self._memo[node]

    def _value(self, node: Node) -> str | None:
        match node:
            case Literals(values=values):
                return self._literals([self.notation.literal(value) for value in values])
            case Text():
                return self._text(node)
            case NumberRange():
                return number_expression(self._writer, node, self._bounds)
            case Items():
                return self._items(node)
            case Members():
                return self._members(node)
            case OneOf(options=options):
                found = [option for option in map(self.value, options) if option is not None]
                return either(found) if found else None

    def keywords(self, node: Members, key: KeySpelling, separator: str) -> str | None:
        """The members alone, their keys spelled another way: a call's keyword arguments. "" for none."""
        return member_list(self._writer, node, lambda m: self._member(m, key), self._no_extra, separator)

    def _literals(self, spelled: Sequence[str | None]) -> str | None:
        if self.notation.name == "lax" and self._writer.has_special(self.notation.quotes[0].opens):
            texts = [text for text in spelled if text is not None]
            return either([self._writer.literal(text) for text in texts]) if texts else None
        return literals(self._writer, spelled)

    def _text(self, node: Text) -> str | None:
        found = [self._quoted_text(node, quotes) for quotes in self.notation.quotes]
        possible = [text for text in found if text is not None]
        return either(possible) if possible else None

    def _quoted_text(self, node: Text, quotes: Quotes) -> str | None:
        low, high, spelling = node.min_chars, node.max_chars, quotes.spelling
        whole = [*map(whole_pattern, node.patterns), *(FORMATS[name] for name in node.formats)]
        self._writer.searches_text |= bool(whole)
        if not whole and not (quotes.rest and node.is_bounded_by_schema):
            return self._delimited(quotes, regex(f"{spelling.char}{{{low},{high}}}{quotes.rest}"), low == 0)
        parts = self._bounded_parts(node, whole, spelling)
        if parts is None:
            return None
        return self._delimited(quotes, "(" + " & ".join(regex(f"(?s:{part})") for part in parts) + ")", low == 0)

    def _bounded_parts(self, node: Text, whole: Sequence[str], spelling: Spelling) -> list[str] | None:
        """Expressions that a spelled text matches all; None where none does. `whole`: what its characters match."""
        low, high = node.min_chars, node.max_chars
        inside: list[str] = []
        if len(whole) == 1 and spelling.escapes and not node.is_bounded_by_schema:
            inside = [spelled_pattern(bounded_pattern(whole[0], high), spelling)]
            if num_endless(whole[0]) < 2:
                # Masks cost a fifth of what they do with the bound beside it; where several parts count, the tenfold.
                return inside
        bounded = f"{spelling.char if spelling.escapes else spelling.plain}{{{low},{high}}}"
        parts = [bounded, *(spelled_pattern(one, spelling) if spelling.escapes else one for one in whole)]
        texts = text_set(*parts)
        if texts.fault and not inside:
            raise _too_much(node, texts.fault)
        return None if texts.is_empty else inside if texts.fault else parts

    def _delimited(self, quotes: Quotes, inner: str, may_be_empty: bool) -> str:
        if not self._writer.has_special(quotes.opens):
            return self._writer.terminal(f"{quoted(quotes.opens)} {inner} {quoted(quotes.closes)}")
        text = self._writer.terminal(inner)
        opens, closes = self._writer.literal(quotes.opens), self._writer.literal(quotes.closes)
        return sequence([opens, f"({text})?" if may_be_empty else text, closes])

    def _items(self, node: Items) -> str | None:
        prefix: list[str] = []
        for place in node.prefix:
            item = self.value(place)
            if item is None:
                break
            prefix.append(item)
        rest = self.value(node.rest) if node.rest is not None and len(prefix) == len(node.prefix) else None
        high = node.high if rest is not None else min(node.high, len(prefix))
        if node.low > high:
            return None
        comma = quoted(self.notation.item_separator)
        inner = self._places(prefix, rest, node.low, high, comma)
        return sequence(['"["', inner, '"]"'])

    def _places(self, prefix: list[str], rest: str | None, low: int, high: int, comma: str) -> str:
        """Places from the last to the first: each may end the array once `low` are written."""
        if not prefix:
            return repeated(rest, low, high, comma) if rest else ""
        num = len(prefix)
        after = repeated(f"({comma} {rest})", max(low - num, 0), high - num) if rest else ""
        for index in range(num - 1, -1, -1):
            here = sequence([comma if index else "", prefix[index], after])
            after = here if index < low else either([self._writer.rule(here), ""])
        return after

    def _members(self, node: Members) -> str | None:
        comma = quoted(self.notation.item_separator)
        write_extra = self._no_extra if node.is_open_by_default and self.notation.name != "json" else self._extra
        inner = member_list(self._writer, node, lambda m: self._member(m, self.notation.key), write_extra, comma)
        return None if inner is None else sequence(['"{"', inner, '"}"'])

    def _member(self, member: Member, key: KeySpelling) -> str | None:
        spelled, value = key(member.key), self.value(member.value)
        return None if spelled is None or value is None else sequence([quoted(spelled), value])

    def _no_extra(self, _extra: ExtraMembers) -> None:
        """Other notations' models write declared members only, unless the schema asks for more."""

    def _extra(self, extra: ExtraMembers) -> str | None:
        value = self.value(extra.value)
        if value is None:
            return None
        return sequence([self._extra_key(extra), value])

    def _extra_key(self, extra: ExtraMembers) -> str:
        """What no key may be is ruled out of the whole lexeme, quotes and all: the vocabulary's slices see through such
        a complement, and through none within a sequence (docs/adr/0006)."""
        key, notation = extra.key, self.notation
        opens, closes = notation.key_quotes[0], notation.key_quotes[1] + notation.key_end
        parts = [f"{notation.key_char}{{{key.min_chars},{key.max_chars}}}"]
        parts += [f"(?s:{whole_pattern(pattern)})" for pattern in (*extra.patterns, *key.patterns)]
        parts += [FORMATS[name] for name in key.formats]
        others = [f"(?s:{whole_pattern(pattern)})" for pattern in extra.other_patterns]
        names = [opens + name + closes for name in extra.excluded if key.min_chars <= len(name) <= key.max_chars]
        is_sliced = len(parts) == 1 and not others and notation.has_sliced_keys and _are_short(names, key.max_chars)
        self._writer.searches_text |= not is_sliced

        begin, end = quoted(opens) if opens else "", quoted(closes)
        inner = "(" + " & ".join(map(regex, parts)) + ")" if len(parts) > 1 else regex(parts[0])
        whole = sequence([begin, inner, end])
        ruled_out = [*map(quoted, names), *(sequence([begin, regex(other), end]) for other in others)]
        return self._writer.terminal(f"({whole}) & ~({' | '.join(ruled_out)})" if ruled_out else whole)


def _are_short(names: Sequence[str], max_chars: int) -> bool:
    """Does the library see at once that a key may go on past them all? It counts their bytes."""
    return all(len(name.encode("utf-8", "surrogatepass")) <= max_chars for name in names)


def _too_much(node: Text, fault: str) -> GrammarTooComplex:
    keyword, value = ("pattern", node.patterns[0]) if node.patterns else ("format", node.formats[0])
    lengths = f"lengths of {node.min_chars} to {node.max_chars}"
    message = f'"{keyword}" {value!r:.80} beside {lengths} is too much ({fault:.60}). Simplify it.'
    return GrammarTooComplex("", message, keyword=keyword)


def literals(writer: LarkWriter, spelled: Sequence[str | None], tail: str = "") -> str | None:
    """One of these texts, none of whose words is a token of its own, and `tail`; None if there is no text.

    With its tail a text is one lexeme, so that free text in the same place, which may begin alike, cannot outrun it.
    """
    texts = list(dict.fromkeys(text for text in spelled if text is not None))
    if not texts:
        return None
    if not writer.has_special(tail):
        texts, tail = [text + tail for text in texts], ""
    filled = [quoted(text) for text in texts if text]
    expression = filled[0] if len(filled) == 1 else writer.terminal(" | ".join(filled)) if filled else ""
    return sequence([f"({expression})?" if expression and "" in texts else expression, writer.literal(tail)])
