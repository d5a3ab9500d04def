"""The order of an object's members as grammar rules: declared ones in their order, then extra ones, counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from inference.grammar.errors import GrammarTooComplex
from inference.grammar.lark import LarkWriter, either, repeated, sequence
from inference.grammar.nodes import NULL, ExtraMembers, Member, Members

# An expression for one member, key and value; None where the notation cannot write it.
MemberWriter: TypeAlias = Callable[[Member], str | None]
ExtraWriter: TypeAlias = Callable[[ExtraMembers], str | None]

_MAX_COUNTED = 20_000


def member_list(
    writer: LarkWriter, node: Members, write: MemberWriter, write_extra: ExtraWriter, separator: str = ""
) -> str | None:
    """An expression, maybe empty, for all members with `separator` (an expression) between; None: impossible."""
    pairs = [(member, write(member)) for member in node.declared]
    extras = [found for found in map(write_extra, node.extra) if found] if node.max_extra else []
    counted = node.low > 0 or node.high is not None
    if counted and len(pairs) ** 2 > _MAX_COUNTED:
        word = "minProperties" if node.low else "maxProperties"
        message = f'"{word}" beside {len(pairs)} declared members is too much. Leave it out, or declare fewer.'
        raise GrammarTooComplex("", message, keyword=word)
    limit = len(pairs) if counted else 1
    # after[c]: what may follow when c members (without counting: none or some) have been written.
    after = [_extras(writer, node, extras, count, separator, counted) for count in range(limit + 1)]
    for member, expression in reversed(pairs):
        before = list(after)
        for count in range(limit + 1):
            rest = after[min(count + 1, limit)]
            taken = None
            if expression is not None and rest is not None and (count < limit or not counted):
                taken = sequence([separator if count else "", expression, rest])
            options = [taken] if member.is_required else [taken, after[count]]
            possible = [option for option in options if option is not None]
            before[count] = _shared(writer, possible) if possible else None
        after = before
    return after[0]


@dataclass(frozen=True, slots=True)
class Unwritable:
    """What keeps an object from being written: `keyword` of the schema at `keys` within it, and why."""

    keys: tuple[str, ...]
    keyword: str
    why: str


def unwritable(node: Members, write: Callable[[Members], str | None]) -> Unwritable:
    """The first cause, of an object for which `write` found no way."""
    for member in node.declared:
        alone = replace(node, declared=(member,), extra=(), low=0, high=None)
        if not member.is_required or write(alone) is not None:
            continue
        is_key_written = write(replace(alone, declared=(replace(member, value=NULL),))) is not None
        if is_key_written and isinstance(member.value, Members):
            inner = unwritable(member.value, write)
            return replace(inner, keys=(member.key, *inner.keys))
        what = "the value of a required member" if is_key_written else "a required member"
        return Unwritable((), "required", f"names {member.key!r:.60}, {what} that cannot be written in")
    why = f"of {node.low} takes members that are not declared, which cannot be written in"
    return Unwritable((), "minProperties", why)


def _shared(writer: LarkWriter, options: list[str]) -> str:
    """As a rule, so that the next member's options refer to it by name: expressions would double in size each time."""
    joined = either(options)
    return writer.rule(joined) if joined else ""


def _extras(
    writer: LarkWriter, node: Members, extras: list[str], count: int, separator: str, counted: bool
) -> str | None:
    low = max(0, node.low - count)
    high = node.max_extra if extras else 0
    if node.high is not None:
        high = min(high, node.high - count)
    if low > high or high < 0:
        return None
    if high == 0:
        return ""
    extra = writer.rule(either(extras))
    if count == 0:
        return repeated(extra, low, high, separator)
    return repeated(f"({separator} {extra})" if separator else extra, low, high)
